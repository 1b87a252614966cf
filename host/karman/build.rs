//! Has the program linked for a fixed address: for one that is chosen anew at each start, each start would write megabytes of relocated pointers
//! and keep them for itself. Addresses of libraries, stacks, heaps and compiled plugins are chosen at random all the same.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let gnu_linux =
        ["CARGO_CFG_TARGET_OS", "CARGO_CFG_TARGET_ENV"].map(|of| env::var(of).unwrap_or_default());
    if gnu_linux == ["linux", "gnu"] {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
