use super::Step;
use crate::run::{program, quiet, tools};
use anyhow::Result;

const PACKAGE: &str = "@bytecodealliance/componentize-js@0.23";

pub(crate) const NODE: Step = Step {
    name: "node packages",
    recipe: PACKAGE,
    missing: || {
        !tools()
            .join("node_modules/@bytecodealliance/componentize-js")
            .exists()
    },
    install,
};

fn install() -> Result<()> {
    let mut npm = program("npm");
    npm.args([
        "install",
        "--silent",
        "--no-save",
        "--no-audit",
        "--no-fund",
        "--prefix",
    ]);
    quiet(npm.arg(tools()).arg(PACKAGE))
}
