//! Who is in reach now though no contact says so: a satellite that is still on the bench, a node that came back too early.

use karman_mesh::Mesh;
use karman_space::{Contact, ContactPlan, Rate, Time};
use karman_types::NodeId;
use std::time::Duration;

/// How long a node that is in reach without a planned contact is taken to stay.
const STAYS: Duration = Duration::from_secs(3600);
/// How fast such a node is taken to be.
const USUAL: Rate = Rate(10_000_000);
/// So close to a planned contact it is that one that counts: what is left of its connection is about to be closed.
pub(super) const NEAR: Duration = Duration::from_secs(5);

/// The plan, with those in reach whom it does not name for now.
pub(super) fn with_chances(mesh: &Mesh, plan: &ContactPlan, here: NodeId, now: Time) -> ContactPlan {
    let peers = mesh.peers().into_iter().filter(|peer| peer.path.is_some());
    let members = peers.filter_map(|peer| peer.member);
    let chances = members.filter_map(|member| chance(plan, here, member.node, now));
    let left = plan.contacts().iter().filter(|contact| contact.end > now);
    let all = left.copied().chain(chances).collect();
    ContactPlan::new(all).unwrap_or_else(|_| plan.clone())
}

/// The contact with a node that is in reach, where the plan has none now. It ends when the next planned one begins.
fn chance(plan: &ContactPlan, here: NodeId, to: NodeId, now: Time) -> Option<Contact> {
    if is_planned(plan, here, to, now) {
        return None;
    }
    let starts = planned(plan, here, to).map(|contact| contact.start);
    let next = starts.filter(|start| *start > now).min();
    let stays = now + STAYS;
    Some(Contact {
        from: here,
        to,
        start: now,
        end: next.map_or(stays, |next| next.min(stays)),
        rate: USUAL,
        delay: Duration::ZERO,
    })
}

/// Whether a contact between two nodes is planned for now, or for nearly now.
pub(super) fn is_planned(plan: &ContactPlan, here: NodeId, to: NodeId, now: Time) -> bool {
    planned(plan, here, to).any(|contact| contact.start <= now + NEAR && now <= contact.end + NEAR)
}

/// Whichever of the two sends.
fn planned(plan: &ContactPlan, here: NodeId, to: NodeId) -> impl Iterator<Item = &Contact> {
    let there = plan.contacts_between(here, to).iter();
    there.chain(plan.contacts_between(to, here))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Time {
        Time::from_unix_ms(seconds * 1000)
    }

    #[test]
    fn a_node_that_is_there_between_its_contacts_is_in_reach_until_the_next() {
        let [here, there] = ["here", "there"].map(|name| NodeId::of_key(name.as_bytes()));
        let contact = |start, end| Contact {
            from: there,
            to: here,
            start: at(start),
            end: at(end),
            rate: USUAL,
            delay: Duration::ZERO,
        };
        let plan = ContactPlan::new(vec![contact(100, 200), contact(300, 400)]).unwrap();
        let until = |now| chance(&plan, here, there, at(now)).map(|contact| contact.end);
        assert_eq!(until(50), Some(at(100)));
        // About to begin, begun, just over.
        assert_eq!([96, 150, 204].map(until), [None; 3]);
        assert_eq!(until(206), Some(at(300)));
        assert_eq!(until(500), Some(at(500) + STAYS));
    }
}
