//! The book of peers: who is there, by which path, what they offer.

mod telling;

use crate::membership::Member;
use crate::offer::StatusReport;
use crate::reports::UNUSED;
use karman_types::{NodeId, Offer};
use libp2p::PeerId;
use libp2p::core::ConnectedPoint;
use libp2p::multiaddr::Protocol;
use libp2p::swarm::ConnectionId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How old an offer may be before its node is asked again.
const FRESH: Duration = Duration::from_secs(5);
/// The same where the node tells what changes, on a connection that ends by itself soon after the node has gone.
const TOLD: Duration = Duration::from_secs(300);
/// Nodes that are remembered after they have gone.
const MOST_REMEMBERED: usize = 4096;

/// How a node is reached; the better path comes first.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Path {
    /// QUIC over UDP.
    Direct,
    /// TCP, where UDP does not pass.
    Tcp,
    /// Over a third node.
    Relayed,
}

impl Path {
    pub(crate) fn of(endpoint: &ConnectedPoint) -> Self {
        if endpoint.is_relayed() {
            return Self::Relayed;
        }
        let address = match endpoint {
            ConnectedPoint::Dialer { address, .. } => address,
            ConnectedPoint::Listener { send_back_addr, .. } => send_back_addr,
        };
        match address.iter().any(|part| matches!(part, Protocol::Tcp(_))) {
            true => Self::Tcp,
            false => Self::Direct,
        }
    }
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Tcp => "tcp",
            Self::Relayed => "relayed",
        })
    }
}

/// Another node, as far as this one knows it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its key as libp2p writes it.
    pub id: PeerId,
    /// Its membership, as verified when it came in.
    pub member: Option<Arc<Member>>,
    /// How it is reached; nothing while it is not.
    pub path: Option<Path>,
    /// Whether calls go over a connection of their own now, beside the swarm.
    pub direct_calls: bool,
    /// Bytes sent to it, whatever for.
    pub sent: u64,
    /// Why the path is no better one, as far as that is known.
    pub obstacle: Option<String>,
    /// Every connection with it.
    ways: Vec<(ConnectionId, Path)>,
    /// Which of its runs these are with.
    run: Option<u64>,
    /// Since when there is a connection with it.
    pub since: Option<Instant>,
    /// The last round trip measured on the path that there is, or was last.
    pub round_trip: Option<Duration>,
    /// On which path that was, and when.
    measured: Option<(Path, Instant)>,
    /// When it was last heard of.
    pub last_seen: Instant,
    /// What it last said that it offers, and when that was.
    pub offer: Option<(Arc<Offer>, Instant)>,
    /// Calls that were under way there.
    pub busy: u32,
    /// The number of its last report.
    last_report: u64,
    /// Whether it tells this node what changes; since when that was of no use.
    watched: Option<Instant>,
    /// It did not answer a call since it last said what it offers.
    doubted: bool,
    /// Calls of this node that it has not answered yet.
    calls: u32,
    /// When this node last called it, whatever for.
    called: Option<Instant>,
}

impl Peer {
    /// Whether it tells this node what changes in its offer.
    pub const fn tells(&self) -> bool {
        self.watched.is_some()
    }

    /// How old the last round trip is.
    pub fn round_trip_age(&self) -> Option<Duration> {
        self.measured.map(|(_, when)| when.elapsed())
    }

    /// Calls under way there, as far as is known here: what it last said, and those of this node, which are more until it says so.
    pub fn under_way(&self) -> u32 {
        self.busy.max(self.calls)
    }

    /// Whether this node calls it, or has done so within this time. Calls have a connection of their own, so that the swarm's looks
    /// unused meanwhile.
    fn is_called(&self, lately: Duration) -> bool {
        self.calls > 0 || self.called.is_some_and(|when| when.elapsed() < lately)
    }

    /// Whether what it offers is what it last said: it would tell what changes. That it is gone shows soon over QUIC, whose ends hear of
    /// each other all the time, and not over TCP or a relay.
    fn is_told(&self) -> bool {
        self.tells() && !self.doubted && self.path == Some(Path::Direct)
    }

    /// When it last said what it offers, or would have said that it is another.
    fn heard(&self) -> Option<Instant> {
        let (_, when) = self.offer.as_ref()?;
        Some(if self.is_told() { Instant::now() } else { *when })
    }

    fn known(&self) -> Option<Known> {
        let (offer, _) = self.offer.as_ref()?;
        Some((offer.clone(), self.under_way()))
    }

    /// Of all ways the best is the path.
    fn choose(&mut self) {
        let best = self.ways.iter().map(|(_, path)| *path).min();
        if best == self.path {
            return;
        }
        self.since = best.and_then(|_| self.since.or_else(|| Some(Instant::now())));
        (self.path, self.obstacle) = (best, None);
        // What was measured says nothing of another path; of a node that has gone it is the best guess there is.
        if best.is_some() && self.measured.is_some_and(|(on, _)| Some(on) != best) {
            (self.round_trip, self.measured) = (None, None);
        }
    }
}

/// What a node offers, and how many calls are under way there.
pub(crate) type Known = (Arc<Offer>, u32);

/// A call that another node has not answered yet.
pub(crate) struct UnderWay(Arc<Peers>, PeerId);

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(peer) = self.0.peers.lock().get_mut(&self.1) {
            peer.calls = peer.calls.saturating_sub(1);
        }
    }
}

#[derive(Default)]
pub(crate) struct Peers {
    peers: Mutex<HashMap<PeerId, Peer>>,
    /// How often a node has come into reach.
    arrivals: watch::Sender<u64>,
    /// How often a connection has ended.
    partings: watch::Sender<u64>,
}

impl Peers {
    pub(crate) fn list(&self) -> Vec<Peer> {
        self.peers.lock().values().cloned().collect()
    }

    /// What those that there is a connection with have said last that they offer, where it is wanted.
    pub(crate) fn offers(&self, wanted: impl Fn(&Offer) -> bool) -> Vec<(PeerId, Known)> {
        let peers = self.peers.lock();
        let there = peers.values().filter(|peer| peer.path.is_some());
        let said = there.filter_map(|peer| Some((peer.id, peer.known()?)));
        said.filter(|(_, (offer, _))| wanted(offer)).collect()
    }

    /// Those that there is a connection with.
    pub(crate) fn there(&self) -> Vec<PeerId> {
        let peers = self.peers.lock();
        let there = peers.values().filter(|peer| peer.path.is_some());
        there.map(|peer| peer.id).collect()
    }

    /// A connection more; a better path does not give way to a worse one that came later. Connections with an earlier run of the
    /// node are answered: nobody is at their other end.
    pub(crate) fn connected(
        &self,
        id: PeerId,
        way: (ConnectionId, Path),
        member: Option<Arc<Member>>,
        run: Option<u64>,
    ) -> Vec<ConnectionId> {
        let mut dead = Vec::new();
        self.change(id, |peer| {
            if peer.run != run {
                // Another run of it counts its reports anew, and may offer something else.
                peer.last_report = 0;
                (peer.path, peer.since) = (None, None);
                dead = peer.ways.drain(..).map(|(connection, _)| connection).collect();
                peer.run = run;
            }
            peer.ways.push(way);
            peer.choose();
            peer.member = member;
        });
        self.arrivals.send_modify(|arrivals| *arrivals += 1);
        dead
    }

    pub(crate) fn arrivals(&self) -> watch::Receiver<u64> {
        self.arrivals.subscribe()
    }

    pub(crate) fn disconnected(&self, id: &PeerId, connection: ConnectionId) {
        self.change(*id, |peer| {
            peer.ways.retain(|(way, _)| *way != connection);
            peer.choose();
        });
        self.partings.send_modify(|partings| *partings += 1);
    }

    pub(crate) fn partings(&self) -> watch::Receiver<u64> {
        self.partings.subscribe()
    }

    pub(crate) fn measured(&self, id: &PeerId, connection: ConnectionId, round_trip: Duration) {
        self.change(*id, |peer| {
            let path = peer.path.unwrap_or(Path::Relayed);
            if peer.ways.contains(&(connection, path)) {
                peer.round_trip = Some(round_trip);
                peer.measured = Some((path, Instant::now()));
            }
        });
    }

    /// With which run of the node there is a connection, or was last.
    pub(crate) fn run(&self, id: &PeerId) -> Option<u64> {
        self.peers.lock().get(id)?.run
    }

    /// Since when there is a connection with the node.
    pub(crate) fn since(&self, id: &PeerId) -> Option<Instant> {
        self.peers.lock().get(id)?.since
    }

    pub(crate) fn round_trip(&self, id: &PeerId) -> Option<Duration> {
        self.peers.lock().get(id)?.round_trip
    }

    /// The last round trip, and when the node last said what it offers; that is now where it tells what changes.
    pub(crate) fn last_heard(&self, id: &PeerId) -> (Option<Duration>, Option<Instant>) {
        let peers = self.peers.lock();
        match peers.get(id) {
            Some(peer) => (peer.round_trip, peer.heard()),
            None => (None, None),
        }
    }

    /// The node of this id, if it was met.
    pub(crate) fn of_node(&self, node: NodeId) -> Option<PeerId> {
        let peers = self.peers.lock();
        let is_it = |peer: &&Peer| peer.member.as_ref().is_some_and(|member| member.node == node);
        peers.values().find(is_it).map(|peer| peer.id)
    }

    /// Those that are there and have said that they offer the task.
    pub(crate) fn offering(&self, task: &str) -> Vec<PeerId> {
        let peers = self.peers.lock();
        let offers = |peer: &&Peer| {
            let offer = peer.offer.as_ref().filter(|_| peer.path.is_some());
            offer.is_some_and(|(offer, _)| offer.runs(task).is_some())
        };
        peers.values().filter(offers).map(|peer| peer.id).collect()
    }

    pub(crate) fn path(&self, id: &PeerId) -> Option<Path> {
        self.peers.lock().get(id)?.path
    }

    /// Whether this connection with the node goes over a third one.
    pub(crate) fn is_relayed(&self, id: &PeerId, connection: ConnectionId) -> bool {
        let peers = self.peers.lock();
        peers
            .get(id)
            .is_some_and(|peer| peer.ways.contains(&(connection, Path::Relayed)))
    }

    /// Whether this connection is not the oldest there is with the node: streams go over that.
    pub(crate) fn is_spare(&self, id: &PeerId, connection: ConnectionId) -> bool {
        let peers = self.peers.lock();
        let oldest = peers.get(id).and_then(|peer| peer.ways.first());
        oldest.is_some_and(|(oldest, _)| *oldest != connection)
    }

    /// A better path was tried and did not come about.
    pub(crate) fn obstructed(&self, id: &PeerId, why: &str) {
        self.change(*id, |peer| {
            peer.obstacle = match peer.path {
                Some(Path::Tcp) => Some(format!("UDP does not pass: {why}")),
                Some(Path::Relayed) => Some(format!("hole punching failed: {why}")),
                Some(Path::Direct) | None => None,
            };
        });
    }

    /// The number of the last report of the node.
    pub(crate) fn last_report(&self, id: &PeerId) -> u64 {
        self.peers.lock().get(id).map_or(0, |peer| peer.last_report)
    }

    /// Takes a report of the node; what is known of it then. One that another has overtaken changes nothing.
    pub(crate) fn says(&self, id: PeerId, report: StatusReport) -> Option<Known> {
        let mut known = None;
        self.change(id, |peer| {
            if report.number > peer.last_report {
                peer.last_report = report.number;
                (peer.busy, peer.doubted) = (report.busy, false);
                let before = peer.offer.take().map(|(offer, _)| offer);
                let offer = report.offer.map(Arc::new).or(before);
                peer.offer = offer.map(|offer| (offer, Instant::now()));
            }
            known = peer.known();
        });
        known
    }

    /// What the node has said a moment ago, or a while ago where it tells what changes; for somebody who asks, so that it is worth to be told what changes.
    pub(crate) fn fresh(&self, id: &PeerId) -> Option<Known> {
        let mut peers = self.peers.lock();
        let peer = peers.get_mut(id)?;
        if let Some(unused) = &mut peer.watched {
            *unused = Instant::now();
        }
        let (_, when) = peer.offer.as_ref()?;
        let holds = if peer.is_told() { TOLD } else { FRESH };
        (when.elapsed() < holds).then(|| peer.known()).flatten()
    }

    /// The node did not answer a call: it is asked anew what it offers.
    pub(crate) fn doubts(&self, id: &PeerId) {
        if let Some(peer) = self.peers.lock().get_mut(id) {
            peer.doubted = true;
        }
    }

    /// This node calls the other, whatever for.
    pub(crate) fn is_calling(&self, id: &PeerId) {
        if let Some(peer) = self.peers.lock().get_mut(id) {
            peer.called = Some(Instant::now());
        }
    }

    /// Whether this node calls the other or has done so lately, or is told what changes there.
    pub(crate) fn is_in_use(&self, id: &PeerId) -> bool {
        let peers = self.peers.lock();
        peers
            .get(id)
            .is_some_and(|peer| peer.tells() || peer.is_called(UNUSED))
    }

    /// A call of this node has gone to the other, until what is answered is dropped: one that has just been given work is busier
    /// than it has said.
    pub(crate) fn calls(self: &Arc<Self>, id: PeerId) -> UnderWay {
        if let Some(peer) = self.peers.lock().get_mut(&id) {
            peer.calls += 1;
        }
        UnderWay(self.clone(), id)
    }

    fn change(&self, id: PeerId, change: impl FnOnce(&mut Peer)) {
        let mut peers = self.peers.lock();
        if peers.len() >= MOST_REMEMBERED && !peers.contains_key(&id) {
            let oldest = peers
                .values()
                .filter(|peer| peer.path.is_none())
                .min_by_key(|peer| peer.last_seen)
                .map(|peer| peer.id);
            if let Some(oldest) = oldest {
                peers.remove(&oldest);
            }
        }
        let peer = peers.entry(id).or_insert_with(|| Peer {
            id,
            member: None,
            path: None,
            direct_calls: false,
            sent: 0,
            obstacle: None,
            ways: Vec::new(),
            run: None,
            since: None,
            round_trip: None,
            measured: None,
            last_seen: Instant::now(),
            offer: None,
            busy: 0,
            last_report: 0,
            watched: None,
            doubted: false,
            calls: 0,
            called: None,
        });
        peer.last_seen = Instant::now();
        change(peer);
    }
}

#[cfg(test)]
mod tests;
