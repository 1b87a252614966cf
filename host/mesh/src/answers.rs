//! What this node does for members that call it, whatever way they came.

use crate::ask::{Ask, CallHead};
use crate::body::Takes;
use crate::call;
use crate::membership::{Member, Right};
use crate::mesh::Serve;
use crate::per_peer::PerPeer;
use crate::refusals::{Refusals, of_call, of_head};
use crate::standing::Standing;
use futures::future::select;
use karman_types::TaskError;
use libp2p::PeerId;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::AsyncRead;
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls of one peer at once; as many more wait in their own buffers.
pub(crate) const CALLS_PER_PEER: usize = 256;
/// Those among them that do work. The places that are left are for what work waits for: with none, keepers would hear nothing of each
/// other while they are busy, and choose another leader. Whoever calls sees to it.
pub(crate) const WORK_PER_PEER: usize = CALLS_PER_PEER - 32;
/// Bodies of one peer's calls that are held at once, in KiB; the next one waits unread.
const BODIES_PER_PEER: usize = 512 << 10;

pub(crate) struct Answers {
    standing: Arc<Standing>,
    service: Arc<dyn Serve>,
    places: PerPeer<Places>,
    refusals: Arc<Refusals>,
    /// Where calls are served.
    threads: Handle,
}

/// What one peer may take up.
struct Places {
    calls: Semaphore,
    waiting: Semaphore,
    bodies: Semaphore,
}

impl Places {
    fn new() -> Self {
        Self {
            calls: Semaphore::new(CALLS_PER_PEER),
            waiting: Semaphore::new(CALLS_PER_PEER),
            bodies: Semaphore::new(BODIES_PER_PEER),
        }
    }

    /// A place for one call, as soon as there is one; none where too many wait already.
    async fn for_call(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(place) = self.calls.try_acquire() {
            return Some(place);
        }
        let _waits = self.waiting.try_acquire().ok()?;
        self.calls.acquire().await.ok()
    }
}

impl Answers {
    pub(crate) fn new(standing: Arc<Standing>, service: Arc<dyn Serve>, threads: Handle) -> Self {
        Self {
            service,
            places: PerPeer::default(),
            refusals: standing.counts(),
            standing,
            threads,
        }
    }

    fn refused(&self, reason: Option<&'static str>) {
        if let Some(reason) = reason {
            self.refusals.count(reason);
        }
    }

    /// Answers the call on this pair of streams as soon as the peer has a place, unless its connection is `gone` before.
    pub(crate) fn take<R, W>(
        self: &Arc<Self>,
        peer: PeerId,
        stream: (R, W),
        gone: impl Future<Output = ()> + Send + 'static,
    ) where
        R: AsyncRead + Send + Unpin + 'static,
        W: Takes + 'static,
    {
        let (answers, places) = (self.clone(), self.places.of(peer, Places::new));
        self.threads.spawn(async move {
            // A peer with too many calls waits in its own buffers: nothing is read for it. What it sent before it went would stay there.
            let answered = async {
                match places.for_call().await {
                    Some(_place) => answers.answer(peer, stream, &places).await,
                    None => answers.refused(Some("calls-too-many")),
                }
            };
            select(pin!(answered), pin!(gone)).await;
        });
    }

    async fn answer(&self, peer: PeerId, stream: (impl AsyncRead + Unpin, impl Takes), places: &Places) {
        let Some(member) = self.standing.member(&peer) else {
            return;
        };
        let (service, from) = (self.service.clone(), member.clone());
        let may = |head: &CallHead, body| {
            let allowed = self.may(&member, head);
            let allowed = allowed.and_then(|()| fits(head, body, service.most_input(head)?));
            allowed.inspect_err(|error| self.refused(of_head(error)))
        };
        let room = async |body: u64| {
            let kib = body.div_ceil(1 << 10).min(BODIES_PER_PEER as u64);
            places.bodies.acquire_many(kib as u32).await
        };
        let serve = |head, request| service.serve(from, head, request);
        if let Err(error) = call::answer(stream, may, room, serve).await {
            self.refused(of_call(&error));
            tracing::debug!(%peer, %error, "a call was not answered");
        }
    }

    fn may(&self, member: &Member, head: &CallHead) -> Result<(), TaskError> {
        let name = head.name.parse().map_err(|_| {
            TaskError::invalid(format!("`{}` is no name of a task", head.name)).with_field("name")
        })?;
        let right = match head.ask {
            // Whether it may ask just this, only the body tells.
            Ask::Keep { .. } | Ask::Commit => return Ok(()),
            Ask::Call
            | Ask::Attempt { .. }
            | Ask::TakeOver
            | Ask::RunStage
            | Ask::RunModel
            | Ask::Learn
            | Ask::Swarm
            | Ask::DescribeModel => Right::Call(name),
            Ask::ReadBucket => Right::BucketRead(name),
            Ask::Deploy { .. }
            | Ask::Undeploy
            | Ask::AddModel { .. }
            | Ask::PrepareStage { .. }
            | Ask::ProfileModel { .. } => Right::Deploy(name),
            // It costs no more than its bytes.
            Ask::Measure | Ask::MeasureBack { .. } => return Ok(()),
            // By a ticket, which the one that holds the blob judges.
            Ask::ReadBlob { .. } => return Ok(()),
            // From any member: who sent it, and what it may, only its destination can see.
            Ask::TakeBundle { .. } => return Ok(()),
        };
        if member.rights.allows(&right) {
            return Ok(());
        }
        Err(member.lacks(&right))
    }
}

fn fits(head: &CallHead, body: u64, most: u64) -> Result<(), TaskError> {
    if body <= most {
        return Ok(());
    }
    Err(TaskError::limit(format!(
        "the body has {body} bytes; `{}` takes at most {most}",
        head.name
    ))
    .with_field("body"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn as_many_calls_wait_as_are_served() {
        let places = Places::new();
        let mut calls: Vec<_> = (0..2 * CALLS_PER_PEER)
            .map(|_| Box::pin(places.for_call()))
            .collect();
        let served = calls.iter_mut().filter_map(FutureExt::now_or_never);
        let mut served: Vec<_> = served.map(Option::unwrap).collect();
        assert_eq!(served.len(), CALLS_PER_PEER);
        assert!(places.for_call().now_or_never().unwrap().is_none());
        served.pop();
        let next = &mut calls[CALLS_PER_PEER];
        assert!(next.now_or_never().unwrap().is_some());
        assert!(
            places.for_call().now_or_never().is_none(),
            "there is room to wait again"
        );
    }
}
