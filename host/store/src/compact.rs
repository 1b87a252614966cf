//! Gives back to the disk what the file of a database needs no more: redb uses again what becomes free in it, and seldom makes it shorter.

use crate::tables::{APPENDED, BUCKETS, LOGGED, META, PROGRESSED, REMEMBERED};
use crate::{StoreError, room};
use redb::{Database, ReadableDatabase, ReadableTable};
use std::fs;
use std::path::Path;

/// Bytes of a file that is worth the trouble.
pub(crate) const LEAST: u64 = 64 << 20;

/// Compacts a database that nobody uses yet, where its file has at least so many bytes and is more than three times as long as what it
/// holds: redb doubles a file that is full. Says whether it did.
///
/// # Errors
/// What the disk refused.
pub(crate) fn compact(database: &mut Database, path: &Path, least: u64) -> Result<bool, StoreError> {
    let length = || fs::metadata(path).map_or(0, |file| file.len());
    let before = length();
    if before < least {
        return Ok(false);
    }
    let Some(held) = held(database, before / 3)? else {
        return Ok(false);
    };
    let folder = path.parent().unwrap_or(path);
    let path = path.display();
    // What is free in a file may have no room on the disk: it was never written, or the file system writes elsewhere.
    if room::take(folder, held).is_err() {
        tracing::info!(%path, bytes = before, held, "the disk has no room to compact the database");
        return Ok(false);
    }
    tracing::info!(%path, bytes = before, held, "the database is compacted");
    database.compact()?;
    tracing::info!(%path, bytes = length(), "the database has given back what it did not need");
    Ok(true)
}

/// Bytes that a database holds; nothing where they are `most` or more.
fn held(database: &Database, most: u64) -> Result<Option<u64>, StoreError> {
    // It takes as long as there is much in the file to go through it, and where there is much, most of that is counted.
    if counted(database)? >= most {
        return Ok(None);
    }
    let txn = database.begin_write()?;
    let stats = txn.stats()?;
    txn.abort()?;
    let held = stats.allocated_pages() * stats.page_size() as u64;
    Ok((held < most).then_some(held))
}

/// Bytes of what is counted as it is written: less than there is.
fn counted(database: &Database) -> Result<u64, StoreError> {
    let txn = database.begin_read()?;
    let (meta, buckets) = (txn.open_table(META)?, txn.open_table(BUCKETS)?);
    let mut bytes = 0;
    for name in [APPENDED, LOGGED, PROGRESSED, REMEMBERED] {
        bytes += meta.get(name)?.map_or(0, |bytes| bytes.value());
    }
    for bucket in buckets.iter()? {
        bytes += bucket?.1.value().0;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use redb::TableDefinition;

    const TABLE: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("table");
    static VALUE: [u8; 1 << 16] = [7; 1 << 16];

    fn write(database: &Database, change: impl FnOnce(&redb::WriteTransaction)) {
        let txn = database.begin_write().unwrap();
        change(&txn);
        txn.commit().unwrap();
    }

    /// A database with this many values, of which the last ones were written after all others.
    fn filled(path: &Path, values: u64) -> Database {
        let database = Database::create(path).unwrap();
        for keys in [0..values - 4, values - 4..values] {
            write(&database, |txn| {
                txn.open_table(META).unwrap();
                txn.open_table(BUCKETS).unwrap();
                let mut table = txn.open_table(TABLE).unwrap();
                keys.for_each(|key| drop(table.insert(key, VALUE.as_slice()).unwrap()));
            });
        }
        database
    }

    #[test]
    fn a_file_that_held_much_becomes_short_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let mut database = filled(&path, 256);
        let length = || fs::metadata(&path).unwrap().len();
        assert!(!compact(&mut database, &path, 1 << 20).unwrap());
        let full = length();
        write(&database, |txn| {
            let mut table = txn.open_table(TABLE).unwrap();
            table.retain(|key, _| key >= 252).unwrap();
        });
        // What a transaction has freed is free with the next one: every start writes something first.
        write(&database, |txn| {
            txn.open_table(META).unwrap().insert("format", 1).unwrap();
        });
        assert!(!compact(&mut database, &path, 2 * full).unwrap());
        assert!(compact(&mut database, &path, 1 << 20).unwrap());
        assert!(length() < full / 4, "{} of {full}", length());
        let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
        for key in 252..256 {
            assert_eq!(table.get(key).unwrap().unwrap().value(), VALUE);
        }
    }

    #[test]
    fn what_is_counted_tells_that_a_file_is_full() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state.redb");
        let mut database = filled(&path, 16);
        write(&database, |txn| {
            txn.open_table(META).unwrap().insert(LOGGED, 1 << 30).unwrap();
            txn.open_table(BUCKETS)
                .unwrap()
                .insert("road", (1 << 30, 1))
                .unwrap();
        });
        assert_eq!(counted(&database).unwrap(), 2 << 30);
        assert_eq!(held(&database, 2 << 30).unwrap(), None);
        assert!(
            held(&database, 4 << 30)
                .unwrap()
                .is_some_and(|held| held < 64 << 20)
        );
        assert!(!compact(&mut database, &path, 0).unwrap());
    }
}
