//! When two nodes are in view of each other: what a run's driver, and its clients, know of it by their contact plans.

use super::clock::Clock;
use crate::contacts;
use crate::drive::chances::{NEAR, is_planned};
use crate::node::Node;
use karman_fed::Window;
use karman_mesh::peer_of;
use karman_space::{ContactPlan, Time};
use karman_types::{NodeId, serde_list};
use serde::{Deserialize, Deserializer, Serialize};
use std::time::Duration;

/// The most contacts with a client that count: the next ones.
pub(super) const MOST: usize = 1000;

/// A stretch of time in which two nodes can reach each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stretch {
    start: Time,
    end: Time,
    /// What the link is planned to carry, in bytes a second.
    rate: Option<f64>,
}

/// The same for who may have another clock: counted from when it is said.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Pass {
    begins_ms: u64,
    ends_ms: u64,
    bytes_per_second: Option<f64>,
}

/// No more of them than count.
pub(super) fn passes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Pass>, D::Error> {
    serde_list::at_most(deserializer, MOST)
}

/// When this node and another are in view of each other, as this one has planned it; nothing where it has planned nothing (any more).
pub(super) fn planned(node: &Node, other: NodeId, now: Time) -> Option<Vec<Stretch>> {
    if !node.runtime().config().mesh.plans_contacts() {
        return None;
    }
    let plan = node.bundles().plan(now);
    between(
        &plan,
        (node.runtime().id(), other),
        is_connected(node, other),
        now,
    )
}

/// Whether there is a connection with a node.
pub(super) fn is_connected(node: &Node, other: NodeId) -> bool {
    node.mesh().is_some_and(|mesh| {
        let id = mesh.key_of(other).and_then(|key| peer_of(&key));
        id.is_some_and(|id| mesh.is_connected(&id))
    })
}

/// A link that is planned for one of two directions carries both, as for bundles. One that stands although none is planned stays until
/// the next contact begins.
fn between(
    plan: &ContactPlan,
    (here, other): (NodeId, NodeId),
    connected: bool,
    now: Time,
) -> Option<Vec<Stretch>> {
    let there = plan.contacts_between(here, other).iter();
    let both = there.chain(plan.contacts_between(other, here));
    let stretch = both.map(|contact| Stretch {
        start: contact.start,
        end: contact.end,
        rate: Some(contact.rate.0 as f64 / 8.0),
    });
    let mut left = left(stretch, now)?;
    let next = left.first().map(|stretch| stretch.start);
    if let Some(next) = next.filter(|_| connected && !is_planned(plan, here, other, now)) {
        let chance = Stretch {
            start: Time::MIN,
            end: next,
            rate: None,
        };
        left.insert(0, chance);
    }
    left.truncate(MOST);
    Some(left)
}

/// Those that are not over, by their starts; nothing when the last one is, and the connection of it.
pub(super) fn left(stretches: impl IntoIterator<Item = Stretch>, now: Time) -> Option<Vec<Stretch>> {
    let near = |stretch: &Stretch| stretch.end + NEAR > now;
    let mut left: Vec<Stretch> = stretches.into_iter().filter(near).collect();
    if left.is_empty() {
        return None;
    }
    left.retain(|stretch| stretch.end > now);
    left.sort_by_key(|stretch| (stretch.start, stretch.end));
    Some(left)
}

/// What this node tells the driver of a run of it.
pub(super) fn told_to(node: &Node, driver: NodeId) -> Vec<Pass> {
    let now = contacts::now();
    let ms = |time: Time| u64::try_from(time.since(now).as_millis()).unwrap_or(u64::MAX);
    let pass = |stretch: Stretch| Pass {
        begins_ms: ms(stretch.start),
        ends_ms: ms(stretch.end),
        bytes_per_second: stretch.rate,
    };
    let planned = planned(node, driver, now).unwrap_or_default();
    planned.into_iter().map(pass).collect()
}

/// What a client has just told. A rate that cannot be is none.
pub(super) fn as_told(passes: &[Pass], now: Time) -> Vec<Stretch> {
    let stretch = |pass: &Pass| Stretch {
        start: now + Duration::from_millis(pass.begins_ms),
        end: now + Duration::from_millis(pass.ends_ms),
        rate: pass
            .bytes_per_second
            .filter(|rate| rate.is_finite() && *rate > 0.0),
    };
    passes.iter().map(stretch).collect()
}

/// The same in the time of a run.
pub(super) fn windows(stretches: &[Stretch], clock: Clock, now: Time) -> Vec<Window> {
    let window = |stretch: &Stretch| Window {
        start: clock.at(stretch.start, now),
        end: clock.at(stretch.end, now),
        bytes_per_second: stretch.rate,
    };
    stretches.iter().map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::super::wire::Answer;
    use super::*;
    use crate::drive::cbor::{read, write};
    use karman_fed::Instant;
    use karman_space::{Contact, Rate};

    const HERE: &str = "00000000000000aa";
    const OTHER: &str = "00000000000000bb";

    fn at(seconds: i64) -> Time {
        Time::from_unix_ms(seconds * 1000)
    }

    fn ids() -> (NodeId, NodeId) {
        (HERE.parse().unwrap(), OTHER.parse().unwrap())
    }

    /// From 100 to 200 s, up at 1 kB/s and down at 2 kB/s, and from 300 to 400 s, up alone.
    fn plan() -> ContactPlan {
        let (here, other) = ids();
        let contact = |from, to, start, end, rate| Contact {
            from,
            to,
            start: at(start),
            end: at(end),
            rate: Rate(rate),
            delay: Duration::ZERO,
        };
        let contacts = vec![
            contact(here, other, 100, 200, 8_000),
            contact(other, here, 100, 200, 16_000),
            contact(here, other, 300, 400, 8_000),
        ];
        ContactPlan::new(contacts).unwrap()
    }

    fn ends(connected: bool, now: i64) -> Option<Vec<i64>> {
        let left = between(&plan(), ids(), connected, at(now))?;
        Some(
            left.iter()
                .map(|stretch| stretch.end.unix_micros() / 1_000_000)
                .collect(),
        )
    }

    #[test]
    fn what_is_left_of_a_plan_counts_both_directions_and_who_is_there_unplanned_until_the_next_contact() {
        assert_eq!(ends(false, 50), Some(vec![200, 200, 400]));
        assert_eq!(ends(true, 50), Some(vec![100, 200, 200, 400]));
        // In a contact, and while the connection of one is about to be closed.
        assert_eq!(ends(true, 150), Some(vec![200, 200, 400]));
        assert_eq!(ends(true, 203), Some(vec![400]));
        assert_eq!(ends(true, 250), Some(vec![300, 400]));
        assert_eq!(ends(true, 402), Some(vec![]));
        // There is no plan any more.
        assert_eq!(ends(true, 500), None);
        let nobody: NodeId = "00000000000000cc".parse().unwrap();
        assert_eq!(between(&plan(), (ids().0, nobody), true, at(50)), None);
    }

    #[test]
    fn a_run_and_a_node_with_another_clock_are_told_the_same() {
        let stretches = between(&plan(), ids(), true, at(50)).unwrap();
        let clock = Clock::starts(Instant(1_000_000));
        let before = clock.now().0;
        let windows = super::windows(&stretches, clock, at(50));
        let waited = clock.now().0 - before;
        let [chance, up, ..] = windows[..] else {
            panic!("{windows:?}")
        };
        assert_eq!((chance.start, chance.bytes_per_second), (Instant(0), None));
        let lies = |instant: Instant, from: u64| (from..=from + waited).contains(&instant.0);
        assert!(
            lies(chance.end, before + 50_000) && lies(up.end, before + 150_000),
            "{windows:?}"
        );
        assert_eq!(up.bytes_per_second, Some(1000.0));

        let pass = |begins_ms, ends_ms, rate| Pass {
            begins_ms,
            ends_ms,
            bytes_per_second: Some(rate),
        };
        let told = as_told(&[pass(0, 5_000, 7.0), pass(9_000, u64::MAX, f64::NAN)], at(1000));
        let expected = |start, end, rate| Stretch { start, end, rate };
        assert_eq!(
            told,
            [
                expected(at(1000), at(1005), Some(7.0)),
                expected(at(1009), Time::MAX, None)
            ]
        );
    }

    #[test]
    fn no_more_passes_are_read_than_count() {
        let pass = Pass {
            begins_ms: 1,
            ends_ms: 2,
            bytes_per_second: None,
        };
        let described = |count| Answer::Described {
            samples: 1,
            label_entropy: None,
            charge: None,
            link: None,
            passes: vec![pass; count],
            adapter_rank: None,
            most_epsilon: None,
        };
        let read = |bytes: &[u8]| read::<Answer>("answer", bytes);
        assert!(read(&write(&described(MOST)).unwrap()).is_ok());
        let error = read(&write(&described(MOST + 1)).unwrap()).unwrap_err();
        assert!(error.message.contains("at most 1000"), "{error}");
    }
}
