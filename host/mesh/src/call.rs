//! One call on one pair of byte streams, whatever carries them.
//!
//! The caller writes a [`CallHead`] and the body; the other side answers with a head and the body of the response. Before that it says
//! that the first bytes of the body have come, where it is asked to. The caller keeps its half open until it has the answer: when it
//! closes or breaks before, the call is cancelled, and so is the guest that serves it.

use crate::ask::{CallHead, RemoteReport};
use crate::body::{Body, Takes};
use crate::trace::{self, Carried};
use crate::wire::{Frame, WireError, read_bytes, read_bytes_telling};
use bytes::Bytes;
use futures::future::{Either, select};
use karman_types::{Metadata, TaskError, TaskRequest, TaskResponse};
use serde::{Deserialize, Serialize};
use std::future::pending;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;
use tracing::{Instrument, Span};

/// The head of a call or an answer: names and metadata, no body.
const HEAD: u32 = 64 << 10;
const CALL: Frame = Frame::new("call", HEAD);
pub(crate) const ANSWER: Frame = Frame::new("answer", HEAD);

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
