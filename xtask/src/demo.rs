use crate::run::{cargo, program, root, show, target};
use crate::{guests, setup};
use anyhow::Result;

/// The plugins that take part.
const PLUGINS: [&str; 6] = [
    "flood-capture",
    "flood-tiles",
    "flood-screen",
    "flood-alert",
    "siren",
    "fed-flood",
];

/// From a fresh checkout to a flood that is found.
pub(crate) fn demo(arguments: &[String]) -> Result<()> {
    setup::setup(&[setup::WASM])?;
    guests::guests(&PLUGINS.map(str::to_owned))?;
    // The whole workspace is selected so that the tests find its dependencies built with the same features.
    show(&mut cargo(["build", "--quiet", "--workspace", "--bin", "karman"]))?;
    let mut karman = program(target().join("debug/karman"));
    karman.args(["demo", "flood", "--plugins"]);
    show(karman.arg(root().join("target/guests")).args(arguments))
}
