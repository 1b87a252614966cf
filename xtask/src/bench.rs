use crate::run::{cargo, program, show, target};
use crate::{guests, setup};
use anyhow::Result;

/// Runs one study, built for speed, the tool beside it.
pub(crate) fn bench(arguments: &[String]) -> Result<()> {
    setup::setup(setup::BENCH)?;
    guests::guests(&[])?;
    show(&mut cargo([
        "build",
        "--release",
        "--package",
        "karman",
        "--package",
        "karman-benches",
        "--features",
        "karman-benches/peers",
    ]))?;
    show(program(target().join("release/karman-benches")).args(arguments))
}
