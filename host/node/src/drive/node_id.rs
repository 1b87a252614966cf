//! Which node is meant by an id, or by how one begins.

use super::mesh::mesh_of;
use crate::contacts;
use crate::node::Node;
use karman_types::{NodeId, NodeSelector, TaskError};
use std::collections::BTreeSet;

/// What helps who has named a node that is not known, or not only one.
const HINT: &str = "`karman mesh peers --long` shows ids in full";

impl Node {
    /// The node with this id, or the only one whose id begins so of those that this one has met, of those that the contact plan names,
    /// and itself.
    ///
    /// # Errors
    /// `invalid` (field `node`) when none is meant, or several may be; `unavailable` when this node belongs to no mesh.
    pub(crate) fn named(&self, text: &str) -> Result<NodeId, TaskError> {
        if let Ok(id) = text.parse() {
            return Ok(id);
        }
        let mesh = mesh_of(self)?;
        let peers = mesh.peers().into_iter();
        let there = peers.filter_map(|peer| peer.member.map(|member| member.node));
        let plan = self.bundles().plan(contacts::now());
        let planned = plan.contacts().iter();
        let planned = planned.flat_map(|contact| [contact.from, contact.to]);
        let known = mesh.acquaintances().into_iter().chain(there).chain(planned);
        beginning(text, known.chain([self.runtime().id()])).map_err(|error| error.with_field("node"))
    }
}

/// The one of these nodes whose id begins so.
fn beginning(text: &str, nodes: impl Iterator<Item = NodeId>) -> Result<NodeId, TaskError> {
    const LEAST: usize = NodeSelector::LEAST_DIGITS;
    if text.len() < LEAST {
        let why = format!("`{text}` says too little of a node");
        return Err(TaskError::invalid(why).with_hint(format!("give {LEAST} characters of its id at least")));
    }
    let start = text.to_ascii_lowercase();
    let fit: BTreeSet<NodeId> = nodes
        .filter(|node| node.to_string().starts_with(&start))
        .collect();
    let mut fit = fit.into_iter();
    let why = match (fit.next(), fit.next()) {
        (Some(node), None) => return Ok(node),
        (Some(_), Some(_)) => format!("`{text}` is the beginning of several nodes"),
        _ => format!("`{text}` is no node that this one has met"),
    };
    Err(TaskError::invalid(why).with_hint(HINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_names_the_only_node_that_begins_so() {
        let [one, two] = ["9c01d2e700000001", "9c01d2e8000000a2"].map(|id| id.parse::<NodeId>().unwrap());
        let named = |text: &str| beginning(text, [one, two, one].into_iter());
        assert_eq!(named("9c01d2e7").unwrap(), one);
        assert_eq!(named("9C01D2E8").unwrap(), two);
        for (text, says) in [
            ("9c01", "several nodes"),
            ("41aa", "no node"),
            ("9c0", "too little"),
            ("", "too little"),
        ] {
            assert!(named(text).unwrap_err().message.contains(says), "{text}");
        }
    }
}
