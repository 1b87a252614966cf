//! How a node comes into its mesh.

use super::{Inner, Mesh, MeshOptions, Serve};
use crate::acquaintances::write_changes;
use crate::answers::Answers;
use crate::calling::{CALL, answer_calls};
use crate::company::{Looking, SharedLooking, keep_company, keep_listening};
use crate::data::Plane;
use crate::discovery::{Found, keep_depth};
use crate::emulate::Lines;
use crate::farewell::{FAREWELL, hear_farewells};
use crate::gate::GateError;
use crate::gate::door::{DOOR, answer_door};
use crate::members::{MEMBERS, tell_members};
use crate::missed::Missed;
use crate::moved::Searches;
use crate::peers::Peers;
use crate::per_peer::PerPeer;
use crate::renewal::{AGAIN, keep_up, show_again};
use crate::reports::{OFFER, look, tell_offers};
use crate::standing::Standing;
use crate::swarm::{Driver, Wires};
use crate::under_way::UnderWay;
use libp2p::Multiaddr;
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::mpsc;

const ORDERS: usize = 1024;
/// The swarm has threads of its own: a guest never runs on them.
const THREADS: usize = 2;

impl Mesh {
    /// Takes the node into its mesh: listens, meets the entrances, announces what `service` offers. The swarm gets threads of
    /// its own; calls are made and served on those of the runtime that this is called in, so that none changes threads on
    /// its way from the link to the guest and back.
    ///
    /// # Errors
    /// When the address cannot be taken or the network is not there.
    pub fn start(
        options: MeshOptions,
        seed: &[u8; 32],
        standing: Arc<Standing>,
        service: Arc<dyn Serve>,
    ) -> Result<Self, GateError> {
        let callers = Handle::current();
        let (runtime, threads) = Threads::start()?;
        let _inside = threads.enter();
        let keypair =
            Keypair::ed25519_from_bytes(*seed).map_err(|error| GateError::Broken(error.to_string()))?;
        let me = keypair.public().to_peer_id();
        let wires = Wires {
            meter: Arc::default(),
            lines: options.links.map(|links| Arc::new(Lines::new(links))),
        };
        let peers = Arc::new(Peers::default());
        let answers = Arc::new(Answers::new(standing.clone(), service.clone(), callers.clone()));
        let plane = Plane::start(
            &keypair,
            calls_at(options.listen),
            standing.clone(),
            answers.clone(),
            callers,
            wires.clone(),
        );
        let plane = plane
            .inspect_err(|error| tracing::warn!(%error, "this node takes no direct calls"))
            .ok();
        let (orders, taken) = mpsc::channel(ORDERS);
        let mut driver = Driver::new(
            keypair,
            standing.clone(),
            peers.clone(),
            taken,
            options.entrances,
            options.find_neighbours,
            wires.clone(),
        )?;
        for address in addresses(options.listen) {
            driver.listen(address)?;
        }
        let mesh = Arc::new(Inner {
            orders,
            streams: driver.streams(),
            standing,
            peers,
            reporter: Arc::default(),
            found: Found::default(),
            depth: AtomicUsize::new(0),
            looking: SharedLooking::new(Looking::new(Instant::now())),
            searches: Searches::default(),
            missed: Missed::default(),
            asked: UnderWay::default(),
            unheard: UnderWay::default(),
            works: PerPeer::default(),
            service,
            wires,
            me,
            answers,
            plane,
            _threads: runtime,
        });
        mesh.take_part(driver, &threads);
        Ok(Self(mesh))
    }
}

impl Inner {
    /// Drives the swarm, answers what comes over it, and looks after this node's place in it.
    fn take_part(self: &Arc<Self>, driver: Driver, threads: &Handle) {
        let mut streams = self.streams.clone();
        let mut incoming = |protocol| streams.accept(protocol).expect("registered once");
        let (calls, questions, news) = (incoming(CALL), incoming(OFFER), incoming(AGAIN));
        let (whom, led, leaving) = (incoming(MEMBERS), incoming(DOOR), incoming(FAREWELL));
        self.standing.opens_ways(self.streams.clone());
        threads.spawn(driver.run());
        threads.spawn(write_changes(Arc::downgrade(&self.standing)));
        threads.spawn(answer_calls(self.answers.clone(), self.plane.clone(), calls));
        threads.spawn(tell_offers(Arc::downgrade(self), questions));
        threads.spawn(look(Arc::downgrade(self)));
        threads.spawn(show_again(Arc::downgrade(self), news));
        threads.spawn(answer_door(Arc::downgrade(self), led));
        threads.spawn(tell_members(Arc::downgrade(self), whom));
        threads.spawn(hear_farewells(Arc::downgrade(self), leaving));
        threads.spawn(keep_up(Arc::downgrade(self)));
        threads.spawn(keep_company(Arc::downgrade(self)));
        threads.spawn(keep_listening(Arc::downgrade(self)));
        threads.spawn(keep_depth(Arc::downgrade(self)));
    }
}

/// Where to listen: QUIC and TCP on the same port.
fn addresses(listen: SocketAddr) -> [Multiaddr; 2] {
    let ip = Multiaddr::from(listen.ip());
    [
        ip.clone()
            .with(Protocol::Udp(listen.port()))
            .with(Protocol::QuicV1),
        ip.with(Protocol::Tcp(listen.port())),
    ]
}

/// Calls come on the UDP port after the one that the swarm listens on.
fn calls_at(listen: SocketAddr) -> SocketAddr {
    let port = match listen.port() {
        0 => 0,
        port => port.checked_add(1).unwrap_or_default(),
    };
    SocketAddr::new(listen.ip(), port)
}

/// The swarm's threads. What holds them may be dropped on a thread of another runtime, where waiting for them is not allowed: the
/// last handle to the mesh, or a start that failed.
pub(super) struct Threads(Option<Runtime>);

impl Threads {
    fn start() -> Result<(Self, Handle), GateError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name("karman-mesh")
            .enable_all()
            .build()
            .map_err(|error| GateError::Broken(error.to_string()))?;
        let handle = runtime.handle().clone();
        Ok((Self(Some(runtime)), handle))
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
