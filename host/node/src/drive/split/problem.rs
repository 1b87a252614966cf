//! What the nodes measured, as the planner takes it.

use super::encodings::bytes_on_slow_links;
use super::profiles::NodeProfile;
use crate::power::Channel;
use karman_sched::partition::{
    Layer, LayerGraph, LayerTime, Link, Objective, Plan, Power, Problem, Producer, Tensor, Tier, Weights,
};
use karman_tensor::ElementType;
use karman_types::TaskError;

/// What a message of a request takes besides an empty one, whatever its length: to run a stage, others are looked up and told of. Where two
/// ways are equally long, the one over fewer nodes is taken.
pub(super) const MESSAGE_MS: f64 = 0.2;

/// Stands for the bytes of shapes (whole numbers of 64 bits), at which no model is cut: see [`Layers::cut_points`](karman_infer::graph::Layers::cut_points).
const NEVER: u64 = 1 << 50;

/// The problem of running a model on these nodes, in this order; the first one has the input and wants the result. Activations may
/// come out of a link with this error.
pub(super) fn problem(
    nodes: &[NodeProfile],
    objective: Objective,
    max_error: f64,
) -> Result<Problem, TaskError> {
    let [first, ..] = nodes else {
        return Err(TaskError::invalid("no node takes part"));
    };
    let milliseconds: Vec<Vec<f64>> = nodes
        .iter()
        .map(|node| {
            let seconds = node.seconds();
            seconds.iter().map(|seconds| seconds * 1e3).collect()
        })
        .collect();
    let layer = |(at, layer): (usize, &karman_infer::profile::LayerProfile)| Layer {
        name: layer.name.clone(),
        time: LayerTime::Measured(
            milliseconds
                .iter()
                .map(|of_node| of_node.get(at).copied())
                .collect(),
        ),
        weight_bytes: layer.parameter_bytes,
        working_bytes: layer.bytes_in + layer.bytes_out,
    };
    let layers = first.profile.layers.iter().enumerate().map(layer).collect();
    let tensor = |edge: &karman_infer::profile::EdgeProfile| Tensor {
        from: edge.from.map_or(Producer::Held(0), Producer::Layer),
        to: edge.to.clone(),
        wanted_at: edge.is_output.then_some(0),
        bytes: match edge.element {
            ElementType::I64 if edge.from.is_some() && !edge.is_output => NEVER,
            ElementType::F32 if !edge.is_output => {
                bytes_on_slow_links(edge.bytes, edge.packed_bytes, max_error)
            }
            _ => edge.bytes,
        },
    };
    let tensors = first.profile.edges.iter().map(tensor).collect();
    let graph = LayerGraph::new(layers, tensors).map_err(|error| TaskError::internal(error.to_string()))?;
    let tier = |node: &NodeProfile| {
        Ok(Tier {
            memory_bytes: Some(node.free_memory),
            power: power(node, objective.energy > 0.0)?,
            ..Tier::new(format!("{} ({})", node.node.short(), node.tier))
        })
    };
    let tiers = nodes.iter().map(tier).collect::<Result<_, TaskError>>()?;
    Problem::new(graph, tiers, links(nodes), objective, Weights::Everywhere)
        .map_err(|error| TaskError::invalid(error.to_string()))
}

/// Whether shapes would cross a link, which happens at no cut but one that is given.
pub(super) fn carries_shapes(plan: &Plan) -> bool {
    plan.prediction.links.iter().any(|link| link.bytes >= NEVER)
}

/// What a node draws. Where energy counts, a node that does not know would look as if it drew nothing.
fn power(node: &NodeProfile, counts: bool) -> Result<Power, TaskError> {
    let watts = |what, channel: &Channel| match channel {
        Channel::Unavailable { reason } if counts => Err(TaskError::unavailable(format!(
            "what node {} draws {what} is not known: {reason}",
            node.node.short()
        ))
        .with_field("energy")
        .with_hint("write `busy`, `idle` and `transmit` in watts under `[power]` in its node.toml")),
        channel => Ok(channel.watts().unwrap_or_default()),
    };
    Ok(Power {
        busy_w: watts("while it computes", &node.power.busy)?,
        idle_w: watts("while it is idle", &node.power.idle)?,
        transmit_w: watts("while it sends", &node.power.transmit)?,
    })
}

/// The links that were measured. What was measured in one direction only stands for both.
fn links(nodes: &[NodeProfile]) -> Vec<Link> {
    let measured = |from: usize, to: usize| {
        let to = nodes[to].node;
        nodes[from].links.iter().find(|link| link.to == to)
    };
    let pairs = (0..nodes.len()).flat_map(|from| (0..nodes.len()).map(move |to| (from, to)));
    pairs
        .filter(|(from, to)| from != to)
        .filter_map(|(from, to)| {
            let link = measured(from, to).or_else(|| measured(to, from))?;
            Some(Link {
                from,
                to,
                rate_mbit_s: link.rate_mbit_s,
                latency_ms: link.latency_ms,
                message_ms: MESSAGE_MS,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::partition::{Partitioner, Pinned};

    #[test]
    fn a_cut_that_is_given_may_be_where_shapes_cross() {
        let layers = ["a", "b"].map(|name| Layer::measured(name, &[1.0, 1.0], 0, 0));
        let graph = LayerGraph::chain(layers.to_vec(), 10, &[NEVER, 10]).unwrap();
        let tiers = ["edge", "fog"].map(Tier::new).to_vec();
        let link = |from, to| Link {
            from,
            to,
            rate_mbit_s: 100.0,
            latency_ms: 1.0,
            message_ms: MESSAGE_MS,
        };
        let links = vec![link(0, 1), link(1, 0)];
        let problem = Problem::new(graph, tiers, links, Objective::LATENCY, Weights::Everywhere).unwrap();
        let carries = |end| carries_shapes(&Pinned { ends: vec![end] }.plan(&problem).unwrap());
        assert_eq!([0, 1, 2].map(carries), [false, true, false]);
    }
}
