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
    /// Keeps the file with this digest, or notes that it is used again. Whether it is here: it has to come from somewhere else, a
    /// plugin say.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn keep(&self, digest: &Digest) -> Result<bool, StoreError> {
        let blobs = self.0.blobs();
        let name = digest.to_string();
        if self.last_used()?.is_some_and(|last| last == name) {
            return Ok(true);
        }
        blobs.release(|txn| {
            if !blobs.has(digest) {
                return Ok((false, Vec::new()));
            }
            let mut table = txn.open_table(POLICIES)?;
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
            Ok((true, gone))
        })
    }

    fn last_used(&self) -> Result<Option<String>, StoreError> {
        let txn = self.0.tables().read()?;
        let all: Vec<(String, Used)> = list(&txn.open_table(POLICIES)?, POLICIES)?;
        let last = all.into_iter().max_by_key(|(_, used)| used.turn);
        Ok(last.map(|(name, _)| name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Downgrade, NewPlugin};
    use karman_types::World;

    #[test]
    fn those_that_were_used_last_stay_when_their_plugins_go() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let file = |n: u8| [n; 40];
        for n in 0..17 {
            let name = format!("policy-{n}");
            let new = NewPlugin {
                identity: &name,
                name: &name,
                version: semver::Version::new(1, 0, 0),
                world: World::PolicySelect,
                publisher: None,
                component: &file(n),
            };
            store.plugins().install(&new, Downgrade::Refuse).unwrap();
        }
        let keep = |n: u8| store.policies().keep(&Digest::of(&file(n))).unwrap();
        assert!((0..16).all(keep) && keep(0) && keep(0) && keep(16));
        for n in 0..17 {
            store.plugins().remove(&format!("policy-{n}")).unwrap();
        }
        // One that has gone cannot be kept any more.
        assert!(!keep(1) && keep(2));
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        let is_here = |n: u8| store.blobs().read(&Digest::of(&file(n))).is_ok();
        assert!(is_here(0) && is_here(16) && is_here(2) && !is_here(1));
    }
}
