//! The links between the nodes of a plan, measured in rounds: two that share a node would measure each other.

use super::profiles::link_of_other;
use crate::drive::links::{LinkMeasure, heard, measure};
use crate::node::Node;
use futures::future::join_all;
use karman_mesh::PeerId;
use karman_store::Model;
use karman_types::{NodeId, TaskError};
use std::iter::once;
use std::time::Duration;
use tokio::time::timeout;

/// How long the measurement of a link may take: over one that needs longer for the few bytes of it no activation is sent.
const LONGEST: Duration = Duration::from_secs(60);

/// A node; how it is asked, unless it is this one.
type At = (NodeId, Option<PeerId>);

/// The links between this node and others that have told their profile of the model, as far as they can be measured.
pub(super) async fn links_between(
    node: &Node,
    others: &[(NodeId, PeerId)],
    model: &Model,
) -> Vec<LinkMeasure> {
    let others = others.iter().map(|(at, peer)| (*at, Some(*peer)));
    let nodes: Vec<At> = once((node.runtime().id(), None)).chain(others).collect();
    let mut links = Vec::new();
    for round in rounds(nodes.len()) {
        let pairs = round
            .into_iter()
            .map(|(one, other)| both_ways(node, model, nodes[one], nodes[other]));
        links.extend(join_all(pairs).await.into_iter().flatten());
    }
    links
}

/// The link from one node to another, then the one back.
async fn both_ways(node: &Node, model: &Model, one: At, other: At) -> Vec<LinkMeasure> {
    let mut links = Vec::new();
    for ((from, asked), (to, _)) in [(one, other), (other, one)] {
        let measured = async {
            match asked {
                None => measure(node, to).await,
                Some(peer) => link_of_other(node, (from, peer), to, model).await,
            }
        };
        let late = |_| {
            Err(TaskError::deadline(format!(
                "it was not measured within {LONGEST:?}"
            )))
        };
        match timeout(LONGEST, measured).await.unwrap_or_else(late) {
            Ok(link) => {
                heard(node, &link);
                links.push(link);
            }
            Err(error) => tracing::debug!(%from, %to, %error, "a link is not measured"),
        }
    }
    links
}

/// So many nodes meet in pairs: each pair once, and no node twice in a round.
fn rounds(nodes: usize) -> Vec<Vec<(usize, usize)>> {
    // By the sum of their numbers; the last of an even number of nodes meets, in each round, the one that is left over.
    let count = nodes.saturating_sub(1) | 1;
    let mut rounds = vec![Vec::new(); count];
    for to in 1..nodes {
        for from in 0..to {
            let sum = if to < count { from + to } else { 2 * from };
            rounds[sum % count].push((from, to));
        }
    }
    rounds
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::partition::Problem;
    use std::collections::HashSet;

    #[test]
    fn each_pair_meets_once_and_nobody_is_in_two_pairs_of_a_round() {
        for nodes in 0..=Problem::MAX_TIERS {
            let rounds = rounds(nodes);
            let mut met = HashSet::new();
            for round in &rounds {
                let mut busy = HashSet::new();
                for (from, to) in round {
                    assert!(
                        from < to && *to < nodes && busy.insert(*from) && busy.insert(*to),
                        "{rounds:?}"
                    );
                    assert!(met.insert((*from, *to)), "{rounds:?}");
                }
            }
            assert_eq!(met.len(), nodes * nodes.saturating_sub(1) / 2, "{rounds:?}");
            assert!(rounds.len() <= nodes.max(1), "{rounds:?}");
        }
    }
}
