use crate::tables::{Records, get, put};
use crate::{Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Records by name. What they are is for those to say who write them; here they are kept.
#[derive(Clone, Copy)]
pub struct Named<'a> {
    pub(crate) store: &'a Store,
    pub(crate) table: Records,
}

impl Named<'_> {
    /// The record of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        let table = self.store.tables().read()?.open_table(self.table)?;
        get(&table, self.table, name)
    }

    /// The names that begin so, in order.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, StoreError> {
        let table = self.store.tables().read()?.open_table(self.table)?;
        let mut names = Vec::new();
        for row in table.range(beginning..)? {
            let (name, _) = row?;
            if !name.value().starts_with(beginning) {
                break;
            }
            names.push(name.value().to_owned());
        }
        Ok(names)
    }

    /// The records whose names begin so, in order, by what follows in their names.
    ///
    /// # Errors
    /// [`StoreError::Record`] when one is not what was asked for, else what the disk refused.
    pub fn records<R: DeserializeOwned>(&self, beginning: &str) -> Result<Vec<(String, R)>, StoreError> {
        let table = self.store.tables().read()?.open_table(self.table)?;
        let mut records = Vec::new();
        for row in table.range(beginning..)? {
            let (name, _) = row?;
            let Some(rest) = name.value().strip_prefix(beginning) else {
                break;
            };
            if let Some(record) = get(&table, self.table, name.value())? {
                records.push((rest.to_owned(), record));
            }
        }
        Ok(records)
    }

    /// Writes the record of this name, durably.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.store
            .tables()
            .write(|txn| put(&mut txn.open_table(self.table)?, self.table, name, record))
    }

    /// Changes the record of this name in one step; where there is none yet, the default one. Of changes at once none is lost.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn change<R: Default + DeserializeOwned + Serialize>(
        &self,
        name: &str,
        change: impl FnOnce(&mut R),
    ) -> Result<(), StoreError> {
        self.store.tables().write(|txn| {
            let mut table = txn.open_table(self.table)?;
            let mut record: R = get(&table, self.table, name)?.unwrap_or_default();
            change(&mut record);
            put(&mut table, self.table, name, &record)
        })
    }

    /// Makes the record of this name smaller, where there is one; on a full disk too.
    ///
    /// # Errors
    /// Those of [`get`](Self::get).
    pub fn shrink<R: DeserializeOwned + Serialize>(
        &self,
        name: &str,
        change: impl FnOnce(&mut R),
    ) -> Result<(), StoreError> {
        self.store.tables().write_anyway(|txn| {
            let mut table = txn.open_table(self.table)?;
            let Some(mut record) = get(&table, self.table, name)? else {
                return Ok(());
            };
            change(&mut record);
            put(&mut table, self.table, name, &record)
        })
    }

    /// Forgets the records of these names, as far as there are any.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn remove(&self, names: &[&str]) -> Result<(), StoreError> {
        self.store.tables().write_anyway(|txn| {
            let mut table = txn.open_table(self.table)?;
            for name in names {
                table.remove(*name)?;
            }
            Ok(())
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
        let take = |name| store.profiles().shrink(name, |count: &mut u32| *count -= 1);
        take("count").unwrap();
        assert_eq!(store.profiles().get("count").unwrap(), Some(31u32));
        take("other").unwrap();
        assert_eq!(store.profiles().get::<u32>("other").unwrap(), None);
        store.profiles().put("count", &"no number").unwrap();
        assert!(count().is_err());
        let text: Option<String> = store.profiles().get("count").unwrap();
        assert_eq!(text.as_deref(), Some("no number"));
    }

    #[test]
    fn records_are_kept_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let runs = store.runs();
        runs.put("run/digits", &7u32).unwrap();
        runs.put("client/digits/1", &vec![1u8, 2]).unwrap();
        assert_eq!(runs.get("run/digits").unwrap(), Some(7u32));
        assert_eq!(runs.names("run/").unwrap(), ["run/digits"]);
        runs.remove(&["run/digits"]).unwrap();
        assert_eq!(runs.get::<u32>("run/digits").unwrap(), None);
        assert!(runs.get::<u32>("client/digits/1").is_err());
    }
}
