use crate::run::{cargo, show};
use crate::setup;
use anyhow::Result;

/// Runs one study, built for speed.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::setup(setup::ALL)?;
    let mut bench = cargo([
        "run",
        "--quiet",
        "--release",
        "--package",
        "karman-benches",
        "--features",
        "peers",
        "--",
    ]);
    show(bench.args(arguments))
}
