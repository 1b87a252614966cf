//! Files of the repository that studies work on.

use anyhow::{Context, Result};

/// One of them, by its path from the root of the repository.
pub(crate) fn read(path: &str) -> Result<Vec<u8>> {
    std::fs::read(path)
        .with_context(|| format!("{path} is not here; run the study from the root of the repository"))
}
