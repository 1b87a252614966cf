//! Whom an order on several nodes means, and does not reach.

use crate::control::Control;
use crate::output::Output;
use karman_node::{OnNode, PeerStatus};
use karman_types::{NodeId, NodeSelector};

/// As many are named to people; programs are told all.
const MOST_NAMED: usize = 8;

/// The nodes that a selector means and that have not got the order: of those that the node here has met since it was started, the ones that
/// are out of reach. Nobody knows of others.
pub(crate) struct OutOfReach(Vec<NodeId>);

impl OutOfReach {
    /// Asked once the order is given: by then it has reached whom it can. What came of it stands, also where this is not to be known.
    pub(crate) fn of<T>(control: &Control, selector: &str, outcomes: &[OnNode<T>]) -> Self {
        let peers: Vec<PeerStatus> = control.get("/mesh/peers").unwrap_or_default();
        let asked: Vec<NodeId> = outcomes.iter().map(|outcome| outcome.node).collect();
        match selector.parse::<NodeSelector>() {
            Ok(meant) => Self(left_out(&peers, &meant, &asked)),
            // Then it named nobody, and the order was refused.
            Err(_) => Self(Vec::new()),
        }
    }

    /// All of them.
    pub(crate) fn nodes(&self) -> &[NodeId] {
        &self.0
    }

    /// Says which they are, where there are any.
    pub(crate) fn say(&self, output: &Output) {
        if self.0.is_empty() {
            return;
        }
        let named: Vec<String> = self.0.iter().take(MOST_NAMED).map(NodeId::short).collect();
        let more = match self.0.len() - named.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        output.note(format!(
            "note: out of reach, so without it: {}{more}; give the order again once they are back",
            named.join(", ")
        ));
    }
}

fn left_out(peers: &[PeerStatus], meant: &NodeSelector, asked: &[NodeId]) -> Vec<NodeId> {
    let is_meant = |peer: &PeerStatus| peer.tier.is_some_and(|tier| meant.matches(peer.node, tier));
    let away = peers.iter().filter(|peer| peer.path.is_none() && is_meant(peer));
    away.map(|peer| peer.node)
        .filter(|node| !asked.contains(node))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn those_are_left_out_that_are_meant_away_and_have_not_answered() {
        let [here, away, cloud, answered] = [0u8, 1, 2, 3].map(|at| NodeId::of_key(&[at]));
        let peer = |node: NodeId, tier: &str, path: Option<&str>| -> PeerStatus {
            let status = json!({
                "node": node, "tier": tier, "path": path, "last_seen_ms": 0, "sent_bytes": 0, "busy": 0,
            });
            serde_json::from_value(status).unwrap()
        };
        let peers = [
            peer(here, "edge", Some("direct")),
            peer(away, "edge", None),
            peer(cloud, "cloud", None),
            peer(answered, "edge", None),
        ];
        let left = |meant: &str| {
            let meant: NodeSelector = meant.parse().unwrap();
            left_out(&peers, &meant, &[here, answered])
        };
        assert_eq!(left("tier=edge"), [away]);
        assert_eq!(left("all"), [away, cloud]);
        assert_eq!(left(&cloud.short()), [cloud]);
        assert!(left("tier=fog").is_empty());
    }
}
