//! What is written down before a study runs.

use anyhow::Result;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Reads a file that was committed before the study ran, which is built in.
///
/// # Errors
/// Names the key that is unknown, missing or wrong.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T> {
    Ok(karman_types::from_toml(text)?)
}

/// The seeds of a study's blocks.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seeds {
    first: u64,
    count: u64,
}

impl Seeds {
    /// One for each block.
    pub fn all(self) -> impl Iterator<Item = u64> + use<> {
        self.first..self.first + self.count
    }

    /// How many blocks there are.
    pub const fn count(self) -> u64 {
        self.count
    }
}

/// Each of these with each of those: cells that differ in two things.
pub fn each_with<A: Copy, B: Copy>(these: &[A], those: &[B]) -> Vec<(A, B)> {
    let with_those = |this: &A| {
        let this = *this;
        those.iter().map(move |that| (this, *that))
    };
    these.iter().flat_map(with_those).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_seeds_and_what_is_unknown_is_named() {
        let seeds: Seeds = read("first = 7\ncount = 3").unwrap();
        assert_eq!(
            (seeds.all().collect::<Vec<_>>(), seeds.count()),
            (vec![7, 8, 9], 3)
        );
        let wrong = read::<Seeds>("first = 7\ncount = 3\nlast = 9").unwrap_err();
        assert!(wrong.to_string().contains("last"), "{wrong}");
    }

    #[test]
    fn cells_of_one_kind_are_beside_each_other() {
        let cells = each_with(&[1, 2], &['a', 'b']);
        assert_eq!(cells, [(1, 'a'), (1, 'b'), (2, 'a'), (2, 'b')]);
    }
}
