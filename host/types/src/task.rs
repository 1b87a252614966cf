use crate::{NodeId, TaskId};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Free-form header of a request or response.
pub type Metadata = Vec<(String, String)>;

/// Calls may nest at most this deep: task A calls task B calls …
pub const MAX_CALL_DEPTH: usize = 16;

/// The input of a task.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TaskRequest {
    /// Media type of the body; empty when the caller did not say.
    pub content_type: String,
    /// Free-form header.
    pub metadata: Metadata,
    /// The input itself.
    pub body: Bytes,
}

impl TaskRequest {
    /// Bytes of all that is not the body.
    pub fn head_bytes(&self) -> usize {
        let metadata = self.metadata.iter().map(|(name, value)| name.len() + value.len());
        self.content_type.len() + metadata.sum::<usize>()
    }
}

/// The output of a task.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct TaskResponse {
    /// Media type of the body.
    pub content_type: String,
    /// Free-form header.
    pub metadata: Metadata,
    /// The output itself.
    pub body: Bytes,
}

impl From<Bytes> for TaskResponse {
    /// An output of no stated type.
    fn from(body: Bytes) -> Self {
        Self {
            body,
            ..Self::default()
        }
    }
}

/// The tier of the continuum that a node belongs to.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Tier {
    /// A board beside the sensor.
    #[default]
    Edge,
    /// A server between the boards and the cloud.
    Fog,
    /// A data centre.
    Cloud,
    /// A satellite.
    Space,
}

impl Tier {
    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Fog => "fog",
            Self::Cloud => "cloud",
            Self::Space => "space",
        }
    }
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Tier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "edge" => Ok(Self::Edge),
            "fog" => Ok(Self::Fog),
            "cloud" => Ok(Self::Cloud),
            "space" => Ok(Self::Space),
            _ => Err(format!("`{text}` is not a tier: edge, fog, cloud or space")),
        }
    }
}

/// The call that a task serves, as the host knows it. The host carries the chain, never the guest.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The task.
    pub task: TaskId,
    /// 1 at the first attempt.
    pub attempt: u32,
    /// Equal for calls that ask for the same effect; the task's id when the caller gave none.
    pub idempotency_key: Option<Arc<str>>,
    /// How long the call may take, when the caller said so; the plugin's own limit binds besides.
    pub within: Option<Duration>,
    /// The node that runs it.
    pub node: NodeId,
    /// Where that node stands.
    pub tier: Tier,
    /// The tasks that led here, outermost first.
    pub chain: Arc<[Arc<str>]>,
}

impl CallContext {
    /// The key under which what this call asks for is done once: what its caller gave, else the task's id.
    pub fn key(&self) -> Cow<'_, str> {
        match &self.idempotency_key {
            Some(key) => Cow::Borrowed(key),
            None => Cow::Owned(self.task.to_string()),
        }
    }
}
