//! Status reports of nodes: what they offer, and how busy they are. The node that asks holds the stream, and is told within a second
//! or so what changes; that costs nothing as long as nothing does. A node speaks for itself only, on a connection that proves who it
//! is, so that no third node can repeat its reports; its own reports are numbered, and one from before is refused.

use crate::calling::{MOST_TRIES, PATIENCE, node_of, unreachable};
use crate::company::ENOUGH;
use crate::mesh::{Inner, Mesh};
use crate::offer::{self, StatusReport};
use crate::peers::{Known, Peers};
use crate::standing::Standing;
use crate::wire::WireError;
use futures::{FutureExt, StreamExt};
use karman_types::{Offer, TaskError};
use libp2p::{PeerId, StreamProtocol};
use libp2p_stream::IncomingStreams;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub(crate) const OFFER: StreamProtocol = StreamProtocol::new("/karman/offer/1");
/// How often a node looks how busy it is, while somebody wants to know.
const ROUNDS: Duration = Duration::from_secs(1);
/// For how long a node is listened to that nobody has asked about or called, where others are, too: a stream keeps its connection
/// alive.
pub(crate) const UNUSED: Duration = Duration::from_secs(120);
/// Streams on which reports are sent: in all, and to one node. Who asks on one more is told once.
const MOST_LISTENERS: usize = 1024;
const MOST_OF_ONE: usize = 4;

/// Sends the reports of this node.
#[derive(Default)]
pub(crate) struct Reporter {
    changes: watch::Sender<Change>,
    numbers: AtomicU64,
    listeners: Mutex<HashMap<PeerId, usize>>,
}

/// Counts changes: of the offer, and of how busy the node is.
#[derive(Clone, Copy, Default, Eq, PartialEq)]
struct Change {
    offer: u64,
    busy: u64,
}

impl Reporter {
    /// The offer is another one now.
    pub(crate) fn offer_changed(&self) {
        self.changes.send_modify(|change| change.offer += 1);
    }

    fn report(&self, run: u64, busy: u32, offer: Option<Offer>) -> StatusReport {
        let number = self.numbers.fetch_add(1, Ordering::Relaxed) + 1;
        StatusReport {
            run,
            number,
            busy,
            offer,
        }
    }
}

/// A place among those who are told.
struct Listener(Arc<Reporter>, PeerId);

impl Listener {
    fn of(reporter: &Arc<Reporter>, peer: PeerId) -> Option<Self> {
        let mut listeners = reporter.listeners.lock();
        let of_one = listeners.get(&peer).copied().unwrap_or_default();
        if of_one >= MOST_OF_ONE || listeners.values().sum::<usize>() >= MOST_LISTENERS {
            return None;
        }
        listeners.insert(peer, of_one + 1);
        Some(Self(reporter.clone(), peer))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let mut listeners = self.0.listeners.lock();
        match listeners.get_mut(&self.1) {
            Some(of_one) if *of_one > 1 => *of_one -= 1,
            _ => drop(listeners.remove(&self.1)),
        }
    }
}

/// Tells those who ask.
pub(crate) async fn tell_offers(mesh: Weak<Inner>, mut questions: IncomingStreams) {
    while let Some((peer, stream)) = questions.next().await {
        let Some(inner) = mesh.upgrade() else { return };
        tokio::spawn(async move {
            if let Err(error) = tell(inner, peer, stream.compat()).await {
                tracing::trace!(%peer, %error, "a node is told no more");
            }
        });
    }
}

/// Looks how busy the node is, while somebody listens.
pub(crate) async fn look(mesh: Weak<Inner>) {
    let mut before = None;
    loop {
        sleep(ROUNDS).await;
        let Some(inner) = mesh.upgrade() else { return };
        if inner.reporter.listeners.lock().is_empty() {
            continue;
        }
        let level = offer::level(inner.service.busy(), inner.service.cores());
        if before.replace(level) != Some(level) {
            inner.reporter.changes.send_modify(|change| change.busy += 1);
        }
    }
}

async fn tell(
    inner: Arc<Inner>,
    peer: PeerId,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) -> Result<(), WireError> {
    let (mut input, mut output) = split(stream);
    let (listener, mut changes) = (
        Listener::of(&inner.reporter, peer),
        inner.reporter.changes.subscribe(),
    );
    let (mesh, mut told) = (Arc::downgrade(&inner), None);
    drop(inner);
    loop {
        let Some(inner) = mesh.upgrade() else { break };
        let now = *changes.borrow_and_update();
        let offer = match told == Some(now.offer) {
            true => None,
            false => match inner.service.offer() {
                Some(offer) => Some(offer),
                None => break,
            },
        };
        told = Some(now.offer);
        let report = inner
            .reporter
            .report(inner.standing.about().run, inner.service.busy(), offer);
        drop(inner);
        match timeout(PATIENCE, offer::tell(&mut output, &report)).await {
            Ok(told) => told?,
            Err(_) => break,
        }
        if listener.is_none() {
            break;
        }
        let mut nothing = [0];
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { break },
            // The other side has nothing to say here but that it has heard enough.
            _ = input.read(&mut nothing) => break,
        }
    }
    let _ = output.shutdown().await;
    Ok(())
}

impl Mesh {
    /// Reaches the node, wherever it is now, and lets it say what it offers.
    ///
    /// # Errors
    /// `unavailable` when it cannot be reached.
    pub async fn reach(&self, id: PeerId) -> Result<Arc<Offer>, TaskError> {
        Ok(self.ask_on(id, true).await?.0)
    }

    /// Lets the node say what it offers, and from then on what changes. One that is not where it was is not searched for. One question is
    /// for all who ask meanwhile: on a long link more would be put than are answered, and the last ones never in time.
    pub(crate) async fn ask(&self, id: PeerId) -> Result<Known, TaskError> {
        let ask = || {
            let mesh = self.clone();
            async move { mesh.ask_on(id, false).await }.boxed()
        };
        self.0.asked.share(&id, ask).await
    }

    async fn ask_on(&self, id: PeerId, anywhere: bool) -> Result<Known, TaskError> {
        let mut last = unreachable(id, "it does not answer");
        for _ in 0..MOST_TRIES {
            let (peers, standing) = (self.0.peers.clone(), self.0.standing.clone());
            let mut heard = Heard::new(peers, standing, id);
            let stream = match anywhere {
                true => self.stream_anywhere(id, OFFER).await?,
                false => self.stream(id, OFFER).await?,
            };
            let mut stream = stream.compat();
            match timeout(self.patience(&id), offer::hear(&mut stream)).await {
                Ok(Ok(report)) => {
                    let known = heard.take(report).map_err(|why| unreachable(id, why))?;
                    let known = known.ok_or_else(|| unreachable(id, "it does not say what it offers"))?;
                    if self.0.peers.begins_to_tell(&id) {
                        tokio::spawn(heard.listen(stream));
                    }
                    return Ok(known);
                }
                Ok(Err(error)) => last = unreachable(id, &error.to_string()),
                Err(_) => return Err(last),
            }
        }
        Err(last)
    }
}

/// What is heard of a node on one stream.
pub(crate) struct Heard {
    peers: Arc<Peers>,
    standing: Arc<Standing>,
    id: PeerId,
    /// The number of the last report.
    last: u64,
}

impl Heard {
    pub(crate) fn new(peers: Arc<Peers>, standing: Arc<Standing>, id: PeerId) -> Self {
        Self {
            last: peers.last_report(&id),
            peers,
            standing,
            id,
        }
    }

    /// Takes a report, unless it is from before or of another node.
    pub(crate) fn take(&mut self, report: StatusReport) -> Result<Option<Known>, &'static str> {
        if report.number <= self.last
            || self
                .standing
                .run_of(&self.id)
                .is_some_and(|run| run != report.run)
        {
            self.standing.refused("old-offer");
            return Err("what it says is from before");
        }
        if report
            .offer
            .as_ref()
            .is_some_and(|offer| offer.node != node_of(&self.id))
        {
            self.standing.refused("offer-of-another");
            return Err("it speaks for another node");
        }
        self.last = report.number;
        Ok(self.peers.says(self.id, report))
    }

    /// Listens as long as it is of use.
    pub(crate) async fn listen(mut self, stream: impl AsyncRead + Unpin) {
        let mut hearing = Box::pin(next(stream));
        loop {
            match timeout(UNUSED, &mut hearing).await {
                Ok((stream, Ok(report))) => {
                    if let Err(why) = self.take(report) {
                        tracing::info!(peer = %self.id, why, "a node is listened to no more");
                        break;
                    }
                    hearing = Box::pin(next(stream));
                }
                Ok((_, Err(_))) => break,
                Err(_) => {}
            }
            if self.peers.has_told_enough(&self.id, UNUSED, ENOUGH) {
                return;
            }
        }
        self.peers.tells_no_more(&self.id);
    }
}

async fn next<S: AsyncRead + Unpin>(mut stream: S) -> (S, Result<StatusReport, WireError>) {
    let report = offer::hear(&mut stream).await;
    (stream, report)
}
