//! Calls between nodes: over the connection that is for them alone, else over the swarm.

use crate::answers::{Answers, WORK_PER_PEER};
use crate::ask::{Ask, CallHead, RemoteReport};
use crate::body::Body;
use crate::call::{self, Expects};
use crate::data::Plane;
use crate::gate::key_of;
use crate::mesh::Mesh;
use crate::peers::Path;
use crate::swarm::Order;
use crate::swarm_stream::{ask_if_taken, take};
use crate::trace;
use futures::StreamExt;
use futures::future::pending;
use karman_types::{ErrorKind, NodeId, TaskError, TaskResponse};
use libp2p::{PeerId, Stream, StreamProtocol};
use libp2p_stream::{IncomingStreams, OpenStreamError};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::split;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio_util::compat::FuturesAsyncReadCompatExt;
use tracing::Instrument;

pub(crate) const CALL: StreamProtocol = StreamProtocol::new("/karman/call/1");
/// How long a node may take to take a stream, or to say what it offers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);
/// Round trips that this is, where they are known and longer: streams to one node are opened one after the other, each in a round trip.
const ROUND_TRIPS: u32 = 6;
/// However long it says that its round trips are.
const LONGEST: Duration = Duration::from_secs(60);
/// How often a stream is opened again that nobody took.
pub(crate) const MOST_TRIES: usize = 5;
/// What a caller takes as an answer where it did not say.
const MOST_ANSWER: u64 = 1 << 30;
/// How much longer than its time left a call may take to say that the time is over.
const GRACE: Duration = Duration::from_millis(250);

impl Mesh {
    pub(crate) async fn stream(&self, id: PeerId, protocol: StreamProtocol) -> Result<Stream, TaskError> {
        self.stream_within(id, protocol, self.patience(&id)).await
    }

    /// How long this node may take to take a stream, or to say what it offers.
    pub(crate) fn patience(&self, id: &PeerId) -> Duration {
        let round_trip = self.0.peers.round_trip(id).unwrap_or_default();
        PATIENCE.max(round_trip.saturating_mul(ROUND_TRIPS).min(LONGEST))
    }

    pub(crate) async fn stream_within(
        &self,
        id: PeerId,
        protocol: StreamProtocol,
        patience: Duration,
    ) -> Result<Stream, TaskError> {
        let mut streams = self.0.streams.clone();
        let opening = async {
            match streams.open_stream(id, protocol.clone()).await {
                // It was asked for while the connection came up: now it is there.
                Err(OpenStreamError::Io(_)) if self.is_connected(&id) => {
                    streams.open_stream(id, protocol).await
                }
                opened => opened,
            }
        };
        match tokio::time::timeout(patience, opening).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(unreachable(id, &error.to_string())),
            Err(_) => Err(unreachable(id, "it does not answer")),
        }
    }

    /// Asks a node to do something. Dropping the future cancels it there.
    ///
    /// # Errors
    /// What the other node answers; `unavailable` when it cannot be reached or the link breaks; `deadline` when the time is
    /// over.
    pub async fn call(
        &self,
        node: PeerId,
        head: CallHead,
        body: impl Into<Body>,
    ) -> Result<(TaskResponse, RemoteReport), TaskError> {
        self.call_for(node, head, body.into(), MOST_ANSWER).await
    }

    /// [`call`](Self::call) that tells when the first [`BEGINNING`](crate::BEGINNING) bytes of the body are there; dropped without a word where the
    /// other node does not say so.
    ///
    /// # Errors
    /// As there.
    pub async fn call_told(
        &self,
        node: PeerId,
        head: CallHead,
        body: impl Into<Body>,
        begun: oneshot::Sender<()>,
    ) -> Result<(TaskResponse, RemoteReport), TaskError> {
        let expects = Expects {
            most: MOST_ANSWER,
            begun: Some(begun),
        };
        self.call_expecting(node, head, body.into(), expects).await
    }

    /// [`call`](Self::call) that takes an answer of at most this many bytes.
    ///
    /// # Errors
    /// As there; `limit` when the answer is longer.
    pub async fn call_for(
        &self,
        node: PeerId,
        head: CallHead,
        body: Body,
        most: u64,
    ) -> Result<(TaskResponse, RemoteReport), TaskError> {
        let begun = None;
        self.call_expecting(node, head, body, Expects { most, begun })
            .await
    }

    async fn call_expecting(
        &self,
        node: PeerId,
        head: CallHead,
        body: Body,
        mut expects: Expects,
    ) -> Result<(TaskResponse, RemoteReport), TaskError> {
        let within = head.within();
        let name = head.name.clone();
        self.0.peers.is_calling(&node);
        let works = matches!(head.ask, Ask::Call | Ask::Attempt { .. } | Ask::RunModel);
        let _under_way = works.then(|| self.0.peers.calls(node));
        let span = trace::calling(&head, &node_of(&node).short());
        let asked = async {
            let _place = match head.ask.is_waited_for() {
                true => None,
                false => self.place(node).await,
            };
            let run = self.0.standing.run_of(&node);
            if let Some(plane) = &self.0.plane
                && let Some(stream) = plane.open(&node).await
            {
                return tokio::select! {
                    biased;
                    answer = call::ask(stream, head, body, &mut expects) => answer,
                    () = plane.falls_silent(&node) => Err(self.fallen_silent(node, run).await),
                };
            }
            self.call_over_swarm(node, head, body, expects).await
        }
        .instrument(span);
        let answer = match within {
            None => asked.await,
            Some(within) => tokio::time::timeout(within + GRACE, asked)
                .await
                .unwrap_or_else(|_| {
                    Err(TaskError::deadline(format!(
                        "`{name}` was not answered within {}",
                        karman_types::format_duration(within)
                    )))
                }),
        };
        let failed = |error: &TaskError| matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Deadline);
        if answer.as_ref().is_err_and(failed) {
            self.0.peers.doubts(&node);
        }
        answer
    }

    /// A place among the work that the node is given by this one; none is needed to a node that is not there: all who look for it hear
    /// together that it is gone.
    async fn place(&self, node: PeerId) -> Option<OwnedSemaphorePermit> {
        let places = self.0.works.of(node, || Semaphore::new(WORK_PER_PEER));
        let place = places.acquire_owned().await.ok();
        let calls_directly = || self.0.plane.as_ref().is_some_and(|plane| plane.reaches(&node));
        place.filter(|_| self.is_connected(&node) || calls_directly())
    }

    /// Nothing is heard of a node any more on the connection for calls.
    async fn fallen_silent(&self, node: PeerId, run: Option<u64>) -> TaskError {
        // Where the swarm has the same way to it, its connection is as dead, and the next call would wait on that.
        if self.0.peers.path(&node) == Some(Path::Direct) {
            self.part_from(node, run).await;
        }
        unreachable(node, "it has fallen silent")
    }

    /// Ends the connections with this run of a node. One that was started again has come meanwhile by another, which is alive.
    async fn part_from(&self, node: PeerId, run: Option<u64>) {
        if self.0.standing.run_of(&node) == run {
            let _ = self.0.orders.send(Order::Disconnect(node)).await;
        }
    }

    async fn call_over_swarm(
        &self,
        node: PeerId,
        head: CallHead,
        body: Body,
        mut expects: Expects,
    ) -> Result<(TaskResponse, RemoteReport), TaskError> {
        for _ in 0..MOST_TRIES {
            let stream = split(self.stream_anywhere(node, CALL).await?.compat());
            let run = self.0.standing.run_of(&node);
            // The stream stands, so the other side has let this one in.
            if let Some(plane) = &self.0.plane {
                plane.want(node);
            }
            let asked = ask_if_taken(stream, head.clone(), body.clone(), &mut expects);
            let asked = tokio::select! {
                biased;
                answer = asked => answer?,
                () = self.unheard(node) => {
                    // The next call would wait on the same connection.
                    self.part_from(node, run).await;
                    return Err(unreachable(node, "it has fallen silent"));
                }
            };
            if let Some(answer) = asked {
                return Ok(answer);
            }
        }
        Err(unreachable(node, "it takes no calls"))
    }
}

/// Takes the calls that come over the swarm.
pub(crate) async fn answer_calls(
    answers: Arc<Answers>,
    plane: Option<Arc<Plane>>,
    mut calls: IncomingStreams,
) {
    while let Some((peer, stream)) = calls.next().await {
        // Perhaps it cannot open a connection to this node, but this node one to it.
        if let Some(plane) = &plane {
            plane.want(peer);
        }
        let answers = answers.clone();
        tokio::spawn(async move {
            let (input, mut output) = split(stream.compat());
            if take(&mut output).await.is_ok() {
                // What waits on one that is gone is bounded by its number.
                answers.take(peer, (input, output), pending());
            }
        });
    }
}

/// The node behind a libp2p key. Only Ed25519 keys pass the gate.
pub(crate) fn node_of(id: &PeerId) -> NodeId {
    NodeId::of_key(&key_of(id).unwrap_or_default())
}

pub(crate) fn unreachable(id: PeerId, why: &str) -> TaskError {
    let node = node_of(&id).short();
    TaskError::unavailable(format!("node {node} cannot be reached: {why}"))
        .with_field("node")
        .with_hint("`karman mesh peers` lists whom this node has met, and when")
}
