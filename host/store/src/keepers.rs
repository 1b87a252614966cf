use crate::tables::{KEEPERS, KEEPERS_LOG, get, put};
use crate::{Store, StoreError};
use bytes::Bytes;
use redb::{ReadableTable, WriteTransaction};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::RangeBounds;

/// The log of the keepers of kept tasks, and a few records beside it (who was voted for, the last snapshot), where this node is
/// a keeper. What they say is the consensus library's; here they are kept. Every change is on the disk when it returns.
#[derive(Clone, Copy, Debug)]
pub struct Keepers<'a>(pub(crate) &'a Store);

impl Keepers<'_> {
    /// The record of this name.
    ///
    /// # Errors
    /// [`StoreError::Record`] when it is not what was asked for, else what the disk refused.
    pub fn get<R: DeserializeOwned>(&self, name: &str) -> Result<Option<R>, StoreError> {
        get(&self.0.tables().read()?.open_table(KEEPERS)?, KEEPERS, name)
    }

    /// Writes the record of this name.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn put(&self, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.0
            .tables()
            .write(|txn| put(&mut txn.open_table(KEEPERS)?, KEEPERS, name, record))
    }

    /// Writes these entries at their indices, all or none.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn append(&self, entries: &[(u64, Vec<u8>)]) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut log = txn.open_table(KEEPERS_LOG)?;
            for (index, entry) in entries {
                log.insert(index, entry.as_slice())?;
            }
            Ok(())
        })
    }

    /// Entries of these indices, in order: as many as have `most` bytes together, and at least one where there is one.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn read(&self, range: impl RangeBounds<u64>, most: u64) -> Result<Vec<Bytes>, StoreError> {
        let log = self.0.tables().read()?.open_table(KEEPERS_LOG)?;
        let (mut entries, mut bytes) = (Vec::new(), 0);
        for entry in log.range::<u64>(range)? {
            let (_, entry) = entry?;
            bytes += entry.value().len() as u64;
            if bytes > most && !entries.is_empty() {
                break;
            }
            entries.push(Bytes::copy_from_slice(entry.value()));
        }
        Ok(entries)
    }

    /// The entry with the highest index.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn last(&self) -> Result<Option<Bytes>, StoreError> {
        let log = self.0.tables().read()?.open_table(KEEPERS_LOG)?;
        let last = log.last()?;
        Ok(last.map(|(_, entry)| Bytes::copy_from_slice(entry.value())))
    }

    /// Removes the entries from this index on.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn truncate(&self, from: u64) -> Result<(), StoreError> {
        self.0.tables().write(|txn| remove(txn, from..))
    }

    /// Removes the entries up to and including this index, and writes the record of this name with that.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn purge(&self, through: u64, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            put(&mut txn.open_table(KEEPERS)?, KEEPERS, name, record)?;
            remove(txn, ..=through)
        })
    }

    /// Forgets all of it: this node is a keeper no more.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            txn.open_table(KEEPERS)?.retain(|_, _| false)?;
            remove(txn, ..)
        })
    }
}

fn remove(txn: &WriteTransaction, range: impl RangeBounds<u64>) -> Result<(), StoreError> {
    Ok(txn
        .open_table(KEEPERS_LOG)?
        .retain_in::<u64, _>(range, |_, _| false)?)
}

#[cfg(test)]
mod tests {
    use crate::Store;

    #[test]
    fn the_log_is_cut_at_both_ends() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let entries: Vec<(u64, Vec<u8>)> = (1..=9).map(|n| (n, vec![n as u8; 10])).collect();
        store.keepers().append(&entries).unwrap();
        store.keepers().truncate(8).unwrap();
        store.keepers().purge(3, "purged", &3u64).unwrap();
        drop(store);
        let store = Store::open(dir.path()).unwrap();
        let keepers = store.keepers();
        let firsts = |most| -> Vec<u8> {
            let entries = keepers.read(0.., most).unwrap();
            entries.iter().map(|entry| entry[0]).collect()
        };
        assert_eq!(firsts(u64::MAX), [4, 5, 6, 7]);
        assert_eq!(firsts(25), [4, 5]);
        assert_eq!(firsts(1), [4]);
        assert_eq!(keepers.last().unwrap().unwrap()[0], 7);
        assert_eq!(keepers.get::<u64>("purged").unwrap(), Some(3));
        keepers.clear().unwrap();
        assert_eq!(keepers.last().unwrap(), None);
        assert_eq!(keepers.get::<u64>("purged").unwrap(), None);
    }
}
