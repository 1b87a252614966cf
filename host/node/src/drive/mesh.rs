//! The node's place in the mesh: how it joins, and what its operator asks about the other nodes.

use super::dispatch::{Ran, nearest_first};
use super::links::{MeasuredRate, measure, measure_back};
use super::model_tasks;
use super::own_task::OwnTask;
use super::serve::Service;
use crate::contacts;
use crate::node::Node;
use karman_mesh::membership::{Invitation, Issuer, MeshKey};
use karman_mesh::{GateError, Mesh, MeshOptions, Path, Provider, Standing, root_of};
use karman_package::PublicKey;
use karman_space::{LinkProfile, Rate};
use karman_types::{CallContext, NodeId, Offer, OfferedTask, TaskError, TaskRequest, TaskResponse, Tier};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the node joins a mesh.
#[derive(Debug, Default)]
pub struct JoinOptions {
    /// The invitation by which it joins; nothing when it is a member already.
    pub invitation: Option<Invitation>,
    /// How the links behave that leave the node, for rehearsals.
    pub links: Option<LinkProfile>,
}

/// Another node as the operator sees it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct PeerStatus {
    /// Its id.
    pub node: NodeId,
    /// Its key, from which the id follows.
    pub key: Option<PublicKey>,
    /// Where it stands.
    pub tier: Option<Tier>,
    /// How it is reached; nothing while it is not.
    pub path: Option<Path>,
    /// The last round trip in microseconds; of a node that is not reached now, when it was.
    pub round_trip_us: Option<u64>,
    /// How old that is, in milliseconds.
    pub round_trip_age_ms: Option<u64>,
    /// Milliseconds since it was last heard of.
    pub last_seen_ms: u64,
    /// How fast the link from it to this node was when that was last measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down: Option<MeasuredRate>,
    /// The same of the link to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<MeasuredRate>,
    /// The contact in which this node can send to it, or the next one, where the contact plan names one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contact: Option<NextContact>,
    /// Bytes sent to it since this node was started, whatever for.
    pub sent_bytes: u64,
    /// Calls that were under way there, by its last word.
    pub busy: u32,
    /// What it last said that it offers.
    pub offer: Option<Offer>,
}

/// A contact that is open or comes next.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct NextContact {
    /// Milliseconds until it begins; 0 while it is open.
    pub in_ms: u64,
    /// Milliseconds that are left of it, or that it will last.
    pub for_ms: u64,
    /// How fast this node can send then.
    pub rate: Rate,
}

/// What a node offers.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeOffer {
    /// Whether it is this node.
    pub here: bool,
    /// The offer.
    pub offer: Offer,
}

/// The answer of a node that was asked for.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Pinged {
    /// The node.
    pub node: NodeId,
    /// How it is reached.
    pub path: Option<Path>,
    /// Why the path is no better one, as far as that is known.
    pub obstacle: Option<String>,
    /// Microseconds until it had said what it offers.
    pub round_trip_us: u64,
    /// Megabits (10⁶) per second from it to this node, where that was to be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub down_mbit_s: Option<f64>,
    /// The same from this node to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_mbit_s: Option<f64>,
}

/// Takes the node into its mesh. Nothing when it belongs to none.
pub(crate) fn join(node: &Node, options: JoinOptions) -> Result<Option<Mesh>, TaskError> {
    let JoinOptions { invitation, links } = options;
    let config = &node.runtime().config().mesh;
    let store = node.runtime().home().store()?;
    let root = root_of(&store).map_err(refused)?;
    let known: Option<MeshKey> = store.mesh().get("mesh")?;
    if invitation.is_none() && known.is_none() && root.is_none() {
        return Ok(None);
    }
    let mut entrances = config.entrances.clone();
    if let Some(invitation) = &invitation {
        entrances.extend(invitation.addresses().iter().filter_map(|text| text.parse().ok()));
    }
    let seed = *store.node_key().seed();
    let standing = Standing::open(
        store,
        node.runtime().config().tier,
        invitation,
        root.as_ref().map(Issuer::root),
    )
    .map_err(refused)?;
    let service = Service::of(node);
    let options = MeshOptions {
        listen: config.listen,
        entrances,
        find_neighbours: config.find_neighbours,
        links,
    };
    let mesh = Mesh::start(options, &seed, Arc::new(standing), Arc::new(service)).map_err(refused)?;
    Ok(Some(mesh))
}

pub(super) fn refused(error: GateError) -> TaskError {
    let says = error.to_string();
    match error {
        GateError::Own(error) | GateError::Invitation(error) | GateError::Issuer(error) => {
            TaskError::new(error.kind(), says)
        }
        GateError::NotAMember(_) | GateError::Refused(_) => TaskError::denied(says),
        GateError::NoIssuer | GateError::NoRoot | GateError::HoldsRoot => TaskError::denied(says),
        GateError::Stranger | GateError::NoNextRoot => TaskError::invalid(says),
        _ => TaskError::unavailable(says),
    }
}

/// The mesh of the node.
///
/// # Errors
/// `unavailable` when it belongs to none.
pub(crate) fn mesh_of(node: &Node) -> Result<&Mesh, TaskError> {
    node.mesh().ok_or_else(|| {
        TaskError::unavailable("this node belongs to no mesh")
            .with_hint("`karman mesh init` makes one; `karman node up --join INVITATION` joins one")
    })
}

impl Node {
    /// What it has to give now.
    pub fn offer(&self) -> Offer {
        let tier = self.tier();
        self.runtime().stands(tier);
        let tasks = match self.tasks().draining() {
            true => Vec::new(),
            false => self.tasks_of_here(),
        };
        let models = self.runtime().models().list().ok();
        let models = models.iter().flat_map(|models| models.iter());
        Offer {
            node: self.runtime().id(),
            tier: self.tier(),
            cores: self.machine().cores,
            memory: self.machine().memory,
            tasks,
            models: models
                .flat_map(|model| std::iter::once(model.name.clone()).chain(model.exit_names()))
                .collect(),
        }
    }

    /// Calls of its plugins that are under way.
    pub(super) fn busy(&self) -> u32 {
        self.plugins().running()
    }

    /// Those of the plugins that serve, by their names and by what they do, and those of its models.
    fn tasks_of_here(&self) -> Vec<OfferedTask> {
        let plugins = self.plugins().all();
        let tasks = plugins.iter().filter(|plugin| !plugin.package().world.decides());
        let plugins = tasks.flat_map(|plugin| {
            let manifest = plugin.manifest();
            let names = std::iter::once(manifest.name.clone()).chain(manifest.capability_name());
            names.map(|name| OfferedTask {
                name,
                version: manifest.version.clone(),
                id: plugin.package().id,
            })
        });
        let models = model_tasks::offered(self.runtime())
            .into_iter()
            .map(|(task, _)| task);
        plugins.chain(models).collect()
    }

    /// Whether it runs this task itself.
    pub(crate) fn runs(&self, task: &str) -> bool {
        OwnTask::find(self.plugins(), task).is_ok()
    }

    /// Tells the mesh, and tasks that wait, what this node offers now.
    pub(crate) async fn announce(&self) {
        self.tasks().providers_changed();
        if let Some(mesh) = self.mesh() {
            mesh.announce().await;
        }
    }

    /// Where it stands: by its membership, which others trust, else by its own configuration.
    pub(crate) fn tier(&self) -> Tier {
        let member = self.mesh().and_then(|mesh| mesh.standing().own());
        let tier = member.map(|member| member.tier);
        let tier = tier.or_else(|| self.runtime().config().tier);
        tier.unwrap_or_default()
    }

    /// Every node that this one has met, but for those that were revoked.
    ///
    /// # Errors
    /// `unavailable` when it belongs to no mesh.
    pub fn peers(&self) -> Result<Vec<PeerStatus>, TaskError> {
        let mesh = mesh_of(self)?;
        let peers = mesh.peers();
        let (here, now) = (self.runtime().id(), contacts::now());
        let plan = self.bundles().plan(now);
        let contact = |with| {
            let contact = plan
                .open(here, with, now)
                .or_else(|| plan.next(here, with, now))?;
            let start = contact.start.max(now);
            Some(NextContact {
                in_ms: start.since(now).as_millis() as u64,
                for_ms: contact.end.since(start).as_millis() as u64,
                rate: contact.rate,
            })
        };
        let mut peers: Vec<PeerStatus> = peers
            .into_iter()
            .filter_map(|peer| {
                let age = peer.round_trip_age();
                let offer = peer.offer.map(|(offer, _)| (*offer).clone());
                let member = peer.member.filter(|member| !mesh.standing().is_revoked(member))?;
                let node = member.node;
                let rates = self.links().rates.with(node);
                Some(PeerStatus {
                    node,
                    key: Some(PublicKey::from_bytes(member.key)),
                    down: rates.down,
                    up: rates.up,
                    contact: contact(node),
                    tier: Some(member.tier),
                    path: peer.path,
                    round_trip_us: peer.round_trip.map(|time| time.as_micros() as u64),
                    round_trip_age_ms: age.map(|age| age.as_millis() as u64),
                    last_seen_ms: peer.last_seen.elapsed().as_millis() as u64,
                    sent_bytes: peer.sent,
                    busy: peer.busy,
                    offer,
                })
            })
            .collect();
        peers.sort_by_key(|peer| peer.node);
        Ok(peers)
    }

    /// Lets the links that leave this node behave by another profile from now on, for rehearsals.
    ///
    /// # Errors
    /// `unavailable` when it belongs to no mesh, `invalid` when it was started without a profile.
    pub fn change_links(&self, profile: LinkProfile) -> Result<(), TaskError> {
        mesh_of(self)?.change_links(profile)
    }

    /// What every node in reach offers, this one first.
    ///
    /// # Errors
    /// `unavailable` when it belongs to no mesh.
    pub async fn offers(&self) -> Result<Vec<NodeOffer>, TaskError> {
        let others = mesh_of(self)?.nodes().await;
        Ok(self.beside(others))
    }

    /// The same as it was found [lately](Mesh::nodes_lately), for whoever looks again and again.
    ///
    /// # Errors
    /// `unavailable` when it belongs to no mesh.
    pub async fn offers_lately(&self) -> Result<Vec<NodeOffer>, TaskError> {
        let others = mesh_of(self)?.nodes_lately().await;
        Ok(self.beside(others))
    }

    /// What this node offers, and then what these do.
    fn beside(&self, mut others: Vec<Provider>) -> Vec<NodeOffer> {
        others.sort_by_key(|provider| provider.offer.node);
        let here = NodeOffer {
            here: true,
            offer: self.offer(),
        };
        let others = others.into_iter().map(|provider| NodeOffer {
            here: false,
            offer: (*provider.offer).clone(),
        });
        std::iter::once(here).chain(others).collect()
    }

    /// Reaches a node and measures how long that takes, and if asked also how fast the links to it and back are.
    ///
    /// # Errors
    /// `unavailable` when it is not in reach; what it says where it measures no link.
    pub async fn ping(&self, id: NodeId, rates: bool) -> Result<Pinged, TaskError> {
        let mesh = mesh_of(self)?;
        let peer = mesh.peer(id).await?;
        let started = Instant::now();
        mesh.reach(peer).await?;
        let round_trip_us = started.elapsed().as_micros() as u64;
        let known = mesh.peers().into_iter().find(|known| known.id == peer);
        let (path, obstacle) = known.map_or((None, None), |known| (known.path, known.obstacle));
        let mut pinged = Pinged {
            node: id,
            path,
            obstacle,
            round_trip_us,
            down_mbit_s: None,
            up_mbit_s: None,
        };
        if rates {
            // One after the other: together they would measure each other.
            pinged.down_mbit_s = Some(measure_back(self, id).await?.rate_mbit_s);
            pinged.up_mbit_s = Some(measure(self, id).await?.rate_mbit_s);
        }
        Ok(pinged)
    }

    /// Takes nothing new, lets what runs end, and hands accepted tasks that wait over to the nodes in reach, the nearest first;
    /// these nodes. Done when the node may be stopped.
    pub async fn drain(&self) -> Vec<NodeId> {
        // From here on it offers nothing, and those who ask it are told.
        self.tasks().take_nothing_new();
        let heirs = match self.mesh() {
            Some(mesh) => {
                mesh.withdraw().await;
                let mut nodes = mesh.some_nodes().await;
                // One that is gone keeps a task in doubt until it is back.
                nodes.retain(|node| mesh.is_connected(&node.id));
                let nodes = nearest_first(mesh, nodes);
                nodes.into_iter().map(|node| node.offer.node).collect()
            }
            None => Vec::new(),
        };
        tracing::info!(heirs = heirs.len(), "draining");
        self.tasks().drain(heirs.clone()).await;
        heirs
    }

    /// Runs a task here or on a node that offers it, in the order of its [policy](karman_sched::call::Route); on another node where this
    /// one is drained.
    ///
    /// # Errors
    /// What the task ends with; `unavailable` when no node in reach has it.
    pub async fn call(
        &self,
        task: &str,
        request: TaskRequest,
        context: CallContext,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        self.dispatch(task, request, context, None).await
    }

    /// The same, and a second node is asked as well when the first has not answered after a time: for tasks that may run twice.
    ///
    /// # Errors
    /// Those of [`Node::call`].
    pub async fn call_hedged(
        &self,
        task: &str,
        request: TaskRequest,
        context: CallContext,
        hedge_after: Duration,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        self.dispatch(task, request, context, Some(hedge_after)).await
    }

    async fn dispatch(
        &self,
        task: &str,
        request: TaskRequest,
        context: CallContext,
        hedge_after: Option<Duration>,
    ) -> Result<(TaskResponse, Ran), TaskError> {
        let calls = self.calls();
        match self.is_drained() {
            true => calls.pass_on(task, request, context, hedge_after).await,
            false => calls.call(task, request, context, hedge_after).await,
        }
    }
}
