//! How a node leaves: it says so. Others would wait for it otherwise until it had been silent for half a minute.

use super::behaviour::Behaviour;
use futures::StreamExt;
use libp2p::swarm::SwarmEvent;
use libp2p::{PeerId, Swarm};
use std::time::Duration;
use tokio::time::sleep;

/// What was said last is sent by others than those who say it: connections have threads of their own.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// Ends every connection and all listening.
pub(super) async fn part(mut swarm: Swarm<Behaviour>) {
    let peers: Vec<PeerId> = swarm.connected_peers().copied().collect();
    for peer in peers {
        let _ = swarm.disconnect_peer_id(peer);
    }
    while swarm.network_info().num_peers() > 0 {
        let event = swarm.select_next_some().await;
        // A dial that was under way, or somebody who comes again: one more who would wait in vain.
        if let SwarmEvent::ConnectionEstablished { peer_id, .. } = event {
            let _ = swarm.disconnect_peer_id(peer_id);
        }
    }
    sleep(LAST_WORDS).await;
}
