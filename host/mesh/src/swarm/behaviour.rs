//! The protocols that members speak with one another.

use super::arriving::Arriving;
use super::records::Records;
use super::relays;
use super::streams::Streams;
use crate::gate::PROTOCOL;
use crate::refusals::Refusals;
use libp2p::identity::Keypair;
use libp2p::swarm::NetworkBehaviour;
use libp2p::swarm::behaviour::toggle::Toggle;
use libp2p::{PeerId, StreamProtocol, autonat, connection_limits, dcutr, identify, kad, mdns, ping, relay};
use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

/// Our own name: nodes of other networks are none of ours.
pub(super) const KADEMLIA: StreamProtocol = StreamProtocol::new("/karman/kad/1");
/// Connections at once, in all and with one peer.
const MOST_CONNECTIONS: u32 = 1024;
const MOST_PER_PEER: u32 = 8;
/// Offers that this node announces.
pub(crate) const MOST_ANNOUNCED: usize = 4096;
/// Nodes next to a key that are told of its providers, and that a search asks. Kademlia's twenty are for networks of strangers, most of whom
/// go within the hour; telling and asking each of them takes a connection, which costs some ten kilobytes.
pub(super) const NEXT_TO_A_KEY: NonZeroUsize = NonZeroUsize::new(8).expect("it is not zero");
/// How long others remember that we provide something.
const PROVIDED_FOR: Duration = Duration::from_secs(24 * 3600);
/// How often the routing table is gone through: a dozen searches. Calls keep it fresh as well, and a table that is nearly empty is
/// gone through whenever a node comes into it.
const REFRESHED_EVERY: Duration = Duration::from_secs(12 * 3600);
const QUERY_PATIENCE: Duration = Duration::from_secs(8);
/// A round trip costs about 400 bytes on QUIC, on every connection.
const PING_EVERY: Duration = Duration::from_secs(30);
/// Nodes whose addresses are kept after they have gone.
const MOST_KNOWN: usize = 1024;

#[derive(NetworkBehaviour)]
pub(crate) struct Behaviour {
    arriving: Arriving,
    limits: connection_limits::Behaviour,
    pub(crate) kad: kad::Behaviour<Records>,
    mdns: Toggle<mdns::tokio::Behaviour>,
    identify: identify::Behaviour,
    ping: ping::Behaviour,
    pub(crate) streams: Streams,
    relay: relay::Behaviour,
    relayed: relay::client::Behaviour,
    pub(crate) punch: dcutr::Behaviour,
    pub(crate) reachable: autonat::v2::client::Behaviour,
    reaching: autonat::v2::server::Behaviour,
}

impl Behaviour {
    pub(crate) fn new(
        keypair: &Keypair,
        find_neighbours: bool,
        relayed: relay::client::Behaviour,
        refusals: Arc<Refusals>,
    ) -> Self {
        let id = keypair.public().to_peer_id();
        let limits = connection_limits::ConnectionLimits::default()
            .with_max_established_per_peer(Some(MOST_PER_PEER))
            .with_max_established(Some(MOST_CONNECTIONS));
        let mut config = kad::Config::new(KADEMLIA);
        config
            .set_query_timeout(QUERY_PATIENCE)
            .set_replication_factor(NEXT_TO_A_KEY)
            // `Table` says who comes into it.
            .set_kbucket_inserts(kad::BucketInserts::Manual)
            .set_provider_record_ttl(Some(PROVIDED_FOR))
            // `Turns` says when they are told again.
            .set_provider_publication_interval(None)
            .set_periodic_bootstrap_interval(Some(REFRESHED_EVERY));
        let mut kad = kad::Behaviour::with_config(id, Records::new(id), config);
        // Until a member has dialled this node nobody knows whether it can be.
        kad.set_mode(Some(kad::Mode::Client));
        let mdns = match find_neighbours {
            true => mdns::tokio::Behaviour::new(mdns::Config::default(), id)
                .inspect_err(|error| tracing::warn!(%error, "no search for neighbours on this network"))
                .ok(),
            false => None,
        };
        // Every node would relay; others ask those that serve the DHT, for they can be reached. Changing the status later
        // would tell relayed connections of it too, whose handlers take no such message and panic.
        let mut relay = relay::Behaviour::new(id, relays::limits());
        relay.set_status(Some(relay::Status::Enable));
        let version = format!("/karman/{PROTOCOL}");
        let agent = concat!("karman/", env!("CARGO_PKG_VERSION")).to_owned();
        Self {
            arriving: Arriving::new(refusals),
            limits: connection_limits::Behaviour::new(limits),
            kad,
            mdns: mdns.into(),
            identify: identify::Behaviour::new(
                identify::Config::new(version, keypair.public())
                    .with_agent_version(agent)
                    .with_cache_size(MOST_KNOWN)
                    .with_hide_listen_addrs(true)
                    .with_push_listen_addr_updates(true),
            ),
            ping: ping::Behaviour::new(ping::Config::new().with_interval(PING_EVERY)),
            streams: Streams::new(),
            relay,
            relayed,
            punch: dcutr::Behaviour::new(id),
            reachable: autonat::v2::client::Behaviour::default(),
            reaching: autonat::v2::server::Behaviour::default(),
        }
    }

    /// Those who were heard on this network.
    pub(super) fn neighbours(&self) -> HashSet<PeerId> {
        let mdns = self.mdns.as_ref();
        mdns.map(|mdns| mdns.discovered_nodes().copied().collect())
            .unwrap_or_default()
    }
}
