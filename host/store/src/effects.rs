//! Which effects of tasks this node's buckets have seen, within one transaction. They are bounded in number and in bytes.

use crate::tables::{EFFECTS, EFFECTS_SWEPT, LAST, META, REMEMBERED, encode, get, number, size};
use crate::{StoreError, StoreLimits};
use karman_tasks::{LimitReached, Seen, UnixMs};
use redb::{ReadableTable, ReadableTableMetadata, Table, WriteTransaction};
use std::ops::Bound;
use std::time::Duration;

/// How many of those that are remembered are looked at for each new one, so that of all that are there few are over.
const LOOKED_AT: usize = 4;

pub(crate) struct Effects<'txn> {
    rows: Table<'txn, &'static str, &'static [u8]>,
    swept: Table<'txn, &'static str, &'static str>,
    meta: Table<'txn, &'static str, u64>,
    bytes: u64,
}

impl<'txn> Effects<'txn> {
    pub(crate) fn open(txn: &'txn WriteTransaction) -> Result<Self, StoreError> {
        let (rows, meta) = (txn.open_table(EFFECTS)?, txn.open_table(META)?);
        Ok(Self {
            bytes: number(&meta, REMEMBERED)?,
            rows,
            swept: txn.open_table(EFFECTS_SWEPT)?,
            meta,
        })
    }

    /// What is known of a key.
    pub(crate) fn seen(&self, key: &str) -> Result<Option<Seen>, StoreError> {
        get(&self.rows, EFFECTS, key)
    }

    /// Looks at the next few of those that are there: one whose time is over is forgotten, and the time of one that was written when
    /// nobody could tell it begins.
    pub(crate) fn sweep(&mut self, wall: Option<UnixMs>, retention: Duration) -> Result<(), StoreError> {
        let last = self.swept.get(LAST)?.map(|key| key.value().to_owned());
        let next = following(&self.rows, &last.unwrap_or_default())?;
        for key in &next {
            let seen = match self.seen(key) {
                Ok(Some(seen)) => seen,
                // It is told where somebody asks for it, and holds up nobody else.
                Ok(None) | Err(StoreError::Record { .. }) => continue,
                Err(error) => return Err(error),
            };
            if seen.may_be_forgotten(wall, retention) {
                let gone = self.rows.remove(key.as_str())?.map(|row| row.value().len());
                self.count(key, gone, None)?;
            } else if seen.at.is_none() && wall.is_some() {
                self.put(key, &encode(EFFECTS, key, &Seen { at: wall, ..seen })?)?;
            }
        }
        if let Some(key) = next.last() {
            self.swept.insert(LAST, key.as_str())?;
        }
        Ok(())
    }

    /// Remembers this of a key, in the place of what there was.
    ///
    /// # Errors
    /// What the disk refused. That there is no room for it is the inner error, and nothing is remembered then.
    pub(crate) fn remember(
        &mut self,
        key: &str,
        seen: &Seen,
        limits: &StoreLimits,
    ) -> Result<Result<(), LimitReached>, StoreError> {
        let row = encode(EFFECTS, key, seen)?;
        let before = self.rows.get(key)?.map(|row| row.value().len());
        let (most, most_bytes) = (u64::from(limits.effects), limits.effects_bytes.0);
        let reached = |name: &str, most| {
            let name = name.into();
            Ok(Err(LimitReached { name, most }))
        };
        if before.is_none() && self.rows.len()? >= most {
            return reached("effects", most);
        }
        let grows = before.is_none_or(|before| before < row.len());
        let bytes = self.bytes.saturating_sub(size(key, before)) + size(key, Some(row.len()));
        if grows && bytes > most_bytes {
            return reached("effects-bytes", most_bytes);
        }
        self.put(key, &row)?;
        Ok(Ok(()))
    }

    fn put(&mut self, key: &str, row: &[u8]) -> Result<(), StoreError> {
        let before = self.rows.insert(key, row)?.map(|row| row.value().len());
        self.count(key, before, Some(row.len()))
    }

    /// Counts a row of this length in the place of one of that.
    fn count(&mut self, key: &str, before: Option<usize>, now: Option<usize>) -> Result<(), StoreError> {
        self.bytes = self.bytes.saturating_sub(size(key, before)) + size(key, now);
        self.meta.insert(REMEMBERED, self.bytes)?;
        Ok(())
    }
}

/// The keys of the next few rows, round and round.
fn following(
    rows: &impl ReadableTable<&'static str, &'static [u8]>,
    last: &str,
) -> Result<Vec<String>, StoreError> {
    let after = rows.range::<&str>((Bound::Excluded(last), Bound::Unbounded))?;
    let rows = after.chain(rows.range::<&str>(..=last)?).take(LOOKED_AT);
    rows.map(|row| Ok(row?.0.value().to_owned())).collect()
}
