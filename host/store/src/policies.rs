use crate::tables::{POLICIES, list, put};
use crate::{Store, StoreError};
use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// Policies that are kept; one more drops the one that was not used for longest.
const MOST: usize = 16;

/// Files of plugins that brought a policy. They stay when the plugin goes or has another version, so that what they decided can be
/// decided again for as long as the log has it.
#[derive(Clone, Copy, Debug)]
pub struct Policies<'a>(pub(crate) &'a Store);

#[derive(Deserialize, Serialize)]
struct Used {
    /// Counts up with each use of any of them.
    turn: u64,
}

impl Policies<'_> {
    /// Keeps a file, or notes that it is used again.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn keep(&self, component: &[u8]) -> Result<(), StoreError> {
        self.0.blobs().add(component, |txn, digest| {
            let mut table = txn.open_table(POLICIES)?;
            let name = digest.to_string();
            let mut others: Vec<(String, Used)> = list(&table, POLICIES)?;
            others.retain(|(other, _)| *other != name);
            let turn = others.iter().map(|(_, used)| used.turn + 1).max();
            let turn = turn.unwrap_or_default();
            put(&mut table, POLICIES, &name, &Used { turn })?;
            others.sort_by_key(|(_, used)| used.turn);
            let over = (others.len() + 1).saturating_sub(MOST);
            let mut gone = Vec::new();
            for (other, _) in others.drain(..over) {
                table.remove(other.as_str())?;
                gone.extend(other.parse::<Digest>().ok());
            }
            Ok(((), gone))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_were_used_last_stay() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let keep = |n: u8| store.policies().keep(&[n; 40]).unwrap();
        (0..16).for_each(keep);
        keep(0);
        keep(16);
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        let is_here = |n: u8| store.blobs().read(&Digest::of(&[n; 40])).is_ok();
        assert!(is_here(0) && is_here(16) && is_here(2) && !is_here(1));
    }
}
