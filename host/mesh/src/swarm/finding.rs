//! Searches of the DHT: who has announced a key, and where one of them is that is wanted.

use super::drive::Driver;
use libp2p::core::Endpoint;
use libp2p::kad::{GetProvidersOk, QueryId, QueryResult, RecordKey};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId};
use std::collections::HashSet;
use tokio::sync::oneshot;

/// Addresses at which one search dials the node that is wanted: answers are hearsay.
const MOST_TRIED: usize = 64;

pub(super) struct Finding {
    found: HashSet<PeerId>,
    wanted: Option<Wanted>,
    tell: oneshot::Sender<HashSet<PeerId>>,
}

/// The one node that a search is for.
struct Wanted {
    peer: PeerId,
    /// Where the search has dialled it.
    tried: HashSet<Multiaddr>,
}

impl Wanted {
    fn new(peer: PeerId) -> Self {
        let tried = HashSet::new();
        Self { peer, tried }
    }

    /// Where it was not dialled yet: those next to a key say the same, or where it was at another time.
    fn not_tried(&mut self, mut addresses: Vec<Multiaddr>) -> Vec<Multiaddr> {
        addresses.retain(|address| self.tried.len() < MOST_TRIED && self.tried.insert(address.clone()));
        addresses
    }
}

impl Driver {
    /// Asks who has announced the key, and tells when all have answered; where one is wanted, also when that one is there.
    pub(super) fn find(
        &mut self,
        key: RecordKey,
        wanted: Option<PeerId>,
        tell: oneshot::Sender<HashSet<PeerId>>,
    ) {
        let query = self.swarm.behaviour_mut().kad.get_providers(key);
        let finding = Finding {
            found: HashSet::new(),
            wanted: wanted.map(Wanted::new),
            tell,
        };
        self.finding.insert(query, finding);
    }

    /// A search has an answer, or its last.
    pub(super) fn found(&mut self, query: QueryId, result: &QueryResult, last: bool) {
        if let QueryResult::GetProviders(Ok(GetProvidersOk::FoundProviders { providers, .. })) = result
            && let Some(finding) = self.finding.get_mut(&query)
        {
            finding.found.extend(providers);
            let wanted = finding.wanted.as_ref().map(|wanted| wanted.peer);
            match wanted {
                None => self.come_to(providers),
                Some(wanted) if providers.contains(&wanted) => self.follow(query, wanted),
                Some(_) => {}
            }
        }
        if last && let Some(finding) = self.finding.remove(&query) {
            let _ = finding.tell.send(finding.found);
        }
    }

    /// A node is there: nobody need be asked any more where it is.
    pub(super) fn has_come(&mut self, peer: PeerId) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        for (query, finding) in &self.finding {
            if finding.wanted.as_ref().is_some_and(|wanted| wanted.peer == peer)
                && let Some(mut query) = kad.query_mut(query)
            {
                query.finish();
            }
        }
    }

    /// Meets a node where a search has just heard that it is, though it may be dialled still where it was.
    fn follow(&mut self, query: QueryId, peer: PeerId) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        // What it would add to a dial: where its table has the node, and where the searches that are under way have heard of it.
        let unused = ConnectionId::new_unchecked(0);
        let heard = kad.handle_pending_outbound_connection(unused, Some(peer), &[], Endpoint::Dialer);
        let Some(finding) = self.finding.get_mut(&query) else {
            return;
        };
        let Some(wanted) = &mut finding.wanted else { return };
        let addresses = wanted.not_tried(heard.unwrap_or_default());
        if addresses.is_empty() {
            return;
        }
        let dial = DialOpts::peer_id(peer)
            .condition(PeerCondition::Disconnected)
            .addresses(addresses)
            .build();
        if let Err(error) = self.swarm.dial(dial) {
            tracing::trace!(%peer, %error, "not dialled");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: usize) -> Multiaddr {
        format!("/ip4/192.0.2.{last}/tcp/4001").parse().unwrap()
    }

    #[test]
    fn a_search_dials_each_address_once_however_many_name_it() {
        let mut wanted = Wanted::new(PeerId::random());
        assert_eq!(wanted.not_tried(vec![address(1)]), [address(1)]);
        assert!(wanted.not_tried(vec![address(1)]).is_empty());
        assert_eq!(wanted.not_tried(vec![address(1), address(2)]), [address(2)]);
        let many = wanted.not_tried((0..=255).map(address).collect());
        assert_eq!(many.len(), MOST_TRIED - 2);
        assert!(wanted.not_tried(vec![address(255)]).is_empty());
    }
}
