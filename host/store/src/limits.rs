use crate::StoreError;
use karman_types::ByteSize;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// How much the store takes, each a key of `[store]` in `node.toml`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StoreLimits {
    /// Bytes of one key of a bucket. Default 1 KiB.
    pub key: ByteSize,
    /// Bytes of one value of a bucket. Default 16 MiB.
    pub value: ByteSize,
    /// Bytes of keys and values in one bucket. Default 64 MiB.
    pub bucket: ByteSize,
    /// Bytes of keys and values in the buckets named here, instead of `bucket`.
    pub quotas: BTreeMap<String, ByteSize>,
    /// Buckets. Default 1024.
    pub buckets: u32,
    /// Keys of one batch, and of one page of keys. Default 1000.
    pub batch: u32,
    /// Bytes of values that one batch reads. Default 64 MiB.
    pub batch_bytes: ByteSize,
    /// Bytes of one secret. Default 64 KiB.
    pub secret: ByteSize,
    /// Bytes of one component or model. Default 2 GiB.
    pub blob: ByteSize,
    /// Bytes of all blobs that are being received. Default 4 GiB.
    pub partial: ByteSize,
    /// Bytes of all models of other nodes, of which this one runs parts. Default 4 GiB.
    pub visiting: ByteSize,
    /// Bytes of all bundles that wait here. Default 1 GiB.
    pub bundles: ByteSize,
    /// Of these the bytes that one member has brought. Default 512 MiB.
    pub bundles_per_member: ByteSize,
    /// Bundles that wait here, 10,000 at most, of those that one member has brought. Default 5,000.
    pub waiting_per_member: u32,
    /// Bundles that have left or ended and are remembered, so that none is taken twice; beyond that those of others are forgotten
    /// first, and of these those of the member that brought the most. Default 10,000.
    pub ended_bundles: u32,
    /// Orders of one member that came by bundle, were done here and are remembered until nobody may do them any more, so that none is done
    /// twice, whatever bundle it comes in. Beyond that more of this member are refused. Default 100,000.
    pub orders_per_member: u32,
    /// Effects of tasks that are remembered, each with the answer of its task, so that none is applied twice. Beyond that tasks wait
    /// with what they would write, until some are old enough (`key-retention` of `[tasks]`). Default 1,000,000.
    pub effects: u32,
    /// Bytes of all of these. Beyond that tasks wait as well. Default 1 GiB.
    pub effects_bytes: ByteSize,
    /// Bytes of how far local runs of workflows have got, also of those that have ended and whose results wait to be fetched. No run
    /// begins when half is taken, and none goes on when it would take more than three quarters with the others: it fails, and the rest
    /// is for undoing what it did. What is known of those that have ended goes first. Default 256 MiB.
    pub progress_bytes: ByteSize,
    /// Memory for pages of the database. Default 16 MiB.
    pub cache: ByteSize,
}

impl Default for StoreLimits {
    fn default() -> Self {
        Self {
            key: ByteSize::kib(1),
            value: ByteSize::mib(16),
            bucket: ByteSize::mib(64),
            quotas: BTreeMap::new(),
            buckets: 1024,
            batch: 1000,
            batch_bytes: ByteSize::mib(64),
            secret: ByteSize::kib(64),
            blob: ByteSize::gib(2),
            partial: ByteSize::gib(4),
            visiting: ByteSize::gib(4),
            bundles: ByteSize::gib(1),
            bundles_per_member: ByteSize::mib(512),
            waiting_per_member: 5_000,
            ended_bundles: 10_000,
            orders_per_member: 100_000,
            effects: 1_000_000,
            effects_bytes: ByteSize::gib(1),
            progress_bytes: ByteSize::mib(256),
            cache: ByteSize::mib(16),
        }
    }
}

impl StoreLimits {
    /// Bytes of keys and values that this bucket may hold.
    pub fn quota(&self, bucket: &str) -> ByteSize {
        self.quotas.get(bucket).copied().unwrap_or(self.bucket)
    }

    /// Whether one batch may have so many keys.
    ///
    /// # Errors
    /// [`StoreError::Limit`] where it may not.
    pub fn check_batch(&self, keys: usize) -> Result<(), StoreError> {
        at_most("batch", keys, self.batch.into())
    }

    /// Whether the values that one batch reads may have so many bytes.
    ///
    /// # Errors
    /// [`StoreError::Limit`] where they may not.
    pub fn check_batch_bytes(&self, bytes: usize) -> Result<(), StoreError> {
        at_most("batch-bytes", bytes, self.batch_bytes.0)
    }
}

/// `value` of `field` is at most `most`.
pub(crate) fn at_most(field: &'static str, value: usize, most: u64) -> Result<(), StoreError> {
    match value as u64 {
        value if value > most => Err(StoreError::Limit { field, value, most }),
        _ => Ok(()),
    }
}

/// Names are for people and for the patterns of grants, in which `*` has a meaning.
pub(crate) fn name(field: &'static str, text: &str, most: usize) -> Result<(), StoreError> {
    let fine = !text.is_empty()
        && text.len() <= most
        && !text.contains(|c: char| c == '*' || c.is_whitespace() || c.is_control());
    match fine {
        true => Ok(()),
        false => Err(StoreError::Name {
            field,
            // A hostile name can be megabytes long.
            text: text.chars().take(64).collect(),
            most,
        }),
    }
}
