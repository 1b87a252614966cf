//! The tables of `state.redb` and how records are written in them.

use crate::StoreError;
use crate::database::File;
use redb::{
    MultimapTableDefinition, ReadTransaction, ReadableTable, Table, TableDefinition, TableHandle,
    WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Write};

/// Records in CBOR, by name.
pub(crate) type Records = TableDefinition<'static, &'static str, &'static [u8]>;

/// `format`: what the tables look like. `clock`: the newest version of any value; versions never repeat. [`TAKEN`]. [`LOGGED`].
/// [`REMEMBERED`]. [`PROGRESSED`]. [`APPENDED`].
pub(crate) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Bucket to its bytes and entries.
pub(crate) const BUCKETS: TableDefinition<'_, &str, (u64, u64)> = TableDefinition::new("buckets");
/// Bucket and key to version, version at creation and value.
pub(crate) const VALUES: TableDefinition<'_, (&str, &str), (u64, u64, &[u8])> =
    TableDefinition::new("values");
/// Bucket and version at creation to key: a listing goes on after a number, whatever is deleted meanwhile.
pub(crate) const ORDER: TableDefinition<'_, (&str, u64), &str> = TableDefinition::new("order");
/// Name to [`crate::Model`].
pub(crate) const MODELS: Records = TableDefinition::new("models");
/// Identity to [`crate::Plugin`].
pub(crate) const PLUGINS: Records = TableDefinition::new("plugins");
/// Identity to what the operator allowed.
pub(crate) const GRANTS: Records = TableDefinition::new("grants");
/// Name to nonce and ciphertext.
pub(crate) const SECRETS: Records = TableDefinition::new("secrets");
/// Name to what the node must not forget of its mesh.
pub(crate) const MESH: Records = TableDefinition::new("mesh");
/// Invitation to the public key that used it.
pub(crate) const REDEEMED: TableDefinition<'_, u128, &[u8; 32]> = TableDefinition::new("redeemed");
/// Of those: the last second that the invitation could be used, and the invitation.
pub(crate) const REDEEMED_ENDS: TableDefinition<'_, (u64, u128), ()> = TableDefinition::new("redeemed-ends");
/// Id to [`karman_tasks::TaskRecord`].
pub(crate) const TASKS: Records = TableDefinition::new("tasks");
/// Id of a task to its progress, encoded by what runs it.
pub(crate) const PROGRESS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("progress");
/// Bytes of all progress and the ids of its tasks, in [`META`].
pub(crate) const PROGRESSED: &str = "progress";
/// Idempotency key to [`karman_tasks::Seen`].
pub(crate) const EFFECTS: Records = TableDefinition::new("effects");
/// [`LAST`] to the key of the effect that was looked at last, to see whether it may be forgotten.
pub(crate) const EFFECTS_SWEPT: TableDefinition<'_, &str, &str> = TableDefinition::new("effects-swept");
pub(crate) const LAST: &str = "last";
/// Bytes of all effects and their keys, in [`META`].
pub(crate) const REMEMBERED: &str = "effects";
/// Digest to [`crate::Bundle`], of those that wait.
pub(crate) const BUNDLES: Records = TableDefinition::new("bundles");
/// Bytes of all bundles that wait, in [`META`].
pub(crate) const TAKEN: &str = "bundles";
/// Digest to a bundle that has ended.
pub(crate) const ENDED: Records = TableDefinition::new("bundles-ended");
/// Of those: rank, when it is forgotten, and its digest.
pub(crate) const FORGET: TableDefinition<'_, (u8, u64, &str), ()> = TableDefinition::new("bundles-forget");
/// Of those that others brought, by the member that did: rank, when it is forgotten, and its digest.
pub(crate) const BROUGHT: MultimapTableDefinition<'_, &str, (u8, u64, &str)> =
    MultimapTableDefinition::new("bundles-brought");
/// Orders that came by bundle and are done: when each is forgotten, and its digest, to the member that gave it.
pub(crate) const ORDERS: TableDefinition<'_, (u64, &str), &str> = TableDefinition::new("bundles-orders");
/// Digest to the model of another node.
pub(crate) const VISITING: Records = TableDefinition::new("visiting");
/// What was measured of models.
pub(crate) const PROFILES: Records = TableDefinition::new("profiles");
/// Digests of files of policies to their use.
pub(crate) const POLICIES: Records = TableDefinition::new("policies");
/// Number to entry of the log of decisions.
pub(crate) const DECISIONS: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("decisions");
/// Bytes of all of them, in [`META`].
pub(crate) const LOGGED: &str = "decisions";
/// Federated runs.
pub(crate) const RUNS: Records = TableDefinition::new("runs");
/// Name to what a keeper must not forget of the keepers' consensus besides their log.
pub(crate) const KEEPERS: Records = TableDefinition::new("keepers");
/// Index to entry of the keepers' log.
pub(crate) const KEEPERS_LOG: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("keepers-log");
/// Bytes of all of its entries, in [`META`].
pub(crate) const APPENDED: &str = "keepers-log";
/// Files under `blobs/` that may have no owner: being added, or just removed.
pub(crate) const PENDING: TableDefinition<'_, &[u8; 32], ()> = TableDefinition::new("pending");

/// What this version writes and reads.
pub(crate) const FORMAT: u64 = 1;

pub(crate) struct Tables(File);

impl Tables {
    /// The format of a database, 0 when it is new.
    pub(crate) fn open(database: File) -> Result<(Self, u64), StoreError> {
        let tables = Self(database);
        let format = tables.write_anyway(|txn| {
            let mut meta = txn.open_table(META)?;
            let found = meta.get("format")?.map(|format| format.value());
            if found.is_none() {
                meta.insert("format", FORMAT)?;
                // Readers may rely on every table being there.
                txn.open_table(BUCKETS)?;
                txn.open_table(VALUES)?;
                txn.open_table(ORDER)?;
                for records in [
                    MODELS, PLUGINS, GRANTS, SECRETS, MESH, TASKS, EFFECTS, KEEPERS, BUNDLES, ENDED,
                    VISITING, POLICIES, PROFILES, RUNS,
                ] {
                    txn.open_table(records)?;
                }
                txn.open_table(FORGET)?;
                txn.open_multimap_table(BROUGHT)?;
                txn.open_table(ORDERS)?;
                txn.open_table(EFFECTS_SWEPT)?;
                txn.open_table(PROGRESS)?;
                txn.open_table(DECISIONS)?;
                txn.open_table(REDEEMED)?;
                txn.open_table(REDEEMED_ENDS)?;
                txn.open_table(KEEPERS_LOG)?;
                txn.open_table(PENDING)?;
            }
            Ok(found.unwrap_or(FORMAT))
        })?;
        Ok((tables, format))
    }

    /// Gives back to the disk what the file does not need, before anybody uses it.
    pub(crate) fn compact(&self) {
        self.0.compact();
    }

    pub(crate) fn read(&self) -> Result<ReadTransaction, StoreError> {
        self.0.read()
    }

    /// Commits what `change` did, durably, or on its error nothing.
    pub(crate) fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.write(change)
    }

    /// The same on a full disk too, for what frees room there.
    pub(crate) fn write_anyway<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.0.write_anyway(change)
    }

    /// Whether anything can be written. After a transaction has failed that is tried; else room is held for when there is none.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.0.trouble().is_none() {
            self.0.hold_room();
            return Ok(());
        }
        self.write(|txn| {
            txn.open_table(META)?.insert("format", FORMAT)?;
            Ok(())
        })
    }

    /// Why nothing can be written, as far as is known.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.0.trouble()
    }

    /// Why nothing is read or written any more, if it is not.
    pub(crate) fn shut(&self) -> Option<String> {
        self.0.shut()
    }
}

/// The record of this name.
pub(crate) fn get<R: DeserializeOwned>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    of: Records,
    name: &str,
) -> Result<Option<R>, StoreError> {
    table
        .get(name)?
        .map(|bytes| decode(of, name, bytes.value()))
        .transpose()
}

/// Every record, by name.
pub(crate) fn list<R: DeserializeOwned>(
    table: &impl ReadableTable<&'static str, &'static [u8]>,
    of: Records,
) -> Result<Vec<(String, R)>, StoreError> {
    table
        .iter()?
        .map(|entry| {
            let (name, bytes) = entry?;
            Ok((name.value().to_owned(), decode(of, name.value(), bytes.value())?))
        })
        .collect()
}

/// Writes the record of this name. It is encoded where it comes to stand: some have hundreds of megabytes.
pub(crate) fn put(
    table: &mut Table<'_, &'static str, &'static [u8]>,
    of: Records,
    name: &str,
    record: &impl Serialize,
) -> Result<(), StoreError> {
    let unwritten = |error: &dyn std::fmt::Display| unreadable(of, name, error);
    let mut length = Length(0);
    cbor4ii::serde::to_writer(&mut length, record).map_err(|error| unwritten(&error))?;
    let mut place = table.insert_reserve(name, length.0)?;
    let mut left = place.as_mut();
    cbor4ii::serde::to_writer(&mut left, record).map_err(|error| unwritten(&error))?;
    match left.is_empty() {
        true => Ok(()),
        false => Err(unwritten(&"it was another one when it was written")),
    }
}

/// Counts bytes.
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A record as it is written.
pub(crate) fn encode(of: Records, name: &str, record: &impl Serialize) -> Result<Vec<u8>, StoreError> {
    cbor4ii::serde::to_vec(Vec::new(), record).map_err(|error| unreadable(of, name, &error))
}

/// What is counted under this name in [`META`].
pub(crate) fn number(meta: &impl ReadableTable<&'static str, u64>, name: &str) -> Result<u64, StoreError> {
    Ok(meta.get(name)?.map_or(0, |number| number.value()))
}

/// Bytes of a row of this length, with its key.
pub(crate) fn size(key: &str, row: Option<usize>) -> u64 {
    row.map_or(0, |row| (key.len() + row) as u64)
}

fn decode<R: DeserializeOwned>(of: Records, name: &str, bytes: &[u8]) -> Result<R, StoreError> {
    cbor4ii::serde::from_slice(bytes).map_err(|error| unreadable(of, name, &error))
}

fn unreadable(of: Records, name: &str, error: &dyn std::fmt::Display) -> StoreError {
    StoreError::Record {
        table: of.name().to_owned(),
        name: name.into(),
        problem: error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{OpenError, Store};

    #[test]
    fn what_a_later_version_has_written_is_refused_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let later = store.tables().write(|txn| {
            txn.open_table(META)?.insert("format", FORMAT + 1)?;
            Ok(())
        });
        later.unwrap();
        drop(store);
        for _ in 0..2 {
            let refused = Store::open(folder.path()).map(drop);
            assert!(
                matches!(&refused, Err(OpenError::Newer { found, known: FORMAT, .. }) if *found == FORMAT + 1),
                "{refused:?}"
            );
        }
    }
}
