//! Who offers what: asked of the DHT, and then of the nodes themselves.

use crate::mesh::{MOST_TRIES, Mesh, OFFER, PATIENCE, node_of, unreachable};
use crate::offer::{self, TIERS};
use crate::peers::Peer;
use crate::swarm::Order;
use futures::future::join_all;
use karman_types::{NodeId, Offer, TaskError};
use libp2p::PeerId;
use libp2p::kad::RecordKey;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// How long an answer of the DHT is used again: a search takes several round trips, a call should not.
const LATELY: Duration = Duration::from_secs(5);
/// Tasks of which the answer is remembered.
const MOST_FOUND: usize = 1024;

/// A node that offers what was asked for.
#[derive(Clone, Debug)]
pub struct Provider {
    /// By which it is called.
    pub id: PeerId,
    /// What it offers.
    pub offer: Arc<Offer>,
}

/// Providers that the DHT has named lately, by task. An empty answer is not remembered: the next may have one.
#[derive(Default)]
pub(crate) struct Found(Mutex<HashMap<String, (HashSet<PeerId>, Instant)>>);

impl Found {
    fn lately(&self, task: &str) -> Option<HashSet<PeerId>> {
        let found = self.0.lock();
        let (providers, when) = found.get(task)?;
        (when.elapsed() < LATELY).then(|| providers.clone())
    }

    fn remember(&self, task: &str, providers: &[Provider]) {
        let mut found = self.0.lock();
        if found.len() >= MOST_FOUND {
            found.retain(|_, (_, when)| when.elapsed() < LATELY);
        }
        if !providers.is_empty() && found.len() < MOST_FOUND {
            let providers = providers.iter().map(|provider| provider.id).collect();
            found.insert(task.to_owned(), (providers, Instant::now()));
        }
    }
}

impl Mesh {
    /// Who offers this task, this node left out.
    pub async fn providers(&self, task: &str) -> Vec<Provider> {
        let runs = |provider: &Provider| provider.offer.runs(task).is_some();
        let mut providers = Vec::new();
        if let Some(found) = self.0.found.lately(task) {
            providers = self.ask_all(found).await;
            providers.retain(runs);
        }
        if providers.is_empty() {
            let found = self.find(TIERS.map(|tier| offer::task_key(task, tier))).await;
            providers = self.ask_all(found).await;
            providers.retain(runs);
            self.0.found.remember(task, &providers);
        }
        if providers.is_empty() {
            // A neighbour that has just come may not have announced itself yet.
            providers = self.ask_all(self.connected()).await;
            providers.retain(runs);
        }
        providers
    }

    fn connected(&self) -> HashSet<PeerId> {
        let peers = self.peers();
        let connected = peers.iter().filter(|peer| peer.path.is_some());
        connected.map(|peer| peer.id).collect()
    }

    /// Every node that announced itself, this one left out.
    pub async fn nodes(&self) -> Vec<Provider> {
        let mut found = self.find(TIERS.into_iter().flat_map(offer::node_keys)).await;
        found.extend(self.connected());
        self.ask_all(found).await
    }

    /// The node of this id, if it is in reach.
    pub async fn node(&self, id: NodeId) -> Option<PeerId> {
        let known = |peer: &Peer| peer.member.as_ref().is_some_and(|member| member.node == id);
        if let Some(peer) = self.peers().into_iter().find(known) {
            return Some(peer.id);
        }
        let nodes = self.nodes().await;
        nodes
            .into_iter()
            .find(|node| node.offer.node == id)
            .map(|node| node.id)
    }

    /// Reaches the node and lets it say what it offers.
    ///
    /// # Errors
    /// `unavailable` when it cannot be reached.
    pub async fn reach(&self, id: PeerId) -> Result<Arc<Offer>, TaskError> {
        let mut last = unreachable(id, "it does not answer");
        for _ in 0..MOST_TRIES {
            let stream = self.stream(id, OFFER).await?;
            match tokio::time::timeout(PATIENCE, offer::ask(stream.compat())).await {
                Ok(Ok(offer)) if offer.node == node_of(&id) => return Ok(self.0.peers.offered(id, offer)),
                // A node speaks for itself only.
                Ok(Ok(_)) => return Err(unreachable(id, "it speaks for another node")),
                Ok(Err(error)) => last = unreachable(id, &error.to_string()),
                Err(_) => return Err(last),
            }
        }
        Err(last)
    }

    pub(crate) async fn find(&self, keys: impl IntoIterator<Item = RecordKey>) -> HashSet<PeerId> {
        let queries = keys.into_iter().map(|key| async {
            let (tell, told) = oneshot::channel();
            let _ = self.0.orders.send(Order::Find(key, tell)).await;
            told.await.unwrap_or_default()
        });
        let mut found: HashSet<PeerId> = join_all(queries).await.into_iter().flatten().collect();
        found.remove(&self.0.me);
        found
    }

    async fn ask_all(&self, nodes: HashSet<PeerId>) -> Vec<Provider> {
        let asked = nodes.into_iter().map(|id| async move {
            let offer = self.offer_of(id).await?;
            Some(Provider { id, offer })
        });
        join_all(asked).await.into_iter().flatten().collect()
    }

    /// What the node says that it offers; nothing when it does not say so in time.
    async fn offer_of(&self, id: PeerId) -> Option<Arc<Offer>> {
        if let Some(fresh) = self.0.peers.fresh_offer(&id) {
            return Some(fresh);
        }
        self.reach(id)
            .await
            .inspect_err(|error| tracing::debug!(%error, "an offer is not known"))
            .ok()
    }
}
