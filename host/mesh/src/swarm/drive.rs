//! The loop that owns the swarm: orders come in, events of the network change the book of peers.

use super::behaviour::{Behaviour, BehaviourEvent};
use super::crowd::Crowd;
use super::finding::{Aim, Finding, Seen};
use super::leaving::part;
use super::met::Met;
use super::paths::innermost;
use super::punch::Punching;
use super::reach::{Reach, ip_of};
use super::relays::{Relays, is_circuit};
use super::restarted::Restarted;
use super::situation::{Failures, Situation};
use super::table::Table;
use super::telling::{Telling, spread};
use super::traffic::Meter;
use super::transport::{PATIENCE, Wires, gated};
use super::turns::Turns;
use crate::gate::GateError;
use crate::peers::Peers;
use crate::standing::Standing;
use futures::StreamExt;
use libp2p::identity::Keypair;
use libp2p::kad::{self, QueryId, RecordKey};
use libp2p::multiaddr::Protocol;
use libp2p::swarm::dial_opts::{DialOpts, PeerCondition};
use libp2p::swarm::{ConnectionId, SwarmEvent};
use libp2p::{Multiaddr, PeerId, Swarm, autonat, dcutr, identify, mdns, ping, relay};
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_blocking;
use tokio::time::sleep;

/// How soon after an event the loop looks after what no event brings, and how often while something is due soon.
const ROUNDS: Duration = Duration::from_secs(1);
/// The same while nothing happens: memberships run out, and relays are asked again.
const QUIET: Duration = Duration::from_secs(5);
/// How often it looks whose membership has run out, where there is no news that put anybody out: there may be thousands, and each call that
/// comes in asks by itself.
const LOOKS: Duration = Duration::from_secs(10);
/// How long a connection may stay that nobody uses. One costs some 30 bytes a second, and a search of the DHT begins dozens.
const IDLE: Duration = Duration::from_secs(120);
/// Addresses that strangers are told: an invitation has room for eight.
const MOST_TOLD: usize = 6;
const MOST_TOLD_CIRCUITS: usize = 2;

/// A command to the swarm.
pub(crate) enum Order {
    /// Announce these keys and no others.
    Announce(HashSet<RecordKey>),
    /// Who announced this key.
    Find(RecordKey, Aim, oneshot::Sender<Seen>),
    /// Meet the nodes at these addresses.
    Dial(Vec<Multiaddr>),
    /// Try to reach members, this many of those that were met before; where there is no limit, at every entrance, too.
    Look(Option<usize>),
    /// Try to reach this node, whatever else is tried.
    Connect(PeerId),
    /// End all connections with this node.
    Disconnect(PeerId),
    /// Forget what this node has announced: it leaves.
    Forget(PeerId),
    /// End all connections: this node leaves.
    Leave(oneshot::Sender<()>),
    /// Where this node can be reached.
    Addresses(oneshot::Sender<Vec<Multiaddr>>),
    /// How this node stands in the network.
    Situation(oneshot::Sender<Situation>),
}

pub(crate) struct Driver {
    pub(super) swarm: Swarm<Behaviour>,
    orders: mpsc::Receiver<Order>,
    pub(super) standing: Arc<Standing>,
    /// When memberships were looked through last, and after which news.
    looked: Option<(Instant, u64)>,
    pub(super) peers: Arc<Peers>,
    pub(super) finding: HashMap<QueryId, Finding>,
    pub(super) announced: HashSet<RecordKey>,
    /// Those of them that were never announced.
    pub(super) fresh: HashSet<RecordKey>,
    /// Those of them that are to be announced next.
    pub(super) to_tell: VecDeque<RecordKey>,
    /// Nodes by which this one comes into the mesh.
    pub(super) entrances: Vec<Multiaddr>,
    /// Where others were met.
    pub(super) met: Met,
    /// When the offers are announced anew.
    pub(super) telling: Telling,
    pub(super) turns: Turns,
    pub(super) table: Table,
    pub(super) restarted: Restarted,
    /// It listens on every address of the machine: the loopback is nothing to announce.
    pub(super) everywhere: bool,
    pub(super) reach: Reach,
    pub(super) relays: Relays,
    pub(super) punching: Punching,
    /// When this node met the first other one.
    pub(super) met_first: Option<Instant>,
    /// Nodes that were dialled over TCP, until they say whether they take QUIC too.
    pub(super) over_tcp: HashMap<PeerId, Multiaddr>,
    /// Dials for a better path than there is.
    pub(super) tries: HashSet<ConnectionId>,
    pub(super) failures: Failures,
    /// Connections that may have to make room.
    pub(super) crowd: Crowd,
    meter: Arc<Meter>,
    /// Who waits until this node has left.
    leaving: Option<oneshot::Sender<()>>,
}

impl Driver {
    pub(crate) fn new(
        keypair: Keypair,
        standing: Arc<Standing>,
        peers: Arc<Peers>,
        orders: mpsc::Receiver<Order>,
        entrances: Vec<Multiaddr>,
        find_neighbours: bool,
        wires: Wires,
    ) -> Result<Self, GateError> {
        let id = keypair.public().to_peer_id();
        let (over_relays, relayed) = relay::client::new(id);
        let meter = wires.meter.clone();
        let transport = gated(&keypair, standing.clone(), over_relays, wires, PATIENCE)?;
        let behaviour = Behaviour::new(&keypair, find_neighbours, relayed, standing.counts());
        // QUIC gets a head start on TCP, so that TCP is what is left where UDP does not pass.
        let config = libp2p::swarm::Config::with_tokio_executor()
            .with_idle_connection_timeout(IDLE)
            .with_smart_dial();
        let remembered: Vec<Multiaddr> = standing
            .entrances()
            .iter()
            .filter_map(|text| text.parse().ok())
            .collect();
        Ok(Self {
            swarm: Swarm::new(transport, behaviour, id, config),
            orders,
            standing,
            looked: None,
            peers,
            finding: HashMap::new(),
            announced: HashSet::new(),
            fresh: HashSet::new(),
            to_tell: VecDeque::new(),
            entrances: [entrances, remembered].concat(),
            met: Met::default(),
            telling: Telling::new(),
            turns: Turns::new(Instant::now(), fastrand::f64()),
            table: Table::default(),
            restarted: Restarted::default(),
            everywhere: false,
            reach: Reach::default(),
            relays: Relays::default(),
            punching: Punching::default(),
            over_tcp: HashMap::new(),
            met_first: None,
            tries: HashSet::new(),
            failures: Failures::default(),
            crowd: Crowd::default(),
            meter,
            leaving: None,
        })
    }

    pub(crate) fn streams(&self) -> libp2p_stream::Control {
        self.swarm.behaviour().streams.new_control()
    }

    pub(crate) fn listen(&mut self, address: Multiaddr) -> Result<(), GateError> {
        self.everywhere |= ip_of(&address).is_some_and(|ip| ip.is_unspecified());
        self.swarm
            .listen_on(address.clone())
            .map(|_| ())
            .map_err(|error| GateError::Listen {
                address: address.to_string(),
                why: innermost(&error),
            })
    }

    /// Runs until every handle to the mesh is gone, or this node leaves.
    pub(crate) async fn run(mut self) {
        let mut news = self.standing.news();
        let mut round = pin!(sleep(ROUNDS));
        while self.leaving.is_none() {
            tokio::select! {
                order = self.orders.recv() => match order {
                    Some(order) => self.order(order),
                    None => return,
                },
                event = self.swarm.select_next_some() => self.event(event),
                Ok(()) = news.changed() => {}
                () = &mut round => {
                    self.round();
                    let pause = if self.is_due_soon() { ROUNDS } else { QUIET };
                    round.as_mut().reset(tokio::time::Instant::now() + pause);
                    continue;
                }
            }
            let soon = tokio::time::Instant::now() + ROUNDS;
            if round.deadline() > soon {
                round.as_mut().reset(soon);
            }
        }
        part(self.swarm).await;
        self.leaving.map(|gone| gone.send(()));
    }

    fn order(&mut self, order: Order) {
        match order {
            Order::Announce(keys) => self.announce(keys),
            Order::Find(key, aim, tell) => self.find(key, aim, tell),
            Order::Dial(addresses) => self.dial(addresses, PeerCondition::Disconnected),
            Order::Look(most) => self.look(most),
            Order::Connect(peer) => self.meet_again(peer),
            Order::Disconnect(peer) => drop(self.swarm.disconnect_peer_id(peer)),
            Order::Forget(peer) => self.swarm.behaviour_mut().kad.store_mut().has_left(&peer),
            Order::Leave(gone) => self.leaving = Some(gone),
            Order::Addresses(tell) => {
                let _ = tell.send(self.addresses());
            }
            Order::Situation(tell) => {
                let _ = tell.send(self.situation());
            }
        }
    }

    /// Where strangers that were invited find this node; over relays, where one holds a place for it.
    fn addresses(&self) -> Vec<Multiaddr> {
        let (circuits, mut announced): (Vec<Multiaddr>, Vec<Multiaddr>) =
            self.swarm.external_addresses().cloned().partition(is_circuit);
        if announced.is_empty() {
            // Nothing but the loopback: for tries on one machine.
            let own = self.swarm.listeners().filter(|address| !is_circuit(address));
            announced = own.cloned().collect();
        }
        announced.truncate(MOST_TOLD);
        announced.extend(circuits.into_iter().take(MOST_TOLD_CIRCUITS));
        announced
    }

    /// Meets the nodes at these addresses; those of one node are tried together. What somebody has just said is tried even while
    /// other addresses of the node are.
    pub(super) fn dial(&mut self, addresses: Vec<Multiaddr>, condition: PeerCondition) {
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
                .condition(condition)
                .addresses(addresses)
                .extend_addresses_through_behaviour()
                .build()
        });
        for dial in known.chain(unknown) {
            if let Err(error) = self.swarm.dial(dial) {
                tracing::debug!(%error, "not dialled");
            }
        }
    }

    /// Looks after what no event brings: memberships that ran out, what has to be remembered or announced.
    fn round(&mut self) {
        self.put_out();
        self.make_room();
        if let Some(addresses) = self.met.due(Instant::now()) {
            let standing = self.standing.clone();
            // The loop does not wait for the disk.
            spawn_blocking(move || standing.remember_entrances(&addresses));
        }
        self.reach.forget(Instant::now());
        self.settle();
        self.punch_again();
        self.announce_due();
    }

    /// Whether something waits that is not to wait for long.
    fn is_due_soon(&self) -> bool {
        // Whoever is alone announces nothing, and is not to wake for it.
        let tells = self.met_first.is_some() && (self.telling.is_pending() || !self.to_tell.is_empty());
        tells || self.punching.is_due_within(Instant::now(), QUIET)
    }

    /// Ends the connections with those who are members no longer.
    fn put_out(&mut self) {
        let (now, news) = (Instant::now(), *self.standing.news().borrow());
        let looked = self
            .looked
            .filter(|(when, after)| *after == news && now.duration_since(*when) < LOOKS);
        if looked.is_some() {
            return;
        }
        self.looked = Some((now, news));
        for peer in self.standing.no_longer_members() {
            let _ = self.swarm.disconnect_peer_id(peer);
        }
    }

    /// Ends connections that this node has begun and does not use, where there are too many.
    fn make_room(&mut self) {
        let established = self.swarm.network_info().connection_counters().num_established();
        let is_used = |peer: &PeerId| {
            self.meter.has_streams(peer) || self.peers.is_in_use(peer) || self.relays.is_place(peer)
        };
        for connection in self.crowd.ends(established as usize, Instant::now(), is_used) {
            self.swarm.close_connection(connection);
        }
    }

    fn event(&mut self, event: SwarmEvent<BehaviourEvent>) {
        match event {
            SwarmEvent::NewListenAddr { address, .. } => self.listening(address),
            SwarmEvent::ExpiredListenAddr { address, .. } => self.not_listening(&address),
            SwarmEvent::ListenerClosed {
                listener_id,
                addresses,
                reason,
            } => {
                addresses.iter().for_each(|address| self.not_listening(address));
                if let (Some(relay), Err(error)) = (self.relays.closed(&listener_id), reason) {
                    tracing::debug!(%relay, %error, "a place at a relay is gone");
                }
            }
            SwarmEvent::ExternalAddrConfirmed { .. } | SwarmEvent::ExternalAddrExpired { .. } => {
                self.telling.changed(Instant::now(), Duration::ZERO);
            }
            SwarmEvent::ConnectionEstablished {
                peer_id,
                connection_id,
                endpoint,
                num_established,
                ..
            } => self.connected(peer_id, connection_id, &endpoint, num_established.get() == 1),
            SwarmEvent::ConnectionClosed {
                peer_id,
                connection_id,
                ..
            } => self.closed(peer_id, connection_id),
            SwarmEvent::OutgoingConnectionError {
                peer_id,
                connection_id,
                error,
            } => self.not_connected(peer_id, connection_id, &error),
            SwarmEvent::Behaviour(event) => self.protocol(event),
            _ => {}
        }
    }

    fn protocol(&mut self, event: BehaviourEvent) {
        match event {
            BehaviourEvent::Identify(identify::Event::Received {
                peer_id,
                connection_id,
                info,
            }) => self.introduced(peer_id, connection_id, info),
            BehaviourEvent::Punch(dcutr::Event {
                remote_peer_id,
                result: Err(error),
            }) => tracing::debug!(peer = %remote_peer_id, %error, "no hole was punched"),
            BehaviourEvent::Mdns(mdns::Event::Discovered(neighbours)) => self.heard(neighbours),
            BehaviourEvent::Relayed(relay::client::Event::ReservationReqAccepted {
                relay_peer_id, ..
            }) => {
                self.relays.agrees(relay_peer_id, Instant::now());
            }
            BehaviourEvent::Ping(ping::Event {
                peer,
                connection,
                result: Ok(round_trip),
            }) => self.peers.measured(&peer, connection, round_trip),
            BehaviourEvent::Ping(ping::Event {
                peer,
                connection,
                result: Err(error),
            }) => {
                // What is left of a circuit whose other end is gone looks like a connection.
                tracing::debug!(%peer, %error, "a connection is dead");
                self.swarm.close_connection(connection);
            }
            BehaviourEvent::Reachable(autonat::v2::client::Event {
                tested_addr, result, ..
            }) => {
                match result {
                    Ok(()) => self.reach.confirmed(&tested_addr, Instant::now()),
                    Err(_) => self.reach.refuted(&tested_addr),
                }
                self.settle();
            }
            BehaviourEvent::Kad(kad::Event::RoutingUpdated {
                is_new_peer: true, ..
            }) => {
                let known = self.known();
                let wait = spread(known, fastrand::f64());
                self.telling.grown(Instant::now(), known, wait);
            }
            BehaviourEvent::Kad(kad::Event::OutboundQueryProgressed { id, result, step, .. }) => {
                self.found(id, &result, step.last);
            }
            _ => {}
        }
    }
}
