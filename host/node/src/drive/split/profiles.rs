//! How long the layers of a model take on the nodes that may run them. Measured once on each, and kept there; predicted until then,
//! where that is asked for.

use super::predict::{predict, remember};
use super::serve::take_in;
use super::wire::{pack, unpack};
use crate::drive::links::{LinkMeasure, links_to};
use crate::drive::mesh_of;
use crate::node::Node;
use crate::power::{PowerProfile, watched};
use crate::services::blocking;
use bytes::Bytes;
use futures::future::join_all;
use karman_infer::profile::{Origin, Profile, ProfileOptions, Timing};
use karman_mesh::membership::Member;
use karman_mesh::{Ask, CallHead, PeerId};
use karman_store::Store;
use karman_types::{Digest, NodeId, TaskError, TaskResponse, Tier};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// A node's own speed and power, as a plan takes them.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct NodeProfile {
    /// The node.
    pub node: NodeId,
    /// Where it stands.
    pub tier: Tier,
    /// Bytes of memory that it has free.
    pub free_memory: u64,
    /// How long the layers take on its processor.
    pub profile: Profile,
    /// How long the whole takes on its GPU, where its operator has it run there: its parts run there, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<WholeOnGpu>,
    /// What it draws.
    pub power: PowerProfile,
    /// The links from it to the others that take part.
    pub links: Vec<LinkMeasure>,
}

/// A model that runs on a GPU as a whole.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct WholeOnGpu {
    /// The GPU.
    pub runs_on: String,
    /// From the inputs to the results, for one item.
    pub whole: Timing,
}

/// What a node is asked.
#[derive(Debug, Deserialize, Serialize)]
enum Question {
    /// Its profile of the model, without its links. Answered with a [`NodeProfile`].
    Profile {
        /// Allows to read the model's file.
        #[serde(with = "serde_bytes")]
        ticket: Vec<u8>,
        /// Whether times of a model that was not timed there may be predicted.
        predict: bool,
    },
    /// The links from it to these, as it measures them now. Answered with a list of [`LinkMeasure`].
    Links(Vec<NodeId>),
}

/// The most nodes that links are measured to at one's request.
const MOST_OTHERS: usize = 8;

/// The record of what this node drew when it was last busy.
const POWER: &str = "power";

/// Where the times of a model come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Times {
    /// Measured now, whatever the store has.
    Again,
    /// The store; what it has not is measured now.
    Kept,
    /// The store; what it has not is predicted where other models were timed.
    KeptOrPredicted,
}

impl Times {
    /// Those of a plan.
    pub(super) const fn of_plan(may_predict: bool) -> Self {
        match may_predict {
            true => Self::KeptOrPredicted,
            false => Self::Kept,
        }
    }
}

/// What was measured under this name. Nothing where it does not read: that is of another version, and is measured anew.
fn remembered<T: DeserializeOwned>(store: &Store, name: &str) -> Result<Option<T>, TaskError> {
    match store.profiles().get(name) {
        Err(error) if error.is_of_disk() => Err(TaskError::from(error)),
        known => Ok(known.unwrap_or_default()),
    }
}

/// The profile of a model on this node, without its links.
pub(super) async fn of_here(node: &Node, model: Digest, times: Times) -> Result<NodeProfile, TaskError> {
    let (stages, models) = (node.split().stages().clone(), node.runtime().models().clone());
    let home = node.runtime().home().clone();
    let timing = node.split().timing.clone();
    let measured = blocking(move || {
        let (backend, load) = models.chosen()?;
        let runs_on = format!("{}-{}/{}", backend.name(), backend.version(), load.threads);
        let name = format!("{model}/{runs_on}");
        let store = home.store()?;
        let kept = || -> Result<_, TaskError> {
            let known: Option<Profile> = remembered(&store, &name)?;
            let known = known.filter(|_| times != Times::Again);
            let power = remembered(&store, POWER)?;
            Ok(known.map(|known| (known, power, models.slowdown())))
        };
        if let Some(kept) = kept()? {
            return Ok(kept);
        }
        let graph = stages.graph(model)?;
        let predicted = (times == Times::KeptOrPredicted).then(|| predict(&store, &runs_on, &graph));
        if let Some(predicted) = predicted.flatten() {
            tracing::info!(model = %model.short(), "the times of its layers are predicted");
            let power = remembered(&store, POWER)?;
            return Ok((predicted, power, models.slowdown()));
        }
        let _alone = timing.lock();
        // Somebody else may have timed them meanwhile.
        if let Some(kept) = kept()? {
            return Ok(kept);
        }
        tracing::info!(model = %model.short(), "its layers are timed");
        let options = ProfileOptions::default();
        let (profile, power) = watched(|| Profile::measure(&graph, backend, &load, &options));
        let profile = profile?;
        let keep = || -> Result<(), TaskError> {
            // It may have been removed while it was timed.
            if stages.names_of(model)?.is_empty() {
                return Ok(());
            }
            store.profiles().put(&name, &profile)?;
            remember(&store, &runs_on, &name)?;
            power.as_ref().map_or(Ok(()), |power| {
                store.profiles().put(POWER, power).map_err(TaskError::from)
            })
        };
        if let Err(error) = keep() {
            tracing::warn!(model = %model.short(), %error, "what its layers take is not remembered");
        }
        Ok((profile, power, models.slowdown()))
    });
    let (mut profile, power, slowdown) = measured.await?;
    // The pace is the node's, not the back-end's.
    let layers = profile.layers.iter_mut().map(|layer| &mut layer.time);
    layers
        .chain([&mut profile.whole])
        .for_each(|time| time.seconds *= slowdown);
    let gpu = on_gpu(node, model).await?;
    Ok(NodeProfile {
        node: node.runtime().id(),
        tier: node.tier(),
        free_memory: free_memory().unwrap_or_else(|| node.machine().memory),
        profile,
        gpu,
        power: PowerProfile::new(power, node.runtime().config().power),
        links: Vec::new(),
    })
}

/// How long a model of this node takes on its GPU; nothing where it runs on the processor.
async fn on_gpu(node: &Node, model: Digest) -> Result<Option<WholeOnGpu>, TaskError> {
    let Some(model) = node.runtime().models().on_gpu_by_file(model).await? else {
        return Ok(None);
    };
    Ok(Some(WholeOnGpu {
        runs_on: model.words(),
        whole: model.time().await?,
    }))
}

impl NodeProfile {
    /// Whether the node has not timed the model: its times follow from those of others.
    pub(super) const fn is_predicted(&self) -> bool {
        matches!(self.profile.whole.origin, Origin::Predicted { .. })
    }

    /// Whether a plan can be made of what a node tells, and of what this one measured.
    pub(super) fn check(&self, own: &Self) -> Result<(), TaskError> {
        let names = |of: &Self| -> Vec<String> {
            let layers = of.profile.layers.iter();
            layers.map(|layer| layer.name.clone()).collect()
        };
        if names(self) != names(own) {
            let error = TaskError::invalid("it finds other layers in the model").with_field("layers");
            return Err(error.with_hint("have both nodes run the same version of Karman"));
        }
        let is_time = |time: &f64| time.is_finite() && *time >= 0.0;
        match self.seconds().into_iter().find(|time| !is_time(time)) {
            Some(time) => {
                let says = format!("it tells {time}, which is no measurement");
                Err(TaskError::invalid(says).with_field("seconds"))
            }
            None => Ok(()),
        }
    }

    /// The seconds of each layer where its parts of the model run. On a GPU the layers share in what the whole takes there as they do on
    /// the processor: only there they can be timed one by one.
    pub(super) fn seconds(&self) -> Vec<f64> {
        let seconds = self.profile.seconds();
        match &self.gpu {
            Some(gpu) => shared(seconds, gpu.whole.seconds),
            None => seconds,
        }
    }
}

/// Times as shares of a whole.
fn shared(seconds: Vec<f64>, whole: f64) -> Vec<f64> {
    let all: f64 = seconds.iter().sum();
    match all > 0.0 && whole > 0.0 {
        true => seconds.into_iter().map(|own| own / all * whole).collect(),
        false => seconds,
    }
}

/// The profile on another node, which fetches the model for it where it does not have it; without its links.
pub(super) async fn of_other(
    node: &Node,
    (at, peer): (NodeId, PeerId),
    model: &karman_store::Model,
    ticket: Bytes,
    may_predict: bool,
) -> Result<NodeProfile, TaskError> {
    let question = Question::Profile {
        ticket: ticket.to_vec(),
        predict: may_predict,
    };
    let profile: NodeProfile = ask(node, peer, model, &question).await?;
    match profile.node == at && profile.profile.model == model.digest {
        true => Ok(profile),
        false => Err(TaskError::invalid(format!(
            "node {} tells of something else",
            at.short()
        ))),
    }
}

/// The link from another node, which has told its profile of the model, as it measures it now.
pub(super) async fn link_of_other(
    node: &Node,
    (from, peer): (NodeId, PeerId),
    to: NodeId,
    model: &karman_store::Model,
) -> Result<LinkMeasure, TaskError> {
    let told: Vec<LinkMeasure> = ask(node, peer, model, &Question::Links(vec![to])).await?;
    let link = told.into_iter().find(|link| (link.from, link.to) == (from, to));
    let none = || TaskError::unavailable(format!("node {} could not measure it", from.short()));
    let link = link.ok_or_else(none)?;
    link.check().map(|()| link)
}

async fn ask<T: DeserializeOwned>(
    node: &Node,
    peer: PeerId,
    model: &karman_store::Model,
    question: &Question,
) -> Result<T, TaskError> {
    let ask = Ask::ProfileModel {
        digest: model.digest,
        size: model.bytes,
    };
    let head = CallHead::new(
        ask,
        format!("model/{}", model.name),
        node.runtime().context(None).task,
    );
    let body = pack(question, &Vec::new())?;
    let (response, _) = mesh_of(node)?.call(peer, head, body).await?;
    Ok(unpack(&response.body)?.0)
}

/// Answers another node that plans.
pub(crate) async fn tell(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: &Bytes,
) -> Result<TaskResponse, TaskError> {
    let Ask::ProfileModel { digest, size } = head.ask else {
        return Err(TaskError::internal("no profile is asked for"));
    };
    let (question, _): (Question, _) = unpack(body)?;
    let body = match question {
        Question::Profile { ticket, predict } => {
            take_in(node, from, head, (digest, size), ticket).await?;
            pack(
                &of_here(node, digest, Times::of_plan(predict)).await?,
                &Vec::new(),
            )?
        }
        Question::Links(mut others) => {
            others.truncate(MOST_OTHERS);
            pack(&links_to(node, &others).await, &Vec::new())?
        }
    };
    Ok(TaskResponse::from(body))
}

/// What the system says that could be had without paging.
pub(super) fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? << 10)
}

/// What several others say, each for itself.
pub(super) async fn of_others(
    node: &Node,
    others: &[(NodeId, PeerId)],
    model: &karman_store::Model,
    ticket: impl Fn(NodeId) -> Result<Bytes, TaskError>,
    may_predict: bool,
) -> Vec<Result<NodeProfile, TaskError>> {
    let each = others.iter().map(|other| {
        let ticket = ticket(other.0);
        async move { of_other(node, *other, model, ticket?, may_predict).await }
    });
    join_all(each).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_share_in_the_whole_as_they_did() {
        assert_eq!(shared(vec![1.0, 3.0], 2.0), [0.5, 1.5]);
        // Of what was not timed nothing follows.
        assert_eq!(shared(vec![0.0, 0.0], 2.0), [0.0, 0.0]);
        assert_eq!(shared(vec![1.0, 3.0], 0.0), [1.0, 3.0]);
    }
}
