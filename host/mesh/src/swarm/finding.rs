//! Searches of the DHT: who has announced a key, and where one of them is that is wanted.

use super::behaviour::NEXT_TO_A_KEY;
use super::drive::Driver;
use super::records::MOST_OF_A_KEY;
use libp2p::core::Endpoint;
use libp2p::kad::{GetProvidersOk, QueryId, QueryResult, RecordKey};
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, NetworkBehaviour};
use libp2p::{Multiaddr, PeerId};
use std::collections::{HashMap, HashSet};
use tokio::sync::oneshot;

/// Addresses at which one search dials the node that is wanted: answers are hearsay.
const MOST_TRIED: usize = 64;
/// Addresses of one node that a list has.
const MOST_LISTED: usize = 8;

/// What a search of the DHT is for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Aim {
    /// To meet all who have announced the key.
    All,
    /// To meet this one of them, and no other.
    One(PeerId),
    /// To know who they are, and where; nobody is met.
    List,
}

/// What a search has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Who has announced the key, this node left out; and where they are, if that was the aim.
    pub(crate) nodes: HashMap<PeerId, Vec<Multiaddr>>,
    /// How many have named somebody.
    pub(crate) answers: usize,
}

impl Seen {
    /// Whether there may be more: an answer names eight, drawn at random from up to 64. Of fewer than eight it is whole. Of `n`, a node is in
    /// none of `k` answers with a chance of `(1 - 8/n)^k`; what has seen fewer than `2k` misses at most 0.4 % of them.
    pub(crate) fn is_part(&self) -> bool {
        let seen = self.nodes.len();
        seen >= NEXT_TO_A_KEY.get() && seen >= 2 * self.answers
    }
}

pub(super) struct Finding {
    seen: Seen,
    aim: Aim,
    wanted: Option<Wanted>,
    tell: oneshot::Sender<Seen>,
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
    pub(super) fn find(&mut self, key: RecordKey, aim: Aim, tell: oneshot::Sender<Seen>) {
        let query = self.swarm.behaviour_mut().kad.get_providers(key);
        let wanted = match aim {
            Aim::One(peer) => Some(Wanted::new(peer)),
            Aim::All | Aim::List => None,
        };
        let seen = Seen::default();
        let finding = Finding {
            seen,
            aim,
            wanted,
            tell,
        };
        self.finding.insert(query, finding);
    }

    /// A search has an answer, or its last.
    pub(super) fn found(&mut self, query: QueryId, result: &QueryResult, last: bool) {
        if let QueryResult::GetProviders(Ok(GetProvidersOk::FoundProviders { providers, .. })) = result
            && let Some(finding) = self.finding.get_mut(&query)
        {
            let me = self.swarm.local_peer_id();
            let named = providers
                .iter()
                .filter(|provider| *provider != me)
                .take(MOST_OF_A_KEY);
            let before = finding.seen.nodes.len();
            for provider in named {
                finding.seen.nodes.entry(*provider).or_default();
            }
            finding.seen.answers += usize::from(!providers.is_empty());
            let has_news = finding.seen.nodes.len() > before;
            match finding.aim {
                Aim::All => self.come_to(providers),
                Aim::One(wanted) if providers.contains(&wanted) => self.follow(query, wanted),
                Aim::List if has_news => self.list(query, providers),
                Aim::One(_) | Aim::List => {}
            }
        }
        if last && let Some(finding) = self.finding.remove(&query) {
            let _ = finding.tell.send(finding.seen);
        }
    }

    /// Notes where these are: that is known as long as the search is under way.
    fn list(&mut self, query: QueryId, providers: &HashSet<PeerId>) {
        for provider in providers {
            let heard = self.heard_of(*provider);
            let at = heard.into_iter().filter_map(|at| at.with_p2p(*provider).ok());
            if let Some(finding) = self.finding.get_mut(&query)
                && let Some(listed) = finding.seen.nodes.get_mut(provider)
                && listed.is_empty()
            {
                *listed = at.take(MOST_LISTED).collect();
            }
        }
    }

    /// What Kademlia would add to a dial: where its table has the node, and where the searches that are under way have heard of it.
    fn heard_of(&mut self, peer: PeerId) -> Vec<Multiaddr> {
        let kad = &mut self.swarm.behaviour_mut().kad;
        let unused = ConnectionId::new_unchecked(0);
        let heard = kad.handle_pending_outbound_connection(unused, Some(peer), &[], Endpoint::Dialer);
        heard.unwrap_or_default()
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
        let heard = self.heard_of(peer);
        let Some(finding) = self.finding.get_mut(&query) else {
            return;
        };
        let Some(wanted) = &mut finding.wanted else { return };
        let addresses = wanted.not_tried(heard);
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

    /// Somebody who has seen so many nodes in so many answers.
    fn seen(nodes: usize, answers: usize) -> Seen {
        let nodes = std::iter::repeat_with(|| (PeerId::random(), Vec::new())).take(nodes);
        let nodes = nodes.collect();
        Seen { nodes, answers }
    }

    #[test]
    fn a_search_is_whole_where_answers_had_room_or_most_were_named_again_and_again() {
        let whole = [(0, 0), (7, 1), (7, 8), (8, 5), (9, 5), (15, 8)];
        let part = [(8, 1), (8, 4), (16, 8), (40, 8), (64, 8)];
        assert!(
            whole
                .iter()
                .all(|(nodes, answers)| !seen(*nodes, *answers).is_part())
        );
        assert!(
            part.iter()
                .all(|(nodes, answers)| seen(*nodes, *answers).is_part())
        );
    }

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
