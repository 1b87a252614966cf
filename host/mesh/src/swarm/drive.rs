//! The loop that owns the swarm: orders come in, events of the network change the book of peers.

use super::behaviour::{Behaviour, BehaviourEvent};
use super::transport::gated;
use crate::gate::GateError;
use crate::peers::{Path, Peers};
use crate::standing::Standing;
use futures::StreamExt;
use libp2p::core::ConnectedPoint;
use libp2p::identity::Keypair;
use libp2p::kad::{self, GetProvidersOk, QueryId, QueryResult, RecordKey};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::SwarmEvent;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::{Multiaddr, PeerId, Swarm, identify, mdns, ping};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{MissedTickBehavior, interval};

/// How often memberships are looked through, and nodes that should be there are dialled again.
const ROUNDS: Duration = Duration::from_secs(2);
/// How long a connection may stay that nobody uses.
const IDLE: Duration = Duration::from_secs(600);
/// Nodes whose addresses are remembered.
const MOST_MET: usize = 32;

/// What the rest of the mesh wants of the swarm.
pub(crate) enum Order {
    /// Announce these keys and no others.
    Announce(HashSet<RecordKey>),
    /// Who announced this key.
    Find(RecordKey, oneshot::Sender<HashSet<PeerId>>),
    /// Meet the node at this address.
    Dial(Multiaddr),
    /// Where this node can be reached.
    Addresses(oneshot::Sender<Vec<Multiaddr>>),
}

struct Finding {
    found: HashSet<PeerId>,
    tell: oneshot::Sender<HashSet<PeerId>>,
}

pub(crate) struct Driver {
    swarm: Swarm<Behaviour>,
    orders: mpsc::Receiver<Order>,
    standing: Arc<Standing>,
    peers: Arc<Peers>,
    finding: HashMap<QueryId, Finding>,
    announced: HashSet<RecordKey>,
    /// Nodes by which this one comes into the mesh.
    entrances: Vec<Multiaddr>,
    /// Where others were met, to come back to after a restart; and whether that is news.
    met: BTreeMap<PeerId, Multiaddr>,
    met_others: bool,
    /// The routing table has grown since the offers were announced.
    tell_again: bool,
}

impl Driver {
    pub(crate) fn new(
        keypair: Keypair,
        standing: Arc<Standing>,
        peers: Arc<Peers>,
        orders: mpsc::Receiver<Order>,
        entrances: Vec<Multiaddr>,
        find_neighbours: bool,
    ) -> Result<Self, GateError> {
        let transport = gated(&keypair, standing.clone())?;
        let behaviour = Behaviour::new(&keypair, find_neighbours);
        // QUIC gets a head start on TCP, so that TCP is what is left where UDP does not pass.
        let config = libp2p::swarm::Config::with_tokio_executor()
            .with_idle_connection_timeout(IDLE)
            .with_smart_dial();
        let id = keypair.public().to_peer_id();
        let remembered: Vec<Multiaddr> = standing
            .entrances()
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        Ok(Self {
            swarm: Swarm::new(transport, behaviour, id, config),
            orders,
            standing,
            peers,
            finding: HashMap::new(),
            announced: HashSet::new(),
            entrances: [entrances, remembered].concat(),
            met: BTreeMap::new(),
            met_others: false,
            tell_again: false,
        })
    }

    pub(crate) fn streams(&self) -> libp2p_stream::Control {
        self.swarm.behaviour().streams.new_control()
    }

    pub(crate) fn listen(&mut self, address: Multiaddr) -> Result<(), String> {
        self.swarm
            .listen_on(address.clone())
            .map(|_| ())
            .map_err(|error| format!("cannot listen on {address}: {error}"))
    }

    /// Runs until every handle to the mesh is gone.
    pub(crate) async fn run(mut self) {
        let mut rounds = interval(ROUNDS);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.order(order),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.event(event),
                _ = rounds.tick() => self.round(),
            }
        }
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Announce(keys) => self.announce(keys),
            Order::Find(key, tell) => {
                let query = self.swarm.behaviour_mut().kad.get_providers(key);
                let found = HashSet::new();
                self.finding.insert(query, Finding { found, tell });
            }
            Order::Dial(address) => self.dial(vec![address]),
            Order::Addresses(tell) => {
                let _ = tell.send(self.swarm.listeners().cloned().collect());
            }
        }
    }

    fn announce(&mut self, keys: HashSet<RecordKey>) {
        let kad = &mut self.swarm.behaviour_mut().kad;
        for gone in self.announced.difference(&keys) {
            kad.stop_providing(gone);
        }
        for new in keys.difference(&self.announced) {
            if let Err(error) = kad.start_providing(new.clone()) {
                tracing::warn!(%error, "an offer is not announced");
            }
        }
        self.announced = keys;
    }

    /// Meets the nodes at these addresses; those of one node are tried together.
    fn dial(&mut self, addresses: Vec<Multiaddr>) {
        let mut of_peers: BTreeMap<PeerId, Vec<Multiaddr>> = BTreeMap::new();
        let mut unknown: Vec<DialOpts> = Vec::new();
        for address in addresses {
            match address.iter().last() {
                Some(Protocol::P2p(peer)) => of_peers.entry(peer).or_default().push(address),
                _ => unknown.push(address.into()),
            }
        }
        of_peers.remove(self.swarm.local_peer_id());
        let known = of_peers.into_iter().map(|(peer, addresses)| {
            DialOpts::peer_id(peer)
                .condition(PeerCondition::DisconnectedAndNotDialing)
                .addresses(addresses)
                .build()
        });
        for dial in known.chain(unknown) {
            if let Err(error) = self.swarm.dial(dial) {
                tracing::debug!(%error, "not dialled");
            }
        }
    }

    /// Looks after what no event brings: memberships that ran out, a mesh that is not there yet.
    fn round(&mut self) {
        for peer in self.standing.no_longer_members() {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
        if self.swarm.connected_peers().next().is_none() {
            self.dial(self.entrances.clone());
        }
        if std::mem::take(&mut self.met_others) {
            let addresses: Vec<String> = self.met.values().map(ToString::to_string).collect();
            self.standing.remember_entrances(&addresses);
        }
        if std::mem::take(&mut self.tell_again) {
            let keys = std::mem::take(&mut self.announced);
            self.announce(keys);
        }
    }

    fn event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => {
                tracing::info!(%address, "the mesh can reach this node at");
                // Without it, records of what this node provides would not say where it is.
                self.swarm.add_external_address(address);
            }
            SwarmEvent::ExpiredListenAddr { address, .. } => self.swarm.remove_external_address(&address),
            SwarmEvent::ConnectionEstablished {
                peer_id, endpoint, ..
            } => self.connected(peer_id, &endpoint),
            SwarmEvent::ConnectionClosed {
                peer_id,
                num_established: 0,
                ..
            } => self.peers.disconnected(&peer_id),
            SwarmEvent::OutgoingConnectionError { peer_id, error, .. } => {
                tracing::debug!(?peer_id, %error, "a node cannot be reached");
            }
            SwarmEvent::Behaviour(event) => self.protocol(event),
            _ => {}
        }
    }

    fn meet(&mut self, peer: PeerId, address: Multiaddr) {
        if self.met.len() < MOST_MET || self.met.contains_key(&peer) {
            self.met_others |= self.met.insert(peer, address.clone()) != Some(address);
        }
    }

    fn connected(&mut self, peer: PeerId, endpoint: &ConnectedPoint) {
        let path = Path::of(endpoint);
        if endpoint.is_listener() && path != Path::Relayed {
            // A member has dialled this node, so others can: it serves the DHT from now on.
            self.swarm.behaviour_mut().kad.set_mode(Some(kad::Mode::Server));
        }
        if let ConnectedPoint::Dialer { address, .. } = endpoint
            && let Ok(address) = address.clone().with_p2p(peer)
        {
            self.meet(peer, address);
        }
        self.peers.connected(peer, path, self.standing.member(&peer));
    }

    fn protocol(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Identify(identify::Event::Received { peer_id, info, .. }) => {
                if !self.met.contains_key(&peer_id)
                    && let Some(first) = info.listen_addrs.first()
                    && let Ok(address) = first.clone().with_p2p(peer_id)
                {
                    self.meet(peer_id, address);
                }
                for address in info.listen_addrs {
                    self.swarm.behaviour_mut().kad.add_address(&peer_id, address);
                }
            }
            BehaviourEvent::Mdns(mdns::Event::Discovered(neighbours)) => {
                let named = |(peer, address): (PeerId, Multiaddr)| address.with_p2p(peer).ok();
                self.dial(neighbours.into_iter().filter_map(named).collect());
            }
            BehaviourEvent::Ping(ping::Event {
                peer,
                result: Ok(round_trip),
                ..
            }) => self.peers.measured(&peer, round_trip),
            BehaviourEvent::Kad(kad::Event::RoutingUpdated {
                is_new_peer: true, ..
            }) => self.tell_again = true,
            BehaviourEvent::Kad(kad::Event::OutboundQueryProgressed { id, result, step, .. }) => {
                if let QueryResult::GetProviders(Ok(GetProvidersOk::FoundProviders { providers, .. })) =
                    &result
                    && let Some(finding) = self.finding.get_mut(&id)
                {
                    finding.found.extend(providers);
                }
                if step.last
                    && let Some(finding) = self.finding.remove(&id)
                {
                    let _ = finding.tell.send(finding.found);
                }
            }
            _ => {}
        }
    }
}
