//! Which node runs which part: asked of the nodes, decided by the scheduler, made ready, and taken into use.

use super::order::SplitOrder;
use super::policy::Policy;
use super::problem::{carries_shapes, problem};
use super::profiles::{NodeProfile, Times, of_here, of_others};
use super::rounds::links_between;
use super::wire::{Cut, Prepare, Station, pack};
use crate::config::ModelDevice;
use crate::drive::mesh_of;
use crate::drive::remove::unknown_model;
use crate::node::Node;
use crate::power::PowerProfile;
use crate::services::blocking;
use bytes::Bytes;
use futures::TryFutureExt;
use futures::future::try_join_all;
use karman_mesh::{Ask, CallHead, PeerId, Ticket};
use karman_sched::partition::{BoundUse, Bounds, Partitioner, Plan, PlanError, Problem, Tuning};
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long nodes may read a model after they were asked to take part.
const TICKET: Duration = Duration::from_secs(86_400);
/// What a node gets beyond what it should need, in milliseconds.
const GRACE_MS: f64 = 300.0;
/// How many times longer than predicted a stage may take before another node is asked.
const PATIENCE: f64 = 6.0;

/// A plan, with what it was made of.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct SplitPlan {
    /// The model's name.
    pub model: String,
    /// The nodes that may take part, in the order of the stages.
    pub nodes: Vec<NodeId>,
    /// Nodes that were asked and cannot, with the reason.
    pub left_out: Vec<(NodeId, TaskError)>,
    /// Nodes that have not timed the model: their times are predicted.
    pub predicted: Vec<NodeId>,
    /// The plan.
    pub plan: Plan,
    /// What it was made from: the layers with their times on each node, the links, what counts.
    pub problem: Problem,
    /// Where the watts of each node come from, by which its energy is reckoned.
    pub power: Vec<(NodeId, PowerProfile)>,
    /// What a request takes of what the order bounds; empty where it bounds nothing.
    pub bounds: Vec<BoundUse>,
    /// The plan in words.
    pub explanation: String,
    /// Whether it is in use.
    pub applied: bool,
}

/// Nodes, what they measured, and the plan that follows.
pub(super) struct Planned {
    pub(super) model: karman_store::Model,
    pub(super) peers: Vec<(NodeId, PeerId)>,
    pub(super) profiles: Vec<NodeProfile>,
    pub(super) left_out: Vec<(NodeId, TaskError)>,
    pub(super) problem: Problem,
    pub(super) plan: Plan,
    /// What a request is to keep; nothing is bounded where the order has no SLO.
    pub(super) bounds: Bounds,
    pub(super) order: SplitOrder,
    pub(super) tuning: Tuning,
    pub(super) max_error: f64,
}

/// A plan as nodes understand it.
pub(super) struct Route {
    pub(super) cut: Cut,
    /// Where the stages after the first run.
    pub(super) stations: Vec<Station>,
    /// The tier of each stage.
    pub(super) tiers: Vec<usize>,
    /// The tier of each layer.
    pub(super) assignment: Vec<usize>,
    /// How long a request was expected to take when it was planned, in milliseconds.
    pub(super) expected_ms: f64,
    /// Whether this node has the stages of the others ready as well.
    pub(super) spare: AtomicBool,
}

/// Asks the nodes and plans.
pub(super) async fn plan(node: &Node, name: &str, order: &SplitOrder) -> Result<Planned, TaskError> {
    let (model, max_error) = (model_of(node, name)?, order.max_error()?);
    let (objective, bounds, tuning) = (order.objective()?, order.bounds()?, order.tuning()?);
    if node.runtime().models().device_of(name) == Some(ModelDevice::Gpu) {
        let says = format!("model `{name}` runs as a whole on the GPU of this node (`gpu.models`)");
        return Err(TaskError::unavailable(says).with_hint(format!(
            "without `{name}` in `[gpu.models]` of node.toml it runs on the processor, and in parts"
        )));
    }
    let peers = node.participants(&order.over).await?;
    let ticket = |reader| ticket(node, &model, reader);
    let told = of_others(node, &peers, &model, ticket, order.predict).await;
    // After the others: this one gives them the file.
    let own = of_here(node, model.digest, Times::of_plan(order.predict)).await?;
    let (mut taking_part, mut profiles, mut left_out) = (Vec::new(), vec![own], Vec::new());
    for (peer, told) in peers.into_iter().zip(told) {
        match told.and_then(|profile| profile.check(&profiles[0]).map(|()| profile)) {
            Ok(profile) => {
                taking_part.push(peer);
                profiles.push(profile);
            }
            Err(error) => left_out.push((peer.0, error)),
        }
    }
    // When nobody computes any more.
    let links = links_between(node, &taking_part, &model).await;
    for profile in &mut profiles {
        let own = links.iter().filter(|link| link.from == profile.node);
        profile.links = own.copied().collect();
    }
    let (policy, problem) = (Policy::of(order), problem(&profiles, objective, max_error)?);
    let planned = blocking(move || match bounds {
        Some(bounds) => bounds.plan(&policy, &problem).map_err(no_plan),
        None => {
            let plan = policy.plan(&problem).map_err(no_plan)?;
            Ok((problem, plan))
        }
    });
    let (problem, plan) = planned.await?;
    if carries_shapes(&plan) {
        return Err(TaskError::invalid(
            "the parts of this cut would have to send each other shapes (whole numbers of 64 bits), without which a part cannot be prepared",
        )
        .with_field("cut")
        .with_hint("`karman model inspect` shows what crosses a cut after each layer that one can be after"));
    }
    Ok(Planned {
        model,
        peers: taking_part,
        profiles,
        left_out,
        problem,
        plan,
        bounds: bounds.unwrap_or_default(),
        order: order.clone(),
        tuning,
        max_error,
    })
}

/// The tiers that requests come to, in order: the first one, those that run a layer, and those that are only on the way, which pass on
/// what comes as a stage without layers.
pub(super) fn tiers_of(plan: &Plan) -> Vec<usize> {
    let onward = plan.prediction.links.iter().filter(|link| link.from < link.to);
    let on_the_way = onward.flat_map(|link| [link.from, link.to]);
    let runs = plan.assignment.iter().copied();
    let mut tiers: Vec<usize> = runs.chain(on_the_way).chain([0]).collect();
    tiers.sort_unstable();
    tiers.dedup();
    tiers
}

/// A cut of the operator's own that does not fit is his to mend; otherwise no nodes can run the model together.
fn no_plan(error: PlanError) -> TaskError {
    match error {
        PlanError::NotForThis {
            policy: "pinned",
            why,
        } => TaskError::invalid(format!(
            "this cut does not fit the model and its nodes: it takes {why}"
        ))
        .with_field("cut")
        .with_hint("`karman model inspect` counts the layers, `karman mesh offers` shows the nodes in reach"),
        error => TaskError::unavailable(error.to_string()),
    }
}

impl Planned {
    pub(super) fn answer(&self, applied: bool) -> SplitPlan {
        let bounds = self.bounds.used(&self.plan.prediction);
        let words: String = bounds.iter().map(|bound| format!("  {bound}\n")).collect();
        SplitPlan {
            model: self.model.name.clone(),
            nodes: self.profiles.iter().map(|profile| profile.node).collect(),
            left_out: self.left_out.clone(),
            predicted: self
                .profiles
                .iter()
                .filter(|profile| profile.is_predicted())
                .map(|profile| profile.node)
                .collect(),
            bounds,
            explanation: format!("{}{words}", self.plan.explain(&self.problem)),
            plan: self.plan.clone(),
            problem: self.problem.clone(),
            power: self
                .profiles
                .iter()
                .map(|profile| (profile.node, profile.power.clone()))
                .collect(),
            applied,
        }
    }

    /// A plan as nodes understand it. The first stage is here, with no layer where the plan gives this node none.
    pub(super) fn route(&self, plan: &Plan) -> Route {
        let tiers = tiers_of(plan);
        let stage_of = |tier: &usize| tiers.iter().position(|other| other == tier).unwrap_or_default() as u8;
        let cut = Cut {
            model: self.model.digest,
            stage_of_layer: plan.assignment.iter().map(stage_of).collect(),
        };
        let mut after_ms = 0.0;
        let mut stations = Vec::new();
        for (stage, tier) in tiers.iter().enumerate().skip(1).rev() {
            let compute = plan.prediction.tiers[*tier].compute_ms;
            let transfer: f64 = plan
                .prediction
                .links
                .iter()
                .filter(|link| link.to == *tier)
                .map(|link| link.ms)
                .sum();
            // Those after it may have to be asked twice.
            after_ms = PATIENCE * (compute + transfer) + GRACE_MS + 2.0 * after_ms;
            stations.push(Station {
                stage: stage as u8,
                nodes: self.line_of(*tier),
                patience_ms: after_ms as u64,
                rate_mbit_s: f64::INFINITY,
                back_mbit_s: f64::INFINITY,
                late_ms: None,
                silent_ms: None,
            });
        }
        stations.reverse();
        Route {
            cut,
            stations,
            tiers,
            assignment: plan.assignment.clone(),
            expected_ms: plan.prediction.latency_ms,
            spare: AtomicBool::new(false),
        }
    }

    /// The node that runs a stage, then the others that may, this one last.
    fn line_of(&self, tier: usize) -> Vec<NodeId> {
        let mut line = vec![self.profiles[tier].node];
        let others = self.profiles.iter().skip(1).map(|profile| profile.node);
        line.extend(others.filter(|other| *other != self.profiles[tier].node).take(2));
        line.push(self.profiles[0].node);
        line
    }

    /// Has every node make its stage ready.
    ///
    /// # Errors
    /// What one of them says, and which.
    pub(super) async fn prepare(&self, node: &Node, route: &Route) -> Result<(), (NodeId, TaskError)> {
        let here = node.split().stages().get_warm(&route.cut, 0).await;
        here.map_err(|error| (node.runtime().id(), error))?;
        let each = route.stations.iter().filter_map(|station| {
            let at = station.nodes.first()?;
            let (at, peer) = *self.peers.iter().find(|(peer, _)| peer == at)?;
            let prepared = self.prepare_at(node, &route.cut, station.stage, at, peer);
            Some(prepared.map_err(move |error| (at, error)))
        });
        try_join_all(each).await.map(drop)
    }

    async fn prepare_at(
        &self,
        node: &Node,
        cut: &Cut,
        stage: u8,
        at: NodeId,
        peer: PeerId,
    ) -> Result<(), TaskError> {
        let prepare = Prepare {
            cut: cut.clone(),
            stage,
            ticket: ticket(node, &self.model, at)?.to_vec(),
        };
        let ask = Ask::PrepareStage {
            digest: self.model.digest,
            size: self.model.bytes,
        };
        let name = format!("model/{}", self.model.name);
        let head = CallHead::new(ask, name, node.runtime().context(None).task);
        mesh_of(node)?
            .call(peer, head, pack(&prepare, &Vec::new())?)
            .await?;
        Ok(())
    }
}

pub(super) fn model_of(node: &Node, name: &str) -> Result<karman_store::Model, TaskError> {
    let store = node.runtime().home().store()?;
    let model = store.models().get(name)?;
    model.ok_or_else(|| unknown_model(name))
}

/// Lets a node read a model's file.
fn ticket(node: &Node, model: &karman_store::Model, reader: NodeId) -> Result<Bytes, TaskError> {
    let standing = mesh_of(node)?.standing();
    let ticket = Ticket {
        name: format!("model/{}", model.name),
        digest: model.digest,
        reader,
        not_after: standing.now().after(TICKET),
    };
    ticket.sign(standing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::partition::{Layer, LayerGraph, Link, Objective, Tier, Tiers, Weights};

    #[test]
    fn the_same_layers_run_on_the_same_nodes_by_another_way() {
        let planned = |direct_mbit_s| {
            let link = |from, to, rate_mbit_s, latency_ms| Link {
                from,
                to,
                rate_mbit_s,
                latency_ms,
                message_ms: 0.0,
            };
            let layers = vec![Layer::measured("a", &[120.0, 31.0, 5.0], 0, 0)];
            let graph = LayerGraph::chain(layers, 19_000, &[100]).unwrap();
            let tiers = ["edge", "fog", "cloud"].map(Tier::new).to_vec();
            let links = vec![
                link(0, 1, 7.5, 3.0),
                link(1, 2, 1000.0, 10.0),
                link(0, 2, direct_mbit_s, 13.0),
                link(2, 0, 7.5, 13.0),
            ];
            let problem = Problem::new(graph, tiers, links, Objective::LATENCY, Weights::Everywhere);
            Tiers.plan(&problem.unwrap()).unwrap()
        };
        let (direct, around) = (planned(7.5), planned(1.0));
        assert_eq!(
            (&direct.assignment[..], &around.assignment[..]),
            (&[2][..], &[2][..])
        );
        assert_eq!(
            (tiers_of(&direct), tiers_of(&around)),
            (vec![0, 2], vec![0, 1, 2])
        );
    }
}
