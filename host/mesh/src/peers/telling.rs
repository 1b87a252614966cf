//! Which nodes tell this one what changes in their offers, and which make room for others.

use super::{Peer, Peers};
use libp2p::PeerId;
use std::time::{Duration, Instant};

/// Nodes that tell this one what changes at them.
const MOST_WATCHED: usize = 256;

impl Peers {
    /// Whether the node shall tell what changes from now on: not where it does so already, nor where enough do.
    pub(crate) fn begins_to_tell(&self, id: &PeerId) -> bool {
        let mut peers = self.peers.lock();
        let watched = peers.values().filter(|peer| peer.watched.is_some()).count();
        match peers.get_mut(id) {
            Some(peer) if peer.watched.is_none() && watched < MOST_WATCHED => {
                peer.watched = Some(Instant::now());
                true
            }
            _ => false,
        }
    }

    /// It tells no more.
    pub(crate) fn tells_no_more(&self, id: &PeerId) {
        if let Some(peer) = self.peers.lock().get_mut(id) {
            peer.watched = None;
        }
    }

    /// Whether the node need tell no more: nobody has asked about it or called it for so long, and enough others tell.
    pub(crate) fn has_told_enough(&self, id: &PeerId, unused: Duration, enough: usize) -> bool {
        let mut peers = self.peers.lock();
        let watched = peers.values().filter(|peer| peer.watched.is_some()).count();
        let Some(peer) = peers.get_mut(id).filter(|peer| peer.watched.is_some()) else {
            return true;
        };
        let asked = peer.watched.is_some_and(|asked| asked.elapsed() < unused);
        if asked || peer.is_called(unused) || watched <= enough {
            return false;
        }
        peer.watched = None;
        true
    }

    /// Has the one tell no more that has told for longest while nobody asked about it or called it, if there is another to tell in its
    /// place.
    pub(crate) fn gives_way(&self, unused: Duration) -> Option<PeerId> {
        let mut peers = self.peers.lock();
        let is_silent = |peer: &Peer| peer.path.is_some() && peer.watched.is_none();
        if !peers.values().any(is_silent) {
            return None;
        }
        let told = |peer: &Peer| Some((peer.watched?, peer.id)).filter(|_| !peer.is_called(unused));
        let (asked, id) = peers.values().filter_map(told).min()?;
        if asked.elapsed() < unused {
            return None;
        }
        peers.get_mut(&id)?.watched = None;
        Some(id)
    }

    /// Those that are there and tell nothing yet; and how many more should tell, so that enough do.
    pub(crate) fn silent(&self, enough: usize) -> (Vec<PeerId>, usize) {
        let peers = self.peers.lock();
        let telling = peers.values().filter(|peer| peer.watched.is_some()).count();
        let silent = peers
            .values()
            .filter(|peer| peer.path.is_some() && peer.watched.is_none());
        (
            silent.map(|peer| peer.id).collect(),
            enough.saturating_sub(telling),
        )
    }

    /// Those that are there and tell nothing yet though this node calls them, or has done so within this time; as many as may tell.
    pub(crate) fn called(&self, lately: Duration) -> Vec<PeerId> {
        let peers = self.peers.lock();
        let telling = peers.values().filter(|peer| peer.watched.is_some()).count();
        let called = peers
            .values()
            .filter(|peer| peer.path.is_some() && peer.watched.is_none() && peer.is_called(lately));
        let most = MOST_WATCHED.saturating_sub(telling);
        called.map(|peer| peer.id).take(most).collect()
    }
}
