use crate::edit::Edit;
use crate::limits::at_most;
use crate::tables::{BUCKETS, ORDER, VALUES};
use crate::{Store, StoreError, StoreLimits};
use bytes::Bytes;
use redb::ReadableTable;
use std::sync::Arc;

/// Values by key, each with a version, as `wasi:keyvalue` sees them. Cheap to clone. Keys are any text up to
/// [`StoreLimits::key`] bytes; a write is one fsynced transaction, however many keys it touches.
#[derive(Clone, Debug)]
pub struct Bucket {
    store: Store,
    name: Arc<str>,
}

/// A value and the version that this write of it got.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Versioned {
    /// The value.
    pub value: Bytes,
    /// At least 1, greater with each write, and never the same twice in one store, not even after a deletion.
    pub version: u64,
}

/// Some keys of a bucket, in the order of their creation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct KeyPage {
    /// The keys.
    pub keys: Vec<String>,
    /// Where to go on; nothing after the last page.
    pub next: Option<u64>,
}

/// How full a bucket is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Bytes of keys and values.
    pub bytes: u64,
    /// Keys.
    pub entries: u64,
    /// Bytes that it may hold.
    pub quota: u64,
}

impl Bucket {
    pub(crate) fn new(store: Store, name: &str) -> Self {
        Self {
            store,
            name: name.into(),
        }
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when the key is too long; what the disk refused.
    pub fn get(&self, key: &str) -> Result<Option<Versioned>, StoreError> {
        Ok(self.get_many(&[key])?.pop().flatten())
    }

    /// The values of these keys, all as of one moment.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when a key is too long, or there are too many keys or bytes of values.
    pub fn get_many<K: AsRef<str>>(&self, keys: &[K]) -> Result<Vec<Option<Versioned>>, StoreError> {
        self.limits().check_batch(keys.len())?;
        let values = self.store.tables().read()?.open_table(VALUES)?;
        let mut bytes = 0;
        let mut found = Vec::with_capacity(keys.len());
        for key in keys {
            self.check_key(key.as_ref())?;
            let row = values.get((self.name(), key.as_ref()))?;
            if let (Some(row), 2..) = (&row, keys.len()) {
                bytes += row.value().2.len();
                self.limits().check_batch_bytes(bytes)?;
            }
            found.push(row.map(|row| versioned(row.value())));
        }
        Ok(found)
    }

    /// Whether a key has a value.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when the key is too long.
    pub fn exists(&self, key: &str) -> Result<bool, StoreError> {
        self.check_key(key)?;
        let values = self.store.tables().read()?.open_table(VALUES)?;
        Ok(values.get((self.name(), key))?.is_some())
    }

    /// Sets a value and returns its version.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when key or value is too long, [`StoreError::Full`] when the bucket has no room.
    pub fn set(&self, key: &str, value: &[u8]) -> Result<u64, StoreError> {
        self.check_entry(key, value)?;
        self.edit(|edit| edit.put(key, value))
    }

    /// Sets these values, all or none.
    ///
    /// # Errors
    /// Those of [`Bucket::set`], and [`StoreError::Limit`] when there are too many.
    pub fn set_many<K: AsRef<str>, V: AsRef<[u8]>>(&self, entries: &[(K, V)]) -> Result<(), StoreError> {
        self.limits().check_batch(entries.len())?;
        for (key, value) in entries {
            self.check_entry(key.as_ref(), value.as_ref())?;
        }
        self.edit(|edit| {
            entries
                .iter()
                .try_for_each(|(key, value)| edit.put(key.as_ref(), value.as_ref()).map(drop))
        })
    }

    /// Removes a value; whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when the key is too long.
    pub fn delete(&self, key: &str) -> Result<bool, StoreError> {
        self.check_key(key)?;
        self.edit(|edit| edit.delete(key))
    }

    /// Removes these values, all or none; keys without one are skipped.
    ///
    /// # Errors
    /// [`StoreError::Limit`] when a key is too long or there are too many.
    pub fn delete_many<K: AsRef<str>>(&self, keys: &[K]) -> Result<(), StoreError> {
        self.limits().check_batch(keys.len())?;
        for key in keys {
            self.check_key(key.as_ref())?;
        }
        self.edit(|edit| {
            keys.iter()
                .try_for_each(|key| edit.delete(key.as_ref()).map(drop))
        })
    }

    /// Adds to a number and returns the sum, as `wasi:keyvalue/atomics` words it: a key without a value counts as 0.
    /// The value is the number in decimal digits, so that a plugin which reads it with `get`, and a person, sees what
    /// Redis and the reference implementation would show.
    ///
    /// # Errors
    /// [`StoreError::Increment`] when the value is not such a number or the sum is 2^64 or more, and those of
    /// [`Bucket::set`].
    pub fn increment(&self, key: &str, delta: u64) -> Result<u64, StoreError> {
        self.check_key(key)?;
        self.edit(|edit| {
            let before = edit.get(key)?;
            let before = before.as_ref().map(|(_, value)| &**value);
            let sum = incremented(self.name(), key, before, delta)?;
            edit.put(key, sum.to_string().as_bytes())?;
            Ok(sum)
        })
    }

    /// At most `most` keys (and at most [`StoreLimits::batch`]) in the order of their creation, after `cursor`, which
    /// is [`KeyPage::next`] of the page before. A key that is there throughout a listing is in it exactly once, whatever
    /// else comes and goes.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn keys(&self, cursor: Option<u64>, most: usize) -> Result<KeyPage, StoreError> {
        let most = most.clamp(1, self.limits().batch.max(1) as usize);
        let order = self.store.tables().read()?.open_table(ORDER)?;
        let after = cursor.map_or(0, |last| last.saturating_add(1));
        let mut rows = order.range((self.name(), after)..=(self.name(), u64::MAX))?;
        let mut page = KeyPage {
            keys: Vec::new(),
            next: None,
        };
        let mut last = 0;
        for row in rows.by_ref().take(most) {
            let (place, key) = row?;
            last = place.value().1;
            page.keys.push(key.value().to_owned());
        }
        page.next = rows.next().is_some().then_some(last);
        Ok(page)
    }

    /// How full it is.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn usage(&self) -> Result<Usage, StoreError> {
        let buckets = self.store.tables().read()?.open_table(BUCKETS)?;
        let (bytes, entries) = buckets
            .get(self.name())?
            .map(|row| row.value())
            .unwrap_or_default();
        Ok(Usage {
            bytes,
            entries,
            quota: self.limits().quota(self.name()).0,
        })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn limits(&self) -> &StoreLimits {
        self.store.limits()
    }

    fn edit<T>(&self, change: impl FnOnce(&mut Edit<'_>) -> Result<T, StoreError>) -> Result<T, StoreError> {
        self.store.tables().write(|txn| {
            let mut edit = Edit::begin(txn, self)?;
            let result = change(&mut edit)?;
            edit.end()?;
            Ok(result)
        })
    }

    fn check_key(&self, key: &str) -> Result<(), StoreError> {
        at_most("key", key.len(), self.limits().key.0)
    }

    pub(crate) fn check_entry(&self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        self.check_key(key)?;
        at_most("value", value.len(), self.limits().value.0)
    }
}

impl Store {
    /// The buckets that hold something, with their use.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn buckets(&self) -> Result<Vec<(String, Usage)>, StoreError> {
        let buckets = self.tables().read()?.open_table(BUCKETS)?;
        let rows = buckets.iter()?.map(|row| {
            let (name, row) = row?;
            let ((bytes, entries), quota) = (row.value(), self.limits().quota(name.value()).0);
            Ok((
                name.value().to_owned(),
                Usage {
                    bytes,
                    entries,
                    quota,
                },
            ))
        });
        rows.collect()
    }
}

/// What [`Bucket::increment`] makes of a value.
///
/// # Errors
/// [`StoreError::Increment`] when the value is no number, or the sum is 2^64 or more.
pub fn incremented(bucket: &str, key: &str, before: Option<&[u8]>, delta: u64) -> Result<u64, StoreError> {
    let error = |problem| StoreError::Increment {
        bucket: bucket.into(),
        key: key.into(),
        problem,
    };
    let number: u64 = match before {
        None => 0,
        Some(value) => std::str::from_utf8(value)
            .ok()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| error("is not a number"))?,
    };
    delta
        .checked_add(number)
        .ok_or_else(|| error("would become too great a number"))
}

fn versioned((version, _, value): (u64, u64, &[u8])) -> Versioned {
    Versioned {
        value: Bytes::copy_from_slice(value),
        version,
    }
}
