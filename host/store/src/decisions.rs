use crate::tables::DECISIONS;
use crate::{Store, StoreError};
use redb::ReadableTable;

/// The log of decisions: a ring of entries, encoded by what decides.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'a>(pub(crate) &'a Store);

impl Decisions<'_> {
    /// Adds entries in this order; of all, the last `most` stay.
    ///
    /// # Errors
    /// What the disk refused; nothing is added then.
    pub fn append(&self, entries: &[Vec<u8>], most: usize) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let mut table = txn.open_table(DECISIONS)?;
            let last = table.last()?.map(|(number, _)| number.value());
            let mut next = last.map_or(0, |last| last + 1);
            for entry in entries {
                table.insert(next, entry.as_slice())?;
                next += 1;
            }
            let first = next.saturating_sub(most as u64);
            table.retain_in(..first, |_, _| false)?;
            Ok(())
        })
    }

    /// Every entry that is left, the oldest first.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn all(&self) -> Result<Vec<Vec<u8>>, StoreError> {
        let table = self.0.tables().read()?.open_table(DECISIONS)?;
        let mut all = Vec::new();
        for row in table.iter()? {
            all.push(row?.1.value().to_vec());
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_entries_stay_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let entries: Vec<Vec<u8>> = (0..7u8).map(|n| vec![n]).collect();
        store.decisions().append(&entries[..3], 4).unwrap();
        assert_eq!(store.decisions().all().unwrap(), &entries[..3]);
        store.decisions().append(&entries[3..], 4).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.decisions().all().unwrap(), &entries[3..]);
        store.decisions().append(&entries[..1], 2).unwrap();
        assert_eq!(store.decisions().all().unwrap(), [[6u8], [0]]);
    }
}
