//! Has the linker pack the relative relocations of the program (`DT_RELR`), where the C library that will load it knows them:
//! megabytes that each start would read and keep resident.

use std::env;
use std::process::Command;

/// The first version of glibc that knows packed relocations.
const GLIBC: (u32, u32) = (2, 36);

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if is_for_this_machine() && glibc().is_some_and(|version| version >= GLIBC) {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}

/// Of other machines it is not known which C library they have.
fn is_for_this_machine() -> bool {
    let gnu_linux =
        ["CARGO_CFG_TARGET_OS", "CARGO_CFG_TARGET_ENV"].map(|of| env::var(of).unwrap_or_default());
    gnu_linux == ["linux", "gnu"] && env::var("TARGET") == env::var("HOST")
}

/// The version of this machine's C library: `getconf` says `glibc 2.36`.
fn glibc() -> Option<(u32, u32)> {
    let said = Command::new("getconf").arg("GNU_LIBC_VERSION").output().ok()?;
    let said = String::from_utf8(said.stdout).ok()?;
    let (major, minor) = said.trim().strip_prefix("glibc ")?.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}
