use crate::tables::{DECISIONS, LOGGED, META, number};
use crate::{Store, StoreError};
use redb::{ReadableTable, ReadableTableMetadata};

/// The log of decisions: a ring of entries, encoded by what decides. It is bounded in entries and in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Decisions<'a>(pub(crate) &'a Store);

impl Decisions<'_> {
    /// Adds entries in this order. Of all, the last `most` stay, and of these as many as have `most_bytes` together: the oldest go.
    ///
    /// # Errors
    /// What the disk refused; nothing is added then.
    pub fn append(&self, entries: &[Vec<u8>], most: usize, most_bytes: u64) -> Result<(), StoreError> {
        self.0.tables().write(|txn| {
            let (mut table, mut meta) = (txn.open_table(DECISIONS)?, txn.open_table(META)?);
            let mut bytes = number(&meta, LOGGED)?;
            let last = table.last()?.map(|(number, _)| number.value());
            let first = last.map_or(0, |last| last + 1);
            for (number, entry) in (first..).zip(entries) {
                table.insert(number, entry.as_slice())?;
                bytes += entry.len() as u64;
            }
            while table.len()? > most as u64 || bytes > most_bytes {
                let Some((_, gone)) = table.pop_first()? else {
                    bytes = 0;
                    break;
                };
                bytes = bytes.saturating_sub(gone.value().len() as u64);
            }
            meta.insert(LOGGED, bytes)?;
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
        store.decisions().append(&entries[..3], 4, 100).unwrap();
        assert_eq!(store.decisions().all().unwrap(), &entries[..3]);
        store.decisions().append(&entries[3..], 4, 100).unwrap();
        drop(store);
        let store = Store::open(folder.path()).unwrap();
        assert_eq!(store.decisions().all().unwrap(), &entries[3..]);
        store.decisions().append(&entries[..1], 2, 100).unwrap();
        assert_eq!(store.decisions().all().unwrap(), [[6u8], [0]]);
    }

    #[test]
    fn few_long_entries_take_no_more_room_than_many_short_ones() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let lengths = || -> Vec<usize> {
            let all = store.decisions().all().unwrap();
            all.iter().map(Vec::len).collect()
        };
        let append = |lengths: &[usize], most_bytes| {
            let entries: Vec<Vec<u8>> = lengths.iter().map(|length| vec![0; *length]).collect();
            store.decisions().append(&entries, 100, most_bytes).unwrap();
        };
        append(&[10, 20, 30], 60);
        assert_eq!(lengths(), [10, 20, 30]);
        append(&[5], 60);
        assert_eq!(lengths(), [20, 30, 5]);
        append(&[1, 2], 57);
        assert_eq!(lengths(), [30, 5, 1, 2]);
        append(&[1], 9);
        assert_eq!(lengths(), [5, 1, 2, 1]);
        append(&[10], 9);
        assert!(lengths().is_empty());
        append(&[9], 9);
        assert_eq!(lengths(), [9]);
    }
}
