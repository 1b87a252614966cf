use crate::tables::{BUCKETS, META, ORDER, VALUES};
use crate::{Bucket, StoreError};
use bytes::Bytes;
use redb::{ReadableTable, ReadableTableMetadata, Table, WriteTransaction};

type Values<'txn> = Table<'txn, (&'static str, &'static str), (u64, u64, &'static [u8])>;

/// Changes of one bucket within one transaction. The quota is judged at the end, over all of them.
pub(crate) struct Edit<'txn> {
    bucket: &'txn Bucket,
    meta: Table<'txn, &'static str, u64>,
    buckets: Table<'txn, &'static str, (u64, u64)>,
    values: Values<'txn>,
    order: Table<'txn, (&'static str, u64), &'static str>,
    clock: u64,
    /// Bytes and entries, as they were and as they are.
    before: Option<(u64, u64)>,
    now: (u64, u64),
}

impl<'txn> Edit<'txn> {
    pub(crate) fn begin(txn: &'txn WriteTransaction, bucket: &'txn Bucket) -> Result<Self, StoreError> {
        let meta = txn.open_table(META)?;
        let buckets = txn.open_table(BUCKETS)?;
        let clock = meta.get("clock")?.map_or(0, |clock| clock.value());
        let before = buckets.get(bucket.name())?.map(|row| row.value());
        Ok(Self {
            bucket,
            meta,
            buckets,
            values: txn.open_table(VALUES)?,
            order: txn.open_table(ORDER)?,
            clock,
            before,
            now: before.unwrap_or_default(),
        })
    }

    /// Version and value of a key.
    pub(crate) fn get(&self, key: &str) -> Result<Option<(u64, Bytes)>, StoreError> {
        Ok(self.values.get((self.bucket.name(), key))?.map(|row| {
            let (version, _, value) = row.value();
            (version, Bytes::copy_from_slice(value))
        }))
    }

    /// Sets a value and returns its version.
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) -> Result<u64, StoreError> {
        let name = self.bucket.name();
        self.clock += 1;
        let created = match self.forget(key)? {
            Some(created) => created,
            None => {
                self.order.insert((name, self.clock), key)?;
                self.clock
            }
        };
        self.values.insert((name, key), (self.clock, created, value))?;
        self.now.0 += size(key, value);
        self.now.1 += 1;
        Ok(self.clock)
    }

    /// Removes a value; whether there was one.
    pub(crate) fn delete(&mut self, key: &str) -> Result<bool, StoreError> {
        let created = self.forget(key)?;
        if let Some(created) = created {
            self.order.remove((self.bucket.name(), created))?;
        }
        Ok(created.is_some())
    }

    /// Takes a value out of the table and the sums, but not out of the order; returns its version at creation.
    fn forget(&mut self, key: &str) -> Result<Option<u64>, StoreError> {
        let removed = self.values.remove((self.bucket.name(), key))?;
        Ok(removed.map(|row| {
            let (_, created, value) = row.value();
            self.now.0 -= size(key, value);
            self.now.1 -= 1;
            created
        }))
    }

    /// Judges the quota and writes the sums.
    pub(crate) fn end(mut self) -> Result<(), StoreError> {
        let (name, limits) = (self.bucket.name(), self.bucket.limits());
        let (bytes, quota) = (self.now.0, limits.quota(name).0);
        if bytes > quota && bytes > self.before.unwrap_or_default().0 {
            return Err(StoreError::Full {
                bucket: name.into(),
                bytes,
                quota,
            });
        }
        if self.before.is_none() && self.now.1 > 0 && self.buckets.len()? >= u64::from(limits.buckets) {
            return Err(StoreError::Limit {
                field: "buckets",
                value: self.buckets.len()? + 1,
                most: limits.buckets.into(),
            });
        }
        match self.now.1 {
            0 => drop(self.buckets.remove(name)?),
            _ => drop(self.buckets.insert(name, self.now)?),
        }
        self.meta.insert("clock", self.clock)?;
        Ok(())
    }
}

/// What an entry counts towards the quota.
fn size(key: &str, value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}
