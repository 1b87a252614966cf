mod ways;

use crate::{Contact, ContactPlan, NoRoute, Time};
use karman_types::NodeId;
use serde::{Deserialize, Serialize};

/// Which of the bundles that wait goes first (the classes of CCSDS 734.2-B-1).
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Priority {
    /// After all others.
    Bulk,
    /// Between the two.
    #[default]
    Normal,
    /// Before all others.
    Expedited,
}

/// A bundle that waits at a node.
#[derive(Clone, Debug, PartialEq)]
pub struct Waiting<K> {
    /// What it is known by.
    pub key: K,
    /// The node where it shall be.
    pub destination: NodeId,
    /// Bytes that are still to be sent to the next node.
    pub bytes: u64,
    /// Which goes first.
    pub priority: Priority,
    /// The last instant at which it may arrive.
    pub expires: Time,
    /// Nodes that do not take it.
    pub refused_by: Vec<NodeId>,
}

/// A node's plan for the bundles that wait at it.
#[derive(Clone, Debug, PartialEq)]
pub struct Agenda<K> {
    /// What leaves now and to whom, in this order.
    pub now: Vec<(K, Contact)>,
    /// When to look again: the start of a contact that something waits for, or the end of one that is used.
    pub next: Option<Time>,
    /// What no contacts lead to its destination in time.
    pub stranded: Vec<(K, NoRoute)>,
}

/// What a node sends at this instant, in which order, and the next node of each bundle.
///
/// Each goes by the route on which it arrives first ([`earliest_arrival`](crate::earliest_arrival)), looked for anew, since contacts may
/// have failed to bring what they promised. It is looked for once for all that have nearly the same length and are refused by the same
/// nodes: on it one arrives first that is longer by an eighth at most, unless only a route of its own brings it there in time.
///
/// A transfer that a contact cuts goes on in the next one, so a bundle may be spread over several; one that the contacts that are known do
/// not bring there whole takes the route of its first byte, since part of it may have come already, and more contacts may become known.
/// The more urgent goes first, then what expires first. What bundles take from each other in one contact is not counted; what does not
/// fit goes on later.
pub fn agenda<K: Clone>(plan: &ContactPlan, here: NodeId, now: Time, waiting: &[Waiting<K>]) -> Agenda<K> {
    let mut agenda = Agenda {
        now: Vec::new(),
        next: None,
        stranded: Vec::new(),
    };
    let mut order: Vec<&Waiting<K>> = waiting.iter().collect();
    order.sort_by_key(|bundle| (std::cmp::Reverse(bundle.priority), bundle.expires));
    for (bundle, way) in order.iter().zip(ways::first_contacts(plan, here, now, &order)) {
        match way {
            Ok(Some(contact)) => {
                let open = contact.is_open(now);
                let look = if open { contact.end } else { contact.start };
                agenda.next = Some(agenda.next.map_or(look, |next| next.min(look)));
                if open {
                    agenda.now.push((bundle.key.clone(), contact));
                }
            }
            // It is where it shall be.
            Ok(None) => {}
            Err(none) => agenda.stranded.push((bundle.key.clone(), none)),
        }
    }
    agenda
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rate;
    use proptest::prelude::*;
    use std::time::Duration;

    fn node(n: u8) -> NodeId {
        NodeId::of_key(&[n])
    }

    fn at(seconds: i64) -> Time {
        Time::from_unix_ms(seconds * 1000)
    }

    /// At 1 kB/s.
    fn contact(from: u8, to: u8, start: i64, end: i64) -> Contact {
        Contact {
            from: node(from),
            to: node(to),
            start: at(start),
            end: at(end),
            rate: Rate(8_000),
            delay: Duration::ZERO,
        }
    }

    fn waiting(key: u8, to: u8, bytes: u64, priority: Priority, expires: i64) -> Waiting<u8> {
        Waiting {
            key,
            destination: node(to),
            bytes,
            priority,
            expires: at(expires),
            refused_by: Vec::new(),
        }
    }

    #[test]
    fn the_urgent_goes_first_and_the_rest_waits_for_its_contact() {
        let plan = ContactPlan::new(vec![
            contact(0, 1, 10, 20),
            contact(1, 2, 30, 40),
            contact(0, 3, 15, 25),
        ]);
        let plan = plan.unwrap();
        let bundles = [
            waiting(1, 2, 1_000, Priority::Normal, 100),
            waiting(2, 1, 1_000, Priority::Normal, 50),
            waiting(3, 3, 1_000, Priority::Bulk, 100),
            waiting(4, 1, 1_000, Priority::Expedited, 100),
            waiting(5, 9, 1_000, Priority::Expedited, 100),
        ];
        let before = agenda(&plan, node(0), at(0), &bundles);
        assert_eq!((before.now, before.next), (Vec::new(), Some(at(10))));
        assert_eq!(before.stranded.len(), 1);
        let open = agenda(&plan, node(0), at(10), &bundles);
        let order: Vec<u8> = open.now.iter().map(|(key, _)| *key).collect();
        assert_eq!(order, [4, 2, 1]);
        assert!(open.now.iter().all(|(_, contact)| contact.to == node(1)));
        assert_eq!(open.next, Some(at(15)));
    }

    #[test]
    fn what_does_not_fit_into_one_contact_begins_in_it() {
        let plan = ContactPlan::new(vec![contact(0, 1, 10, 12), contact(0, 1, 20, 22)]).unwrap();
        let bundle = [waiting(1, 1, 3_000, Priority::Normal, 100)];
        assert_eq!(agenda(&plan, node(0), at(10), &bundle).now.len(), 1);
        // What is left after the first fits into the second.
        let rest = [waiting(1, 1, 1_500, Priority::Normal, 100)];
        assert_eq!(agenda(&plan, node(0), at(13), &rest).next, Some(at(20)));
        // So does what may be too much: some of it is there already.
        let too_much = [waiting(1, 1, 2_500, Priority::Normal, 100)];
        assert_eq!(agenda(&plan, node(0), at(13), &too_much).next, Some(at(20)));
        assert_eq!(agenda(&plan, node(0), at(20), &too_much).now.len(), 1);
        assert_eq!(agenda(&plan, node(0), at(23), &too_much).stranded.len(), 1);
    }

    #[test]
    fn who_refuses_is_gone_around() {
        let plan = ContactPlan::new(vec![
            contact(0, 1, 0, 10),
            contact(1, 3, 0, 10),
            contact(0, 2, 5, 10),
            contact(2, 3, 5, 10),
        ]);
        let plan = plan.unwrap();
        let mut bundle = waiting(1, 3, 10, Priority::Normal, 100);
        let first = agenda(&plan, node(0), at(5), std::slice::from_ref(&bundle));
        assert_eq!(first.now.len(), 1);
        bundle.refused_by = vec![first.now[0].1.to];
        let second = agenda(&plan, node(0), at(5), std::slice::from_ref(&bundle));
        assert_eq!(second.now.len(), 1);
        assert_ne!(second.now[0].1.to, first.now[0].1.to);
        bundle.refused_by = vec![node(1), node(2)];
        assert_eq!(agenda(&plan, node(0), at(5), &[bundle]).stranded.len(), 1);
    }

    proptest! {
        /// Every bundle leaves now, leaves later or is stranded; what leaves does so in an open contact of this node, the more
        /// urgent first, and what leaves later waits for the instant that is told.
        #[test]
        fn an_agenda_holds_together(
            contacts in proptest::collection::vec((0u8..5, 0u8..5, 0i64..100, 1i64..20), 0..30),
            bundles in proptest::collection::vec((0u8..5, 1u64..20_000, 0u8..3, 0i64..150), 0..10),
            now in 0i64..100,
        ) {
            let mut plan = ContactPlan::default();
            for (from, to, start, length) in contacts {
                let more = [plan.contacts(), &[contact(from, to, start, start + length)]].concat();
                plan = ContactPlan::new(more).unwrap_or(plan);
            }
            let waiting: Vec<Waiting<u8>> = (0..)
                .zip(&bundles)
                .map(|(key, &(to, bytes, priority, expires))| {
                    let priority = [Priority::Bulk, Priority::Normal, Priority::Expedited][usize::from(priority)];
                    waiting(key, to, bytes, priority, expires)
                })
                .collect();
            let agenda = agenda(&plan, node(0), at(now), &waiting);
            let of = |key: u8| &waiting[usize::from(key)];
            for (key, contact) in &agenda.now {
                prop_assert!(contact.from == node(0) && contact.is_open(at(now)) && of(*key).expires >= at(now));
            }
            for pair in agenda.now.windows(2) {
                prop_assert!(of(pair[0].0).priority >= of(pair[1].0).priority);
            }
            prop_assert!(agenda.next.is_none_or(|next| next > at(now)));
            prop_assert!(agenda.now.len() + agenda.stranded.len() <= waiting.len());
            let later = waiting.len() - agenda.now.len() - agenda.stranded.len();
            let home = waiting.iter().filter(|bundle| bundle.destination == node(0) && bundle.expires >= at(now));
            prop_assert!(later == home.count() || agenda.next.is_some());
        }
    }
}
