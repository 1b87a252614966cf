//! What one node asks of another, and what it reports of having done it: the heads of calls.

use karman_types::{Digest, Metadata, NodeId, TaskId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// The operation that is asked of the other node.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub enum Ask {
    /// Run this task on the body.
    Call,
    /// Run this attempt at an accepted task on the body; the body of the response is an answer with the batch for its buckets.
    Attempt {
        /// Which run of the owner started it.
        run: u64,
        /// The ownership.
        epoch: u64,
        /// The node whose buckets it works on; nothing where it is the node that asks.
        home: Option<NodeId>,
    },
    /// Tell the value of the key in the body, in the bucket of this name, and its version.
    ReadBucket,
    /// Apply the batch in the body, of an attempt at a kept task, to the buckets of this node.
    Commit,
    /// Take over the accepted task in the body.
    TakeOver,
    /// What keepers ask each other, and others ask them: see the body.
    Keep {
        /// Whether it is all that is kept, which may be long.
        snapshot: bool,
    },
    /// Fetch the component of this digest and take it as a plugin of this name. The body is the ticket that allows to read it.
    Deploy {
        /// Whether an older version may replace a newer one.
        downgrade: bool,
        /// The component.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// Remove the plugin of this name, or the model, where that begins with `model/`.
    Undeploy,
    /// Fetch the model of this digest and run it under this name, which begins with `model/`. The body has what is known of it, and
    /// the ticket that allows to read it.
    AddModel {
        /// The model's file.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// Fetch the bundle of this digest, and see to it that it gets on.
    TakeBundle {
        /// The bundle.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// Fetch the model of this digest where it is not there, and make ready the stage of it that the body names. The body also
    /// has the ticket that allows to read the model.
    PrepareStage {
        /// The model's file.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// Run the next stage of a model on the tensors in the body, and see to it that those after it run.
    RunStage,
    /// Run the model of this name on the tensors in the body, the way that this node runs it.
    RunModel,
    /// Tell what the model of this name takes and gives.
    DescribeModel,
    /// Tell what a plan has to know: how long each layer of the model of this digest takes, which is fetched where it is not there,
    /// or how the links are. The body says which, and has the ticket that allows to read the model.
    ProfileModel {
        /// The model's file.
        digest: Digest,
        /// Its length in bytes.
        size: u64,
    },
    /// Have the client of this name carry out the order in the body, for a federated run of the node that asks.
    Learn,
    /// Take the letter in the body, in a round of this name whose updates go from node to node.
    Swarm,
    /// Take the body and forget it: how long that takes tells how fast the link is.
    Measure,
    /// Answer with so many bytes: how long that takes tells how fast the link back is.
    MeasureBack {
        /// How many, 1 MiB at most.
        bytes: u64,
    },
    /// Send groups of a blob with the hashes that prove them. The body is the ticket that allows to read it.
    ReadBlob {
        /// The blob.
        digest: Digest,
        /// Its length in bytes, as the one that asks was told.
        size: u64,
        /// The first group.
        first: u64,
        /// How many.
        count: u64,
    },
}

impl Ask {
    /// Whether work waits for it that is under way, and it for none: it does not wait until that is done.
    pub(crate) const fn is_waited_for(&self) -> bool {
        matches!(self, Self::Keep { .. } | Self::Commit | Self::ReadBucket)
    }
}

/// The header of a call, sent before its body.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CallHead {
    /// What is to be done.
    pub ask: Ask,
    /// The task or plugin that it is done with.
    pub name: String,
    /// The task that this call is an attempt of.
    pub task: TaskId,
    /// 1 at the first attempt.
    pub attempt: u32,
    /// Equal for calls that ask for the same effect.
    pub idempotency_key: Option<Arc<str>>,
    /// Time left in milliseconds when the head was written; clocks are not compared.
    pub within_ms: Option<u64>,
    /// The tasks that led here, outermost first.
    pub chain: Vec<Arc<str>>,
    /// Media type of the body.
    pub content_type: String,
    /// Free-form header.
    pub metadata: Metadata,
}

impl CallHead {
    /// The head of a first attempt, without deadline, chain or metadata.
    pub fn new(ask: Ask, name: impl Into<String>, task: TaskId) -> Self {
        Self {
            ask,
            name: name.into(),
            task,
            attempt: 1,
            idempotency_key: None,
            within_ms: None,
            chain: Vec::new(),
            content_type: String::new(),
            metadata: Vec::new(),
        }
    }

    /// The time left.
    pub fn within(&self) -> Option<Duration> {
        self.within_ms.map(Duration::from_millis)
    }
}

/// A report on a call by the node that ran it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct RemoteReport {
    /// Microseconds from acceptance to end, there.
    pub took_us: u64,
    /// The most bytes of linear memory in use.
    pub memory_peak: u64,
    /// The model and back-end that it used first, if any.
    pub ran_on: Option<String>,
}
