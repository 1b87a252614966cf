use crate::run::{cargo, show};
use anyhow::Result;

/// Writes the pages of docs/ that are made from the code: the reference of configuration, by the test that holds it up to date.
pub(crate) fn docs() -> Result<()> {
    let mut test = cargo(["test", "--package", "karman", "--test", "e2e", "reference::"]);
    show(test.env("KARMAN_WRITE_DOCS", "1"))
}
