mod start;

use crate::answers::Answers;
use crate::ask::{CallHead, RemoteReport};
use crate::calling::node_of;
use crate::company::SharedLooking;
use crate::data::Plane;
use crate::discovery::Found;
use crate::membership::Member;
use crate::missed::Missed;
use crate::moved::Searches;
use crate::offer;
use crate::peers::{Known, Peer, Peers};
use crate::per_peer::PerPeer;
use crate::reports::Reporter;
use crate::standing::Standing;
use crate::swarm::{Order, Situation, Traffic, Wires};
use crate::under_way::UnderWay;
use futures::future::BoxFuture;
use karman_space::LinkProfile;
use karman_types::{NodeId, Offer, TaskError, TaskRequest, TaskResponse};
use libp2p::{Multiaddr, PeerId};
use start::Threads;
use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

/// How a node takes part in its mesh.
#[derive(Clone, Debug)]
pub struct MeshOptions {
    /// Where it listens, UDP and TCP; on the next UDP port it takes calls directly. Port 0: the system chooses both.
    pub listen: SocketAddr,
    /// Nodes by which it comes into the mesh.
    pub entrances: Vec<Multiaddr>,
    /// Whether it looks for members on its own network (mDNS).
    pub find_neighbours: bool,
    /// How the links behave that leave it; nothing: as they are.
    pub links: Option<LinkProfile>,
}

/// The service that a node gives to other members.
pub trait Serve: Send + Sync + 'static {
    /// The longest body that it takes for this call, in bytes.
    ///
    /// # Errors
    /// When it does not take the call at all.
    fn most_input(&self, head: &CallHead) -> Result<u64, TaskError>;

    /// Does what a member asks for and may ask for, on the threads of the runtime in which the mesh was started. Dropping the
    /// future cancels it.
    fn serve(
        &self,
        from: Arc<Member>,
        head: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>>;

    /// What it has to give now; nothing while it shuts down.
    fn offer(&self) -> Option<Offer>;

    /// Calls under way on it. Those who ask what it offers are told, so that they give the next ones to others.
    fn busy(&self) -> u32;

    /// The cores that it has for them.
    fn cores(&self) -> u32;
}

/// A node's place in the mesh. Cheap to clone; the node leaves when the last clone is gone.
#[derive(Clone)]
pub struct Mesh(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) streams: libp2p_stream::Control,
    pub(crate) standing: Arc<Standing>,
    pub(crate) peers: Arc<Peers>,
    /// Sends the status reports of this node.
    pub(crate) reporter: Arc<Reporter>,
    /// What the DHT answered lately.
    pub(crate) found: Found,
    /// How deep it announces itself in the tree of all nodes.
    pub(crate) depth: AtomicUsize,
    /// When this node looks for others.
    pub(crate) looking: SharedLooking,
    /// Nodes that were searched for lately.
    pub(crate) searches: Searches,
    /// Nodes that did not answer lately.
    pub(crate) missed: Missed,
    /// Nodes that are asked now what they offer.
    pub(crate) asked: UnderWay<PeerId, Result<Known, TaskError>>,
    /// Nodes that calls over the swarm wait for.
    pub(crate) unheard: UnderWay<PeerId, ()>,
    /// Places for the work that each node is given by this one.
    pub(crate) works: PerPeer<Semaphore>,
    pub(crate) service: Arc<dyn Serve>,
    pub(crate) wires: Wires,
    pub(crate) me: PeerId,
    answers: Arc<Answers>,
    /// Nothing where it could not have a port: calls go over the swarm then.
    pub(crate) plane: Option<Arc<Plane>>,
    _threads: Threads,
}

impl Mesh {
    /// This node's key as libp2p writes it.
    pub fn me(&self) -> PeerId {
        self.0.me
    }

    /// What this node is in the mesh.
    pub fn standing(&self) -> &Arc<Standing> {
        &self.0.standing
    }

    /// Where this node can be reached.
    pub async fn addresses(&self) -> Vec<Multiaddr> {
        let (tell, told) = oneshot::channel();
        let _ = self.0.orders.send(Order::Addresses(tell)).await;
        let addresses = told.await.unwrap_or_default();
        addresses
            .into_iter()
            .map(|address| address.with_p2p(self.0.me).unwrap_or_else(|address| address))
            .collect()
    }

    /// How this node stands in the network.
    pub async fn situation(&self) -> Situation {
        let (tell, told) = oneshot::channel();
        let _ = self.0.orders.send(Order::Situation(tell)).await;
        let situation = told.await.unwrap_or_default();
        Situation {
            search: self.search_at(Instant::now()),
            ..situation
        }
    }

    /// Why the mesh did not let this node in when it last knocked.
    pub fn refusal(&self) -> Option<String> {
        self.0.standing.refusal()
    }

    /// Connects with the node at this address.
    pub async fn dial(&self, address: Multiaddr) {
        let _ = self.0.orders.send(Order::Dial(vec![address])).await;
    }

    /// Tries to reach a node now, at all addresses where it was ever met, besides other tries that may be under way.
    pub async fn connect(&self, node: PeerId) {
        let _ = self.0.orders.send(Order::Connect(node)).await;
    }

    /// Ends all connections with a node: its contact is over, and what is left of them would answer nobody.
    pub async fn disconnect(&self, node: PeerId) {
        if let Some(plane) = &self.0.plane {
            plane.disconnect(&node);
        }
        let _ = self.0.orders.send(Order::Disconnect(node)).await;
    }

    /// Whether there is a connection with the node.
    pub fn is_connected(&self, node: &PeerId) -> bool {
        self.0.peers.path(node).is_some()
    }

    /// The key of a node that this one has met, however long ago.
    pub fn key_of(&self, node: NodeId) -> Option<[u8; 32]> {
        self.0.standing.acquaintances().key(node)
    }

    /// Where a node said it was when this one last met it; a restart does not forget that.
    pub fn place_of(&self, node: NodeId) -> Vec<String> {
        self.0.standing.acquaintances().addresses(node)
    }

    /// All nodes that this one has ever met.
    pub fn acquaintances(&self) -> Vec<NodeId> {
        self.0.standing.acquaintances().nodes()
    }

    /// Announces what the node offers now, and nothing that it no longer does; those who have asked it lately are told.
    pub async fn announce(&self) {
        self.0.reporter.offer_changed();
        let Some(offer) = self.0.service.offer() else {
            return;
        };
        let keys = offer::keys_of(&offer, node_of(&self.0.me), self.0.depth.load(Ordering::Relaxed));
        let _ = self.0.orders.send(Order::Announce(keys)).await;
    }

    /// Announces nothing any more.
    pub async fn withdraw(&self) {
        self.0.reporter.offer_changed();
        let _ = self.0.orders.send(Order::Announce(HashSet::new())).await;
    }

    /// Waits until an issuer has let this node in.
    ///
    /// # Errors
    /// `unavailable` when none has by then.
    pub async fn admitted(&self, patience: Duration) -> Result<Member, TaskError> {
        let started = Instant::now();
        while started.elapsed() < patience {
            if let Some(member) = self.0.standing.own() {
                return Ok(member);
            }
            if let Some(why) = self.0.standing.refusal() {
                return Err(TaskError::denied(format!(
                    "the mesh does not let this node in: {why}"
                )));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let places = self.0.standing.looked_for_at();
        let looked = match places.is_empty() {
            true => String::new(),
            false => format!(" It was looked for at {}.", places.join(", ")),
        };
        Err(TaskError::unavailable("no issuer let this node in").with_hint(format!(
            "is the machine that made the invitation up, with UDP and TCP 7117 open?{looked} Where it is behind a router or a cloud's NAT, or in a \
             container, have it invite with `--address /ip4/PUBLIC-ADDRESS/udp/7117/quic-v1`",
        )))
    }

    /// Every node that this one has met, and what it knows of it.
    pub fn peers(&self) -> Vec<Peer> {
        let mut peers = self.0.peers.list();
        for peer in &mut peers {
            peer.direct_calls = self.0.plane.as_ref().is_some_and(|plane| plane.reaches(&peer.id));
            peer.sent = self.0.wires.meter.sent_to(&peer.id);
        }
        peers
    }

    /// What each protocol of the swarm has sent and received. Direct calls are not among them.
    pub fn traffic(&self) -> Vec<Traffic> {
        self.0.wires.meter.read()
    }

    /// Lets the links that leave this node behave by another profile from now on.
    ///
    /// # Errors
    /// `invalid` when the node was started without one.
    pub fn change_links(&self, profile: LinkProfile) -> Result<(), TaskError> {
        let lines = self.0.wires.lines.as_ref();
        let lines =
            lines.ok_or_else(|| TaskError::invalid("this node was started without a link profile"))?;
        lines.change(profile);
        Ok(())
    }

    /// Counts how often a node has come into reach; closed when this one has left the mesh.
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.0.peers.arrivals()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(plane) = &self.plane {
            plane.close();
        }
    }
}
