//! What is in the bundles of an attempt: what shall run, and what came of it.

use bytes::Bytes;
use karman_tasks::{Answer, Call};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Keys that one answer may ask for.
pub(super) const MOST_NEEDED: usize = 1_000;

/// An attempt that goes to a node out of reach.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Order {
    /// What shall run.
    pub(super) call: Call,
    /// What it has asked for of the buckets of its home.
    pub(super) values: Vec<Value>,
}

/// What a bucket has under a key.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(crate) struct Value {
    pub(crate) bucket: Arc<str>,
    pub(crate) key: Arc<str>,
    /// 0 where there is nothing.
    pub(crate) version: u64,
    pub(crate) value: Option<Bytes>,
}

/// What came of it.
#[derive(Debug, Deserialize, Serialize)]
pub(super) enum Reply {
    /// It has answered. What it would write is applied at the home, once.
    Done(Box<Answer>),
    /// It has not.
    Failed(TaskError),
    /// It has read these keys of these buckets, which were not sent along.
    Needs(Vec<(Arc<str>, Arc<str>)>),
}
