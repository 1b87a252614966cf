//! The ways of all bundles that wait. Those that differ too little to matter share the search for one.

use super::Waiting;
use crate::route::Search;
use crate::{Bundle, Contact, ContactPlan, NoRoute, Time};
use karman_types::NodeId;
use std::collections::{BTreeMap, HashMap};

/// So many lengths are told apart from one power of two to the next: a bundle is taken to be longer by an eighth at most.
const LENGTHS: u64 = 8;

/// The contact in which each of these bundles leaves, in their order; nothing for one that is where it shall be.
pub(super) fn first_contacts<K>(
    plan: &ContactPlan,
    here: NodeId,
    now: Time,
    waiting: &[&Waiting<K>],
) -> Vec<Result<Option<Contact>, NoRoute>> {
    let mut alike: BTreeMap<Vec<NodeId>, Vec<usize>> = BTreeMap::new();
    for (place, bundle) in waiting.iter().enumerate() {
        let mut refused_by = bundle.refused_by.clone();
        refused_by.sort_unstable();
        refused_by.dedup();
        alike.entry(refused_by).or_default().push(place);
    }
    let last = waiting.iter().map(|bundle| bundle.expires).max();
    let bundle = Bundle {
        source: here,
        destination: here,
        bytes: 1,
        sent: now,
        expires: last.unwrap_or(now),
        split: true,
    };
    let mut found = vec![Ok(None); waiting.len()];
    // One after the other: searches are kept for no more than one of them.
    for (refused_by, places) in &alike {
        let mut ways = Ways {
            plan,
            bundle,
            refused_by,
            searches: HashMap::new(),
        };
        for &place in places {
            found[place] = ways.first_contact(waiting[place]);
        }
    }
    found
}

/// The ways from a node at one instant, for bundles that the same nodes refuse.
struct Ways<'a> {
    plan: &'a ContactPlan,
    /// What they have in common: where they are, and the last instant at which any of them may arrive.
    bundle: Bundle,
    refused_by: &'a [NodeId],
    /// By length.
    searches: HashMap<u64, Search<'a>>,
}

impl Ways<'_> {
    fn first_contact<K>(&mut self, waiting: &Waiting<K>) -> Result<Option<Contact>, NoRoute> {
        let (sent, expires) = (self.bundle.sent, waiting.expires);
        if sent > expires {
            return Err(NoRoute::Expired { sent, expires });
        }
        if waiting.destination == self.bundle.source {
            return Ok(None);
        }
        let (shorter, longer) = near(waiting.bytes);
        if let Some(contact) = self.way(longer, waiting) {
            return Ok(Some(contact));
        }
        // For one that is just short enough there may be a route all the same.
        if self.way(shorter, waiting).is_some() {
            let bytes = waiting.bytes;
            let bundle = Bundle { bytes, ..self.bundle };
            if let Some(contact) = way(&mut Search::new(self.plan, &bundle, self.refused_by), waiting) {
                return Ok(Some(contact));
            }
        }
        match self.way(1, waiting) {
            Some(contact) => Ok(Some(contact)),
            None => Err(self.searches[&1].none(waiting.destination, expires)),
        }
    }

    /// The contact in which this bundle would leave if it were so long.
    fn way<K>(&mut self, bytes: u64, waiting: &Waiting<K>) -> Option<Contact> {
        let search = self.searches.entry(bytes).or_insert_with(|| {
            let bundle = Bundle { bytes, ..self.bundle };
            Search::new(self.plan, &bundle, self.refused_by)
        });
        way(search, waiting)
    }
}

fn way<K>(search: &mut Search<'_>, waiting: &Waiting<K>) -> Option<Contact> {
    let arrival = search.arrival(waiting.destination)?;
    match arrival <= waiting.expires {
        true => search.first_contact(waiting.destination),
        false => None,
    }
}

/// The nearest lengths that are told apart: of those that are no longer, and of those that are no shorter.
fn near(bytes: u64) -> (u64, u64) {
    let bytes = bytes.max(1);
    let step = (1 << bytes.ilog2()) / LENGTHS;
    match step {
        0 => (bytes, bytes),
        step => (
            bytes - bytes % step,
            bytes.checked_next_multiple_of(step).unwrap_or(bytes),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Priority, Rate, Route, earliest_arrival};
    use proptest::prelude::*;
    use std::time::Duration;

    const HERE: u8 = 0;

    fn node(n: u8) -> NodeId {
        NodeId::of_key(&[n])
    }

    fn at(seconds: i64) -> Time {
        Time::from_unix_ms(seconds * 1000)
    }

    /// At this many bytes each second.
    fn contact(from: u8, to: u8, start: i64, end: i64, rate: u64) -> Contact {
        Contact {
            from: node(from),
            to: node(to),
            start: at(start),
            end: at(end),
            rate: Rate(8 * rate),
            delay: Duration::ZERO,
        }
    }

    fn waiting(to: u8, bytes: u64, expires: i64, refused_by: &[u8]) -> Waiting<()> {
        Waiting {
            key: (),
            destination: node(to),
            bytes,
            priority: Priority::Normal,
            expires: at(expires),
            refused_by: refused_by.iter().map(|n| node(*n)).collect(),
        }
    }

    /// What is found for one bundle by itself.
    fn alone(plan: &ContactPlan, now: Time, waiting: &Waiting<()>) -> Result<Option<Contact>, NoRoute> {
        let taken =
            |contact: &&Contact| contact.from != node(HERE) || !waiting.refused_by.contains(&contact.to);
        let plan = ContactPlan::new(plan.contacts().iter().filter(taken).copied().collect()).unwrap();
        let route = |bytes| -> Result<Route, NoRoute> {
            let bundle = Bundle {
                source: node(HERE),
                destination: waiting.destination,
                bytes,
                sent: now,
                expires: waiting.expires,
                split: true,
            };
            earliest_arrival(&plan, &bundle)
        };
        let (_, longer) = near(waiting.bytes);
        let found = route(longer)
            .or_else(|_| route(waiting.bytes))
            .or_else(|_| route(1))?;
        Ok(found.hops.first().map(|hop| hop.contact))
    }

    #[test]
    fn lengths_differ_by_an_eighth_at_most() {
        for (bytes, expected) in [
            (0, (1, 1)),
            (1, (1, 1)),
            (15, (15, 15)),
            (16, (16, 16)),
            (17, (16, 18)),
            (31, (30, 32)),
            (1_000_000, (983_040, 1_048_576)),
            (u64::MAX, (u64::MAX - u64::MAX % (1 << 60), u64::MAX)),
        ] {
            assert_eq!(near(bytes), expected, "{bytes}");
        }
    }

    #[test]
    fn many_bundles_share_few_searches() {
        let plan = ContactPlan::new(vec![contact(0, 1, 0, 1_000_000, 1_000_000)]).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        let mut ways = Ways {
            plan: &plan,
            bundle: Bundle {
                source: node(HERE),
                destination: node(HERE),
                bytes: 1,
                sent: at(0),
                expires: at(1_000_000),
                split: true,
            },
            refused_by: &[],
            searches: HashMap::new(),
        };
        for _ in 0..10_000 {
            let (to, bytes) = (random.u8(1..4), random.u64(1..64 << 20));
            let found = ways.first_contact(&waiting(to, bytes, random.i64(1_000..1_000_000), &[]));
            assert_eq!(found.is_ok(), to == 1);
        }
        assert!(ways.searches.len() <= 8 * 27, "{}", ways.searches.len());
    }

    #[test]
    fn one_that_is_just_short_enough_goes_the_way_that_brings_it_there() {
        let (direct, around) = (contact(0, 1, 10, 100, 1), contact(0, 2, 0, 100, 1));
        let plan = ContactPlan::new(vec![direct, around, contact(2, 1, 0, 100, 1)]).unwrap();
        let leaves = |bytes| {
            let bundle = waiting(1, bytes, 27, &[]);
            first_contacts(&plan, node(HERE), at(0), &[&bundle])
        };
        assert_eq!(leaves(17), [Ok(Some(direct))]);
        // One more byte would not be there in time; the first one would.
        assert_eq!(leaves(18), [Ok(Some(around))]);
    }

    proptest! {
        /// Whatever shares a search with it.
        #[test]
        fn each_bundle_leaves_as_it_would_alone(
            contacts in proptest::collection::vec((0u8..5, 0u8..5, 0i64..100, 1i64..20, 1u64..4), 0..30),
            bundles in proptest::collection::vec(
                (0u8..5, 0u64..100, 0i64..150, proptest::collection::vec(1u8..5, 0..3)), 0..20,
            ),
            now in 0i64..100,
        ) {
            let mut plan = ContactPlan::default();
            for (from, to, start, length, rate) in contacts {
                let more = [plan.contacts(), &[contact(from, to, start, start + length, rate)]].concat();
                plan = ContactPlan::new(more).unwrap_or(plan);
            }
            let bundles: Vec<Waiting<()>> = bundles
                .iter()
                .map(|(to, bytes, expires, refused_by)| waiting(*to, *bytes, *expires, refused_by))
                .collect();
            let all: Vec<&Waiting<()>> = bundles.iter().collect();
            let found = first_contacts(&plan, node(HERE), at(now), &all);
            for (bundle, found) in bundles.iter().zip(found) {
                prop_assert_eq!(found, alone(&plan, at(now), bundle));
            }
        }
    }
}
