use crate::tables::{PROFILES, get, put};
use crate::{Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What was measured of models on this node, by a name that says of what and how.
#[derive(Clone, Copy, Debug)]
pub struct Profiles<'a>(pub(crate) &'a Store);

impl Profiles<'_> {
    /// The profile of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        get(&self.0.tables().read()?.open_table(PROFILES)?, PROFILES, name)
    }

    /// Writes the profile of this name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, profile: &impl Serialize) -> Result<(), StoreError> {
        self.0
            .tables()
            .write(|txn| put(&mut txn.open_table(PROFILES)?, PROFILES, name, profile))
    }

    /// Changes the profile of this name in one step; where there is none yet, the default one. Of changes at once none is lost.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn change<R: Default + DeserializeOwned + Serialize>(
        &self,
        name: &str,
        change: impl FnOnce(&mut R),
    ) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(PROFILES)?;
            let mut profile: R = get(&table, PROFILES, name)?.unwrap_or_default();
            change(&mut profile);
            put(&mut table, PROFILES, name, &profile)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_at_once_come_one_after_the_other() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let count = || store.profiles().change("count", |count: &mut u32| *count += 1);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        count().unwrap();
                    }
                });
            }
        });
        assert_eq!(store.profiles().get("count").unwrap(), Some(32u32));
        store.profiles().put("count", &"no number").unwrap();
        assert!(count().is_err());
        let text: Option<String> = store.profiles().get("count").unwrap();
        assert_eq!(text.as_deref(), Some("no number"));
    }
}
