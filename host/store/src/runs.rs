use crate::tables::{RUNS, get, put};
use crate::{Store, StoreError};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Federated runs that this node drives, and what it keeps as a client of others: by a name that says which.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a>(pub(crate) &'a Store);

impl Runs<'_> {
    /// The record of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        get(&self.0.tables().read()?.open_table(RUNS)?, RUNS, name)
    }

    /// The names of all records that begin so.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, StoreError> {
        let table = self.0.tables().read()?.open_table(RUNS)?;
        let mut names = Vec::new();
        for entry in table.range(beginning..)? {
            let name = entry?.0.value().to_owned();
            if !name.starts_with(beginning) {
                break;
            }
            names.push(name);
        }
        Ok(names)
    }

    /// Writes the record of this name, durably.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.0
            .tables()
            .write(|txn| put(&mut txn.open_table(RUNS)?, RUNS, name, record))
    }

    /// Forgets the record of this name, if there is one.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn remove(&self, name: &str) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            txn.open_table(RUNS)?.remove(name)?;
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_kept_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let runs = store.runs();
        runs.put("run/digits", &7u32).unwrap();
        runs.put("client/digits/1", &vec![1u8, 2]).unwrap();
        assert_eq!(runs.get("run/digits").unwrap(), Some(7u32));
        assert_eq!(runs.names("run/").unwrap(), ["run/digits"]);
        runs.remove("run/digits").unwrap();
        assert_eq!(runs.get::<u32>("run/digits").unwrap(), None);
        assert!(runs.get::<u32>("client/digits/1").is_err());
    }
}
