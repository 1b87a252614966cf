//! What nodes offered when they were last in reach: while they are away, nobody can ask them.

use crate::contacts;
use crate::drive::tasks::Inner;
use crate::node::Node;
use crate::services::store_error;
use karman_mesh::{Mesh, Peer};
use karman_space::{Bundle, earliest_arrival};
use karman_store::Store;
use karman_types::{NodeId, Offer, TaskError};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

const RECORD: &str = "away-offers";
/// Nodes whose offers are remembered.
const MOST: usize = 256;
/// How often a node in reach is asked that does not tell by itself what changes.
const ASKED_AGAIN: Duration = Duration::from_secs(30);
/// How far ahead a way to a node may begin.
const HORIZON: Duration = Duration::from_secs(30 * 86_400);

pub(super) struct Offers {
    store: Store,
    known: Mutex<BTreeMap<NodeId, Offer>>,
    asked: Mutex<HashMap<NodeId, Instant>>,
}

impl Offers {
    pub(super) fn open(store: Store) -> Result<Self, TaskError> {
        let known = store.mesh().get(RECORD).map_err(store_error)?;
        Ok(Self {
            known: Mutex::new(known.unwrap_or_default()),
            asked: Mutex::default(),
            store,
        })
    }

    /// The name under which the node ran this task, when it was last here.
    pub(super) fn name_at(&self, node: NodeId, task: &str) -> Option<String> {
        let known = self.known.lock();
        Some(known.get(&node)?.runs(task)?.name.clone())
    }

    fn nodes_with(&self, task: &str) -> Vec<NodeId> {
        let known = self.known.lock();
        let with = known.values().filter(|offer| offer.runs(task).is_some());
        with.map(|offer| offer.node).collect()
    }

    /// The node says that it does not run this any more.
    pub(super) fn runs_no_longer(&self, node: NodeId, task: &str) {
        let mut known = self.known.lock();
        if let Some(offer) = known.get_mut(&node) {
            while let Some(name) = offer.runs(task).map(|task| task.name.clone()) {
                offer.tasks.retain(|task| task.name != name);
            }
            self.keep(&known);
        }
    }

    fn remember(&self, offer: &Offer) {
        let mut known = self.known.lock();
        let new = known.get(&offer.node) != Some(offer);
        if new && (known.len() < MOST || known.contains_key(&offer.node)) {
            known.insert(offer.node, offer.clone());
            self.keep(&known);
            let tasks: Vec<&str> = offer.tasks.iter().map(|task| &*task.name).collect();
            tracing::info!(node = %offer.node, ?tasks, "what a node offers is remembered");
        }
    }

    fn keep(&self, known: &BTreeMap<NodeId, Offer>) {
        if let Err(error) = self.store.mesh().put(RECORD, known) {
            tracing::warn!(%error, "what a node offers is not remembered");
        }
    }

    /// Whether to ask the node now.
    fn asks(&self, node: NodeId) -> bool {
        let mut asked = self.asked.lock();
        let lately = asked.get(&node).is_some_and(|when| when.elapsed() < ASKED_AGAIN);
        if !lately {
            asked.insert(node, Instant::now());
        }
        !lately
    }
}

/// Hears what those offer that are in reach now, for when they are not any more.
pub(crate) fn listen(node: &Node, mesh: &Mesh) {
    for peer in mesh.peers().into_iter().filter(|peer| peer.path.is_some()) {
        let Peer {
            id, member, offer, ..
        } = peer;
        let offers = &node.tasks().inner().away.offers;
        let Some(member) = member else { continue };
        if let Some((offer, _)) = offer {
            offers.remember(&offer);
        }
        if offers.asks(member.node) {
            let mesh = mesh.clone();
            tokio::spawn(async move {
                // What it says is among what is known of it next time.
                if let Err(error) = mesh.reach(id).await {
                    tracing::debug!(node = %member.node, %error, "it does not say what it offers");
                }
            });
        }
    }
}

/// Nodes out of reach that offered this task when they were here and to which planned contacts lead, the one that is reached
/// first first.
pub(in crate::drive) fn reached_later(tasks: &Inner, task: &str) -> Vec<NodeId> {
    let Some(node) = tasks.away.node().filter(|_| tasks.away.has_room()) else {
        return Vec::new();
    };
    let Some(mesh) = node.mesh() else {
        return Vec::new();
    };
    let is_there = |to: &NodeId| {
        let peer = mesh.key_of(*to).and_then(|key| karman_mesh::peer_of(&key));
        peer.is_none_or(|peer| mesh.is_connected(&peer))
    };
    let now = contacts::now();
    let (here, plan) = (node.runtime().id(), node.bundles().plan(now));
    let arrival = |to: NodeId| {
        let bundle = Bundle {
            source: here,
            destination: to,
            bytes: 1 << 10,
            sent: now,
            expires: now + HORIZON,
            split: true,
        };
        Some((earliest_arrival(&plan, &bundle).ok()?.arrival, to))
    };
    let with = tasks.away.offers.nodes_with(task).into_iter();
    let out_of_reach = with.filter(|to| *to != here && !is_there(to));
    let mut planned: Vec<_> = out_of_reach.filter_map(arrival).collect();
    planned.sort_unstable();
    planned.into_iter().map(|(_, to)| to).collect()
}
