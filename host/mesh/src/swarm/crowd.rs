//! Which connections end before they are idle for long. A search of the DHT begins some ten, and whoever lists a mesh of thousands asks
//! all of them: at two minutes each there would soon be no room for another.

use libp2p::PeerId;
use libp2p::swarm::ConnectionId;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Connections from which on those end that nobody uses.
const CROWD: usize = 512;
/// Connected nodes from which on a list of many waits for room.
pub(crate) const MANY: usize = 768;
/// How long a connection is left alone: a search that has begun it comes back to it.
const LEFT_ALONE: Duration = Duration::from_secs(10);

/// The connections that this node has begun, the oldest first. Those that others have begun are theirs: a node that nobody can dial has
/// its place at a relay by one. Pure: time is an argument.
#[derive(Default)]
pub(super) struct Crowd(VecDeque<(ConnectionId, PeerId, Instant)>);

impl Crowd {
    pub(super) fn begun(&mut self, connection: ConnectionId, with: PeerId, now: Instant) {
        self.0.push_back((connection, with, now));
    }

    pub(super) fn closed(&mut self, connection: ConnectionId) {
        self.0.retain(|(begun, _, _)| *begun != connection);
    }

    /// Those that end now, where there are so many in all.
    pub(super) fn ends(
        &self,
        connections: usize,
        now: Instant,
        is_used: impl Fn(&PeerId) -> bool,
    ) -> Vec<ConnectionId> {
        let old = self.0.iter();
        let old = old.take_while(|(_, _, since)| now.duration_since(*since) >= LEFT_ALONE);
        old.filter(|(_, with, _)| !is_used(with))
            .map(|(connection, _, _)| *connection)
            .take(connections.saturating_sub(CROWD))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_those_end_that_are_oldest_and_that_nobody_uses() {
        let (mut crowd, start) = (Crowd::default(), Instant::now());
        let peers: Vec<PeerId> = (0..9).map(|_| PeerId::random()).collect();
        let id = ConnectionId::new_unchecked;
        for (at, peer) in peers.iter().enumerate() {
            let begun = start + Duration::from_secs(at as u64);
            crowd.begun(id(at), *peer, begun);
        }
        crowd.closed(id(1));
        let later = start + LEFT_ALONE + Duration::from_secs(5);
        let is_used = |peer: &PeerId| *peer == peers[2];
        let ends = |connections| crowd.ends(connections, later, is_used);
        assert_eq!(ends(CROWD), []);
        assert_eq!(ends(CROWD + 2), [id(0), id(3)]);
        assert_eq!(ends(2 * CROWD), [id(0), id(3), id(4), id(5)]);
        assert_eq!(crowd.ends(2 * CROWD, start, |_| false), []);
    }
}
