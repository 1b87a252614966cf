//! Who takes part in a round: those that are asked and say who they are and what they bring.

use super::{MOST_IN_A_SLOT, SwarmPlan};
use crate::drive::swarm::company;
use crate::drive::swarm::talk::{invalid, say};
use crate::services::blocking;
use futures::future::join_all;
use karman_fed::swarm::{Answer, Descriptor, Link, Message, Opening, Place, Shown, SwarmSettings};
use karman_mesh::{Mesh, Standing};
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
        let answer = say(mesh, &plan.name, round, *node, Message::Open(opening)).await;
        (*node, answer)
    });
    let answers = join_all(asked).await;
    let (settings, members) = (plan.settings, mesh.standing().clone());
    // Memberships are signatures, and there may be many.
    blocking(move || {
        let (mut entered, mut refused) = (Vec::new(), Vec::new());
        let mut seen = BTreeSet::new();
        for (node, answer) in answers {
            match enter(&settings, &members, node, answer) {
                Ok(client) if seen.insert(client.descriptor.digest()) => entered.push(client),
                Ok(_) => refused.push((node, "it brings the update of another".to_owned())),
                Err(error) => refused.push((node, error.to_string())),
            }
        }
        Ok((entered, refused))
    })
    .await
}

fn enter(
    settings: &SwarmSettings,
    members: &Standing,
    node: NodeId,
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
    company::is_of(node, &shown, members)?;
    let fits = descriptor.check(&settings.layout, settings.most_weight);
    fits.map_err(|error| invalid(&error))?;
    if link.up == 0 || link.down == 0 {
        return Err(invalid(&"its link carries no chunk in a slot"));
    }
    Ok(Entered {
        place: Place { node, mailbox },
        descriptor,
        link: Link {
            up: link.up.min(MOST_IN_A_SLOT),
            down: link.down.min(MOST_IN_A_SLOT),
        },
        shown,
    })
}
