use crate::tables::{APPENDED, KEEPERS, KEEPERS_LOG, META, number, put};
use crate::{Named, StoreError};
use bytes::Bytes;
use redb::{ReadableTable, WriteTransaction};
use serde::Serialize;
use std::ops::{Deref, RangeBounds};

/// The log of the keepers of kept tasks, and a few records beside it (who was voted for, the last snapshot), where this node is
/// a keeper. What they say is the consensus library's; here they are kept. Every change is on the disk when it returns.
#[derive(Clone, Copy)]
pub struct Keepers<'a>(pub(crate) Named<'a>);

impl<'a> Deref for Keepers<'a> {
    type Target = Named<'a>;

    fn deref(&self) -> &Named<'a> {
        &self.0
    }
}

impl Keepers<'_> {
    /// Writes these entries at their indices, all or none.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn append(&self, entries: &[(u64, impl AsRef<[u8]>)]) -> Result<(), StoreError> {
        self.store.tables().write(|txn| {
            let mut log = txn.open_table(KEEPERS_LOG)?;
            let mut bytes = number(&txn.open_table(META)?, APPENDED)?;
            for (index, entry) in entries {
                let entry = entry.as_ref();
                let before = log.insert(index, entry)?;
                bytes = bytes.saturating_sub(before.map_or(0, |before| before.value().len() as u64));
                bytes += entry.len() as u64;
            }
            count(txn, bytes)
        })
    }

    /// Entries of these indices, in order: as many as have `most` bytes together, and at least one where there is one.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn read(&self, range: impl RangeBounds<u64>, most: u64) -> Result<Vec<Bytes>, StoreError> {
        let log = self.store.tables().read()?.open_table(KEEPERS_LOG)?;
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

    /// Bytes of all entries.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn log_bytes(&self) -> Result<u64, StoreError> {
        number(&self.store.tables().read()?.open_table(META)?, APPENDED)
    }

    /// The index through which entries have to go so that those after it have `most` bytes; nothing where all of them have.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn surplus(&self, most: u64) -> Result<Option<u64>, StoreError> {
        let log = self.store.tables().read()?.open_table(KEEPERS_LOG)?;
        let mut bytes = 0;
        for entry in log.range::<u64>(..)?.rev() {
            let (index, entry) = entry?;
            bytes += entry.value().len() as u64;
            if bytes > most {
                return Ok(Some(index.value()));
            }
        }
        Ok(None)
    }

    /// The entry with the highest index.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn last(&self) -> Result<Option<Bytes>, StoreError> {
        let log = self.store.tables().read()?.open_table(KEEPERS_LOG)?;
        let last = log.last()?;
        Ok(last.map(|(_, entry)| Bytes::copy_from_slice(entry.value())))
    }

    /// Removes the entries from this index on.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn truncate(&self, from: u64) -> Result<(), StoreError> {
        self.store.tables().write(|txn| remove(txn, from..))
    }

    /// Removes the entries up to and including this index, and writes the record of this name with that.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn purge(&self, through: u64, name: &str, record: &impl Serialize) -> Result<(), StoreError> {
        self.store.tables().write(|txn| {
            put(&mut txn.open_table(KEEPERS)?, KEEPERS, name, record)?;
            remove(txn, ..=through)
        })
    }

    /// Forgets all of it: this node is a keeper no more.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn clear(&self) -> Result<(), StoreError> {
        self.store.tables().write(|txn| {
            txn.open_table(KEEPERS)?.retain(|_, _| false)?;
            remove(txn, ..)
        })
    }
}

fn remove(txn: &WriteTransaction, range: impl RangeBounds<u64>) -> Result<(), StoreError> {
    let mut log = txn.open_table(KEEPERS_LOG)?;
    let mut bytes = number(&txn.open_table(META)?, APPENDED)?;
    log.retain_in::<u64, _>(range, |_, entry| {
        bytes = bytes.saturating_sub(entry.len() as u64);
        false
    })?;
    count(txn, bytes)
}

fn count(txn: &WriteTransaction, bytes: u64) -> Result<(), StoreError> {
    txn.open_table(META)?.insert(APPENDED, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::Store;

    #[test]
    fn the_bytes_of_the_log_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let counted = || store.keepers().log_bytes().unwrap();
        assert_eq!(counted(), 0);
        let entry = |index: u64, bytes: usize| (index, vec![0; bytes]);
        store.keepers().append(&[entry(1, 10), entry(2, 20)]).unwrap();
        store.keepers().append(&[entry(3, 30), entry(2, 25)]).unwrap();
        assert_eq!(counted(), 65);
        store.keepers().truncate(3).unwrap();
        assert_eq!(counted(), 35);
        store.keepers().purge(1, "purged", &1u64).unwrap();
        assert_eq!(counted(), 25);
        store.keepers().clear().unwrap();
        assert_eq!(counted(), 0);
    }

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
        let surplus = |most| keepers.surplus(most).unwrap();
        assert_eq!([40, 39, 20, 9].map(surplus), [None, Some(4), Some(5), Some(7)]);
        assert_eq!(keepers.get::<u64>("purged").unwrap(), Some(3));
        keepers.clear().unwrap();
        assert_eq!(keepers.last().unwrap(), None);
        assert_eq!(keepers.get::<u64>("purged").unwrap(), None);
    }
}
