use super::Step;
use crate::run::{has, program, quiet, root, tools};
use anyhow::{Context, Result};
use std::path::Path;

const TARGET: &str = "wasm32-wasip2";

pub(crate) const WASM: Step = Step {
    name: "rust for wasm32-wasip2",
    recipe: include_str!("../../wasm-std.sh"),
    missing: || !has_target() && !tools().join("wasm-std/rustc").exists(),
    install,
};

/// The user's own toolchain where it has the target or can fetch it, else Debian's.
fn install() -> Result<()> {
    if has_target() {
        return Ok(());
    }
    let fetched = quiet(program("rustup").args(["target", "add", TARGET]));
    if fetched.is_ok() && has_target() {
        return Ok(());
    }
    if !has("apt-get") {
        return fetched.context("the target could not be fetched; run `rustup target add wasm32-wasip2`");
    }
    let mut script = program("bash");
    script
        .arg(root().join("xtask/wasm-std.sh"))
        .arg(tools().join("wasm-std"));
    quiet(&mut script)
        .context("neither rustup nor Debian gave the target; run `rustup target add wasm32-wasip2`")
}

fn has_target() -> bool {
    let asked = program("rustc")
        .args(["--target", TARGET, "--print", "target-libdir"])
        .output();
    let Ok(libdir) = asked.map(|asked| String::from_utf8_lossy(&asked.stdout).trim().to_owned()) else {
        return false;
    };
    let Ok(files) = Path::new(&libdir).read_dir() else {
        return false;
    };
    files
        .flatten()
        .any(|file| file.file_name().to_string_lossy().starts_with("libstd-"))
}
