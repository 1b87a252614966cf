//! One call on one pair of byte streams, whatever carries them.
//!
//! The caller writes a [`CallHead`] and the body; the other side answers with a head and the body of the response. Before that it says
//! that the first bytes of the body have come, where it is asked to. The caller keeps its half open until it has the answer: when it
//! closes or breaks before, the call is cancelled, and so is the guest that serves it.

use crate::body::{Body, Takes};
use crate::trace::{self, Carried};
use crate::wire::{Frame, WireError, read_bytes, read_bytes_telling};
use bytes::Bytes;
use futures::future::{Either, select};
use karman_types::{Digest, Metadata, NodeId, TaskError, TaskId, TaskRequest, TaskResponse};
use serde::{Deserialize, Serialize};
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

/// The head of a call or an answer: names and metadata, no body.
const HEAD: u32 = 64 << 10;
const CALL: Frame = Frame::new("call", HEAD);
pub(crate) const ANSWER: Frame = Frame::new("answer", HEAD);
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
    /// Remove the plugin of this name.
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
    /// Fetch the model of this digest where it is not there, and tell how long each of its layers takes. The body is the
    /// ticket that allows to read it.
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

#[derive(Deserialize, Serialize)]
struct Call {
    head: CallHead,
    body: u64,
    /// The trace that it is part of, if it is part of one.
    #[serde(default, skip_serializing_if = "Carried::is_empty")]
    trace: Carried,
    /// After so many bytes of the body the other side is to say that they are here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tells_after: Option<u64>,
}

/// What a caller waits for.
pub(crate) struct Expects {
    /// The longest answer that it takes, in bytes.
    pub(crate) most: u64,
    /// Told when the first [`BEGINNING`] bytes of the body are there, by nodes that say so.
    pub(crate) begun: Option<oneshot::Sender<()>>,
}

/// How many bytes of a body show that the rest is coming. Two packets.
pub const BEGINNING: u64 = 2 << 10;

#[derive(Deserialize, Serialize)]
enum Answer {
    Done {
        content_type: String,
        metadata: Metadata,
        report: RemoteReport,
        body: u64,
    },
    Failed(TaskError),
    /// The bytes are here that it was to tell of; the answer follows.
    Begun,
}

/// Asks, and waits for the answer. Dropping the future cancels the call on the other side.
///
/// # Errors
/// What the other side answers; `unavailable` when the stream breaks first.
pub(crate) async fn ask(
    stream: (impl AsyncRead + Unpin, impl Takes),
    head: CallHead,
    body: Body,
    expects: &mut Expects,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    exchange(stream, head, body, expects)
        .await
        .unwrap_or_else(|error| Err(broken(error)))
}

pub(crate) async fn exchange(
    (mut input, mut output): (impl AsyncRead + Unpin, impl Takes),
    head: CallHead,
    body: Body,
    expects: &mut Expects,
) -> Result<Result<(TaskResponse, RemoteReport), TaskError>, WireError> {
    let call = Call {
        head,
        body: body.len() as u64,
        trace: trace::along(&Span::current()),
        tells_after: expects.begun.is_some().then_some(BEGINNING),
    };
    // The answer may come before the body is through: a refusal does not wait for what it refuses. When writing fails, so
    // does reading, unless the answer is there already.
    let writing = async {
        let sent = CALL.send(&mut output, &call, &body, call.tells_after).await;
        if let Err(error @ (WireError::TooLong { .. } | WireError::Malformed { .. })) = sent {
            return error;
        }
        pending().await
    };
    let reading = receive(&mut input, expects);
    let outcome = match select(pin!(reading), pin!(writing)).await {
        Either::Left((outcome, _)) => outcome,
        Either::Right((error, _)) => Err(error),
    };
    let _ = output.shutdown().await;
    outcome
}

async fn receive(
    stream: &mut (impl AsyncRead + Unpin),
    expects: &mut Expects,
) -> Result<Result<(TaskResponse, RemoteReport), TaskError>, WireError> {
    let mut answer = ANSWER.read::<Answer>(stream).await?;
    if let Answer::Begun = answer
        && let Some(begun) = expects.begun.take()
    {
        // Who asked may wait no more for that.
        let _ = begun.send(());
        answer = ANSWER.read(stream).await?;
    }
    match answer {
        Answer::Begun => Err(ANSWER.malformed("it tells of a beginning that nobody waits for")),
        Answer::Failed(error) => Ok(Err(error)),
        Answer::Done { body, .. } if body > expects.most => Err(WireError::TooLong {
            frame: ANSWER.name,
            length: body,
            limit: expects.most,
        }),
        Answer::Done {
            content_type,
            metadata,
            report,
            body,
        } => {
            let response = TaskResponse {
                content_type,
                metadata,
                body: ANSWER.body(stream, body).await?,
            };
            Ok(Ok((response, report)))
        }
    }
}

pub(crate) fn broken(error: WireError) -> TaskError {
    let says = error.to_string();
    match error {
        WireError::Broken { .. } => TaskError::unavailable(format!("the link broke: {says}"))
            .with_hint("`karman mesh ping NODE` shows the paths to it"),
        WireError::TooLong { frame, .. } => TaskError::limit(says).with_field(frame),
        WireError::Malformed { frame, .. } => TaskError::invalid(says).with_field(frame),
    }
}

/// Reads a call, lets `serve` answer it, and writes the answer. A caller that goes away ends `serve`. The body is read once
/// it `may` be served and there is `room` for it, which is held until the answer is written.
///
/// # Errors
/// When the stream breaks or what comes in is no call.
pub(crate) async fn answer<F, Room>(
    (mut input, mut output): (impl AsyncRead + Unpin, impl Takes),
    may: impl FnOnce(&CallHead, u64) -> Result<(), TaskError>,
    room: impl AsyncFnOnce(u64) -> Room,
    serve: impl FnOnce(CallHead, TaskRequest) -> F,
) -> Result<(), WireError>
where
    F: Future<Output = Result<(TaskResponse, RemoteReport), TaskError>>,
{
    let Call {
        mut head,
        body,
        trace: carried,
        tells_after,
    } = CALL.read(&mut input).await?;
    let outcome = match may(&head, body) {
        Err(refused) => Err(refused),
        Ok(()) => {
            let _room = room(body).await;
            let begun = async || {
                let begun = ANSWER.encode(&Answer::Begun).unwrap_or_default();
                output.write_all(&begun).await?;
                output.flush().await
            };
            let body = read_bytes_telling(&mut input, body, tells_after, begun).await;
            let request = TaskRequest {
                body: body.map_err(|error| CALL.broken(error))?,
                content_type: std::mem::take(&mut head.content_type),
                metadata: std::mem::take(&mut head.metadata),
            };
            let span = trace::answering(&head, carried);
            let mut serving = pin!(serve(head, request).instrument(span));
            let mut one = [0];
            let gone = pin!(input.read(&mut one));
            match select(&mut serving, gone).await {
                Either::Left((outcome, _)) => outcome,
                // Nothing may follow the body: whatever this is, the caller does not wait any more.
                Either::Right(_) => return Ok(()),
            }
        }
    };
    let (answer, body) = match outcome {
        Ok((response, report)) => (
            Answer::Done {
                content_type: response.content_type,
                metadata: response.metadata,
                report,
                body: response.body.len() as u64,
            },
            response.body,
        ),
        Err(error) => (Answer::Failed(error), Bytes::new()),
    };
    ANSWER.send(&mut output, &answer, &body.into(), None).await?;
    let _ = output.shutdown().await;
    Ok(())
}

impl Frame {
    async fn send<T: Serialize>(
        self,
        stream: &mut impl Takes,
        head: &T,
        body: &Body,
        first: Option<u64>,
    ) -> Result<(), WireError> {
        let mut bytes = self.encode(head)?;
        let written = async {
            if let Some(first) = first {
                // These do not wait for the rest.
                let (begins, rest) = body.cut_at(first as usize);
                begins.iter().for_each(|piece| bytes.extend_from_slice(piece));
                stream.write_all(&bytes).await?;
                for piece in rest {
                    stream.take(piece).await?;
                }
            // One write for a small body: a second one would be a second packet.
            } else if body.len() <= HEAD as usize {
                body.pieces()
                    .iter()
                    .for_each(|piece| bytes.extend_from_slice(piece));
                stream.write_all(&bytes).await?;
            } else {
                stream.write_all(&bytes).await?;
                for piece in body.pieces() {
                    stream.take(piece.clone()).await?;
                }
            }
            stream.flush().await
        };
        written.await.map_err(|error| self.broken(error))
    }

    async fn body(self, stream: &mut (impl AsyncRead + Unpin), length: u64) -> Result<Bytes, WireError> {
        read_bytes(stream, length)
            .await
            .map_err(|error| self.broken(error))
    }
}

/// The first bytes of a call whose body is said to be this long.
#[cfg(test)]
pub(crate) fn promise(head: &CallHead, body: u64) -> Vec<u8> {
    let call = Call {
        head: head.clone(),
        body,
        trace: Carried::new(),
        tells_after: None,
    };
    CALL.encode(&call).unwrap_or_default()
}

#[cfg(test)]
pub(crate) mod tests;
