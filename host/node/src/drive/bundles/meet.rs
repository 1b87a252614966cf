//! Contacts begin and end. At the beginning both sides dial, whichever has something to send: perhaps only one of the two knows where the other is.

use super::under_way::Busy;
use super::{AGAIN, contacts, mesh_of};
use crate::node::{Inner, Node};
use karman_mesh::Mesh;
use karman_space::{ContactPlan, Time};
use karman_types::NodeId;
use std::collections::HashSet;
use std::sync::Weak;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

/// How long a node is dialled as often as [`AGAIN`] says: one that is not there by then may be away for all of a long contact.
const OFTEN: Duration = Duration::from_secs(60);
const SELDOM: Duration = Duration::from_secs(5);

/// Ends the connections of contacts that are over, for what is left of them would swallow what the next one is to bring. Which nodes are
/// to be met, and until when: a contact with them has begun.
pub(super) async fn keep_to(node: &Node, mesh: &Mesh, plan: &ContactPlan, now: Time) -> Vec<(NodeId, Time)> {
    let before = std::mem::replace(&mut *node.bundles().looked.lock(), now);
    let here = node.runtime().id();
    let passed = |edge: Time| edge > before && edge <= now;
    let edges = plan
        .contacts_of(here)
        .filter(|contact| passed(contact.start) || passed(contact.end))
        .map(|contact| {
            if contact.from == here {
                contact.to
            } else {
                contact.from
            }
        });
    let mut begun = Vec::new();
    for other in edges.collect::<HashSet<NodeId>>() {
        let Some(id) = mesh.key_of(other).and_then(|key| karman_mesh::peer_of(&key)) else {
            continue;
        };
        match plan
            .open(here, other, now)
            .or_else(|| plan.open(other, here, now))
        {
            Some(contact) => begun.push((other, contact.end)),
            None => {
                tracing::info!(node = %other, "the contact is over");
                mesh.disconnect(id).await;
            }
        }
    }
    begun
}

/// Dials a node until it is there, or its contact is over.
pub(super) async fn meet(node: Weak<Inner>, end: Time, busy: Busy) {
    let arrivals = Node::upgrade(&node).and_then(|node| Some(node.mesh()?.arrivals()));
    let Some(arrivals) = arrivals else { return };
    let (node, other) = (&node, busy.node);
    let dials = dial_again(arrivals, move || dial(node, other));
    let _ = timeout(end.since(contacts::now()), dials).await;
}

/// Dials a node once; false where that is of no use.
async fn dial(node: &Weak<Inner>, other: NodeId) -> bool {
    // A node that is asleep meanwhile can be shut down.
    let Some(here) = Node::upgrade(node) else {
        return false;
    };
    let Ok(mesh) = mesh_of(&here) else { return false };
    let id = mesh.key_of(other).and_then(|key| karman_mesh::peer_of(&key));
    let Some(id) = id.filter(|id| !mesh.is_connected(id)) else {
        return false;
    };
    mesh.connect(id).await;
    true
}

/// Dials as long as that is of use: after a while, and when a node has come, which may be the one.
async fn dial_again<D: Future<Output = bool>>(mut arrivals: watch::Receiver<u64>, dial: impl Fn() -> D) {
    let begun = Instant::now();
    while dial().await {
        let pause = match begun.elapsed() < OFTEN {
            true => AGAIN,
            false => SELDOM,
        };
        if let Ok(Err(_)) = timeout(pause, arrivals.changed()).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::future::ready;

    #[tokio::test]
    async fn a_node_that_is_not_there_at_once_is_dialled_again_until_it_comes() {
        let (arrive, arrivals) = watch::channel(0);
        let times = Cell::new(0);
        let dials = |most: u32| {
            let (times, arrivals) = (&times, arrivals.clone());
            times.set(0);
            dial_again(arrivals, move || {
                times.set(times.get() + 1);
                ready(times.get() < most)
            })
        };
        dials(4).await;
        assert_eq!(times.get(), 4);
        // Nobody comes any more where this node has left.
        drop(arrive);
        dials(9).await;
        assert!(times.get() < 9);
    }
}
