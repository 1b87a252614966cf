use crate::home::Home;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::keyvalue::{Buckets, KeyPage};
use karman_store::{Bucket, Store, StoreError};
use karman_types::TaskError;
use std::sync::Arc;

/// Keys in one page of a listing.
const PAGE: usize = 256;

/// Buckets in the node's store: what was set survives a power cut.
pub(crate) struct StoreBuckets(pub(crate) Home);

impl StoreBuckets {
    fn with<T: Send + 'static>(
        &self,
        bucket: Arc<str>,
        step: impl FnOnce(Bucket) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'static, Result<T, TaskError>> {
        let step = move |store: &Store| store.bucket(&bucket).and_then(step);
        self.0.with(step).boxed()
    }
}

impl Buckets for StoreBuckets {
    fn get(&self, bucket: Arc<str>, key: String) -> BoxFuture<'static, Result<Option<Bytes>, TaskError>> {
        self.with(bucket, move |bucket| {
            Ok(bucket.get(&key)?.map(|found| found.value))
        })
    }

    fn get_many(
        &self,
        bucket: Arc<str>,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Bytes>>, TaskError>> {
        self.with(bucket, move |bucket| {
            let found = bucket.get_many(&keys)?.into_iter();
            Ok(found.map(|found| found.map(|found| found.value)).collect())
        })
    }

    fn set(
        &self,
        bucket: Arc<str>,
        pairs: Vec<(String, Bytes)>,
    ) -> BoxFuture<'static, Result<(), TaskError>> {
        self.with(bucket, move |bucket| bucket.set_many(&pairs))
    }

    fn delete(&self, bucket: Arc<str>, keys: Vec<String>) -> BoxFuture<'static, Result<(), TaskError>> {
        self.with(bucket, move |bucket| bucket.delete_many(&keys))
    }

    fn keys(&self, bucket: Arc<str>, cursor: Option<u64>) -> BoxFuture<'static, Result<KeyPage, TaskError>> {
        self.with(bucket, move |bucket| {
            bucket.keys(cursor, PAGE).map(|page| (page.keys, page.next))
        })
    }

    fn increment(
        &self,
        bucket: Arc<str>,
        key: String,
        delta: u64,
    ) -> BoxFuture<'static, Result<u64, TaskError>> {
        self.with(bucket, move |bucket| bucket.increment(&key, delta))
    }
}
