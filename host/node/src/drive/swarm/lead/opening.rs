//! Who takes part in a round: those that are asked and say who they are and what they bring.

use super::{MOST_IN_A_SLOT, SwarmPlan, say_in_time};
use crate::drive::swarm::company::{self, Members};
use crate::drive::swarm::talk::invalid;
use crate::services::blocking;
use futures::future::join_all;
use karman_fed::swarm::{Answer, Descriptor, Link, Message, Opening, Place, Shown, SwarmSettings};
use karman_mesh::Mesh;
use karman_types::{Digest, NodeId, TaskError};
use std::collections::BTreeSet;

/// A node that takes part.
pub(super) struct Entered {
    pub(super) place: Place,
    pub(super) descriptor: Descriptor,
    pub(super) link: Link,
    pub(super) shown: Shown,
}

/// Those that take part; and nodes that do not, and why.
pub(super) type Opened = (Vec<Entered>, Vec<(NodeId, String)>);

/// Asks the nodes to take part. One that does not, or whose answer fits no round, does not keep the others from it.
pub(super) async fn open(
    mesh: &Mesh,
    plan: &SwarmPlan,
    round: Digest,
    nodes: &[NodeId],
) -> Result<Opened, TaskError> {
    let opening = Opening {
        settings: plan.settings,
        numbers: plan.numbers,
    };
    let asked = nodes.iter().map(|node| async move {
        let answer = say_in_time(mesh, plan, round, *node, Message::Open(opening)).await;
        (*node, answer)
    });
    let answers = join_all(asked).await;
    let (settings, weights) = (plan.settings, plan.weights.clone());
    let members = mesh.standing().clone();
    // Memberships are signatures, and there may be many.
    blocking(move || {
        let (mut entered, mut refused) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (node, answer) in answers {
            let due = weights.get(&node).copied();
            match enter((round, &settings), &*members, node, due, answer) {
                Ok(client) if seen.insert(client.descriptor.digest()) => entered.push(client),
                Ok(_) => refused.push((node, "it brings the update of another".to_owned())),
                Err(error) => refused.push((node, error.to_string())),
            }
        }
        Ok((entered, refused))
    })
    .await
}

/// `due` is what its update has to weigh, where that is known.
fn enter(
    (round, settings): (Digest, &SwarmSettings),
    members: &dyn Members,
    node: NodeId,
    due: Option<u32>,
    answer: Result<Answer, TaskError>,
) -> Result<Entered, TaskError> {
    let Answer::Here {
        descriptor,
        mailbox,
        link,
        shown,
    } = answer?
    else {
        return Err(invalid(&"it answers what it was not asked"));
    };
    let place = Place { node, mailbox };
    company::is_of(&place, &shown, round, members)?;
    let fits = descriptor.check(&settings.layout, settings.most_weight);
    fits.map_err(|error| invalid(&error))?;
    if let Some(due) = due
        && due != descriptor.weight
    {
        let weight = descriptor.weight;
        let says = format!("its update weighs {weight}, and the samples that it has declared weigh {due}");
        return Err(invalid(&says));
    }
    if link.up == 0 || link.down == 0 {
        return Err(invalid(&"its link carries no chunk in a slot"));
    }
    Ok(Entered {
        place,
        descriptor,
        link: Link {
            up: link.up.min(MOST_IN_A_SLOT),
            down: link.down.min(MOST_IN_A_SLOT),
        },
        shown,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_fed::swarm::Layout;
    use karman_mesh::Mailbox;

    /// A mesh of which everybody is a member.
    struct Village;

    impl Members for Village {
        fn me(&self) -> NodeId {
            NodeId::of_key(&[9; 32])
        }

        fn shows(&self, _: Digest, _: &Mailbox) -> Result<Shown, TaskError> {
            Err(TaskError::unavailable("it is in no round"))
        }

        fn who(&self, shown: &Shown, _: Digest, _: &[u8; 32]) -> Result<NodeId, TaskError> {
            Ok(NodeId::of_key(&*shown.key))
        }
    }

    /// What comes of the answer of node 1 with an update of this weight, if it has to weigh so much and shows the membership of that node.
    fn entered(weight: u32, due: Option<u32>, shows: u8) -> Result<u32, String> {
        let layout = Layout { chunk: 4, chunks: 2 };
        let settings = SwarmSettings {
            layout,
            most_weight: 9,
            ..SwarmSettings::default()
        };
        let chunks = layout.cut(&[1; 8]).unwrap();
        let answer = Answer::Here {
            descriptor: Descriptor::of(Digest::of(b"one"), weight, &chunks),
            mailbox: [0; 32].into(),
            link: Link { up: 1, down: 1 },
            shown: Shown {
                key: [shows; 32].into(),
                membership: vec![1u8].into(),
                signature: [0; 64].into(),
            },
        };
        let node = NodeId::of_key(&[1; 32]);
        let round = Digest::of(b"round");
        let entered = enter((round, &settings), &Village, node, due, Ok(answer));
        entered
            .map(|client| client.descriptor.weight)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_update_that_weighs_what_it_should_not_is_not_in_the_round() {
        assert_eq!(entered(3, Some(3), 1), Ok(3));
        assert_eq!(entered(3, None, 1), Ok(3));
        let other = entered(9, Some(3), 1).unwrap_err();
        assert!(other.contains("weighs 9") && other.contains("weigh 3"), "{other}");
        assert!(entered(10, None, 1).unwrap_err().contains("from 1 to 9"));
    }

    #[test]
    fn nobody_takes_part_under_the_name_of_another() {
        let other = entered(3, None, 2).unwrap_err();
        assert!(other.contains("the membership of another"), "{other}");
    }
}
