//! `wasi:keyvalue` (0.2.0-draft): buckets of the node, each with the grant `kv:BUCKET`.

use super::bindings::host::wasi::keyvalue::{atomics, batch, store};
use crate::host::Host;
use bytes::Bytes;
use futures::future::BoxFuture;
use karman_types::{ErrorKind, Grant, TaskError};
use std::sync::Arc;
use store::{Error, KeyResponse};
use wasmtime::component::Resource;

/// A page of keys, and the cursor of the next page if there is one.
pub type KeyPage = (Vec<String>, Option<u64>);

/// Where buckets are kept. Every method answers a future, so that a call that is cancelled stops waiting.
pub trait Buckets: Send + Sync {
    /// The value of a key.
    fn get(&self, bucket: Arc<str>, key: String) -> BoxFuture<'static, Result<Option<Bytes>, TaskError>>;
    /// The values of these keys in their order.
    fn get_many(
        &self,
        bucket: Arc<str>,
        keys: Vec<String>,
    ) -> BoxFuture<'static, Result<Vec<Option<Bytes>>, TaskError>>;
    /// Sets keys, all or none.
    fn set(&self, bucket: Arc<str>, pairs: Vec<(String, Bytes)>)
    -> BoxFuture<'static, Result<(), TaskError>>;
    /// Deletes keys, all or none; a key that is not there is no error.
    fn delete(&self, bucket: Arc<str>, keys: Vec<String>) -> BoxFuture<'static, Result<(), TaskError>>;
    /// A page of keys in order, and the cursor of the next page if there is one.
    fn keys(&self, bucket: Arc<str>, cursor: Option<u64>) -> BoxFuture<'static, Result<KeyPage, TaskError>>;
    /// Adds to a number and answers the sum.
    fn increment(
        &self,
        bucket: Arc<str>,
        key: String,
        delta: u64,
    ) -> BoxFuture<'static, Result<u64, TaskError>>;
}

/// An open bucket: the grant was checked when it was opened. Where it is kept is asked anew at each use: an instance that stays
/// warm may hold it from one call to the next, and each call may have its own.
pub struct Bucket(Arc<str>);

type Answer<T> = wasmtime::Result<Result<T, Error>>;

fn error(error: TaskError) -> Error {
    match error.kind {
        ErrorKind::Denied => Error::AccessDenied,
        _ => Error::Other(error.message),
    }
}

impl Host {
    fn bucket(&self, bucket: &Resource<Bucket>) -> wasmtime::Result<(Arc<str>, Arc<dyn Buckets>)> {
        let name = self.table.get(bucket)?.0.clone();
        let buckets = self.services.buckets.clone();
        Ok((name, buckets.expect("no bucket opens without them")))
    }
}

impl store::Host for Host {
    async fn open(&mut self, identifier: String) -> Answer<Resource<Bucket>> {
        if !self.plugin.grants.allows(&Grant::KeyValue(identifier.clone())) {
            return Ok(Err(Error::AccessDenied));
        }
        if self.services.buckets.is_none() {
            return Ok(Err(Error::NoSuchStore));
        }
        Ok(Ok(self.table.push(Bucket(identifier.into()))?))
    }
}

impl store::HostBucket for Host {
    async fn get(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<Option<Vec<u8>>> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets
            .get(name, key)
            .await
            .map(|value| value.map(Vec::from))
            .map_err(error))
    }

    async fn set(&mut self, bucket: Resource<Bucket>, key: String, value: Vec<u8>) -> Answer<()> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets.set(name, vec![(key, value.into())]).await.map_err(error))
    }

    async fn delete(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<()> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets.delete(name, vec![key]).await.map_err(error))
    }

    async fn exists(&mut self, bucket: Resource<Bucket>, key: String) -> Answer<bool> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets
            .get(name, key)
            .await
            .map(|value| value.is_some())
            .map_err(error))
    }

    async fn list_keys(&mut self, bucket: Resource<Bucket>, cursor: Option<u64>) -> Answer<KeyResponse> {
        let (name, buckets) = self.bucket(&bucket)?;
        let page = buckets.keys(name, cursor).await;
        Ok(page
            .map(|(keys, cursor)| KeyResponse { keys, cursor })
            .map_err(error))
    }

    async fn drop(&mut self, bucket: Resource<Bucket>) -> wasmtime::Result<()> {
        self.table.delete(bucket)?;
        Ok(())
    }
}

impl atomics::Host for Host {
    async fn increment(&mut self, bucket: Resource<Bucket>, key: String, delta: u64) -> Answer<u64> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets.increment(name, key, delta).await.map_err(error))
    }
}

impl batch::Host for Host {
    async fn get_many(
        &mut self,
        bucket: Resource<Bucket>,
        keys: Vec<String>,
    ) -> Answer<Vec<Option<(String, Vec<u8>)>>> {
        let (name, buckets) = self.bucket(&bucket)?;
        let values = buckets.get_many(name, keys.clone()).await;
        let named = |(key, value): (String, Option<Bytes>)| value.map(|value| (key, value.into()));
        Ok(values
            .map(|values| keys.into_iter().zip(values).map(named).collect())
            .map_err(error))
    }

    async fn set_many(&mut self, bucket: Resource<Bucket>, pairs: Vec<(String, Vec<u8>)>) -> Answer<()> {
        let (name, buckets) = self.bucket(&bucket)?;
        let pairs = pairs
            .into_iter()
            .map(|(key, value)| (key, value.into()))
            .collect();
        Ok(buckets.set(name, pairs).await.map_err(error))
    }

    async fn delete_many(&mut self, bucket: Resource<Bucket>, keys: Vec<String>) -> Answer<()> {
        let (name, buckets) = self.bucket(&bucket)?;
        Ok(buckets.delete(name, keys).await.map_err(error))
    }
}
