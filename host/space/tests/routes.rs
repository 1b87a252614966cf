//! Routes over small random plans: what always holds, and that no way is better.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_space::{Bundle, Contact, ContactPlan, Hop, NoRoute, Rate, Route, Time, earliest_arrival};
use karman_types::NodeId;
use proptest::prelude::*;
use std::time::Duration;

const NODES: u8 = 4;
const EXPIRES: i64 = 120;

fn node(n: u8) -> NodeId {
    NodeId::of_key(&[n])
}

fn time(micros: i64) -> Time {
    Time::from_unix_micros(1_800_000_000_000_000 + micros)
}

/// Everything is in microseconds, and in whole bytes a microsecond, so that a search can try each.
fn contact(from: u8, to: u8, window: (i64, i64), bytes_per_micro: u64, delay: u64) -> Contact {
    Contact {
        from: node(from),
        to: node(to),
        start: time(window.0),
        end: time(window.1),
        rate: Rate(8_000_000 * bytes_per_micro),
        delay: Duration::from_micros(delay),
    }
}

fn bundle(bytes: u64, sent: i64, split: bool) -> Bundle {
    Bundle {
        source: node(0),
        destination: node(NODES - 1),
        bytes,
        sent: time(sent),
        expires: time(EXPIRES),
        split,
    }
}

/// Ten to twenty-four contacts; those of a pair follow each other, after gaps. Two thirds of the plans have a route,
/// and a quarter of those have several hops.
fn contacts() -> impl Strategy<Value = Vec<Contact>> {
    let one = (0..NODES, 1..NODES, 0i64..10, 1i64..12, 1u64..4, 0u64..16);
    proptest::collection::vec(one, 10..25).prop_map(|list| {
        let mut clock = [[0; NODES as usize]; NODES as usize];
        let mut contacts = Vec::new();
        for (from, to, gap, length, rate, delay) in list {
            let to = (from + to) % NODES;
            let clock = &mut clock[usize::from(from)][usize::from(to)];
            let start = *clock + gap;
            *clock = start + length;
            contacts.push(contact(from, to, (start, *clock), rate, delay));
        }
        contacts
    })
}

/// Tries every contact at every microsecond, on every way that comes to no node twice; a bundle that may be split
/// goes on at every microsecond at which enough slots of one microsecond have been received.
fn brute_force(
    contacts: &[Contact],
    bundle: &Bundle,
    node: NodeId,
    ready: Time,
    been: &[NodeId],
) -> Option<Time> {
    if node == bundle.destination {
        return (ready <= bundle.expires).then_some(ready);
    }
    let micro = Duration::from_micros(1);
    let slots = |from: Time, to: Time| (from.unix_micros()..to.unix_micros()).map(Time::from_unix_micros);
    let been = [been, &[node]].concat();
    let mut best = None;
    let mut go_on = |to: NodeId, arrival: Time| {
        let there = brute_force(contacts, bundle, to, arrival, &been);
        best = best.into_iter().chain(there).min();
    };
    let per_slot = |c: &Contact| c.rate.0 / 8_000_000;
    for to in (0..NODES).map(self::node).filter(|to| !been.contains(to)) {
        let pair = contacts.iter().filter(|c| (c.from, c.to) == (node, to));
        if bundle.split {
            for by in slots(ready, bundle.expires + micro) {
                let arrived: u64 = pair
                    .clone()
                    .map(|c| {
                        let in_time =
                            slots(c.start, c.end).filter(|&s| s >= ready && s + micro + c.delay <= by);
                        in_time.count() as u64 * per_slot(c)
                    })
                    .sum();
                if arrived >= bundle.bytes {
                    go_on(to, by);
                    break;
                }
            }
        } else {
            for c in pair {
                let sending = Duration::from_micros(bundle.bytes.div_ceil(per_slot(c)));
                for departure in slots(c.start, c.end).filter(|&s| s >= ready && s + sending <= c.end) {
                    go_on(to, departure + sending + c.delay);
                }
            }
        }
    }
    best
}

/// Each hop keeps to its contact and leaves when all of the bundle is there.
fn check(bundle: &Bundle, route: &Route) -> Result<(), TestCaseError> {
    let (mut at, mut ready) = (bundle.source, bundle.sent);
    for pair in route.hops.chunk_by(|a, b| a.contact.to == b.contact.to) {
        for Hop {
            contact,
            bytes,
            departure,
            arrival,
        } in pair
        {
            prop_assert_eq!(contact.from, at);
            prop_assert!(*departure >= ready && *departure >= contact.start);
            prop_assert!(*departure + contact.rate.time_for(*bytes) <= contact.end);
            prop_assert_eq!(
                *arrival,
                *departure + contact.rate.time_for(*bytes) + contact.delay
            );
        }
        prop_assert!(bundle.split || pair.len() == 1);
        prop_assert_eq!(pair.iter().map(|hop| hop.bytes).sum::<u64>(), bundle.bytes);
        at = pair[0].contact.to;
        ready = pair.iter().map(|hop| hop.arrival).max().unwrap();
    }
    prop_assert_eq!((at, ready), (bundle.destination, route.arrival));
    prop_assert!(bundle.sent <= ready && ready <= bundle.expires);
    Ok(())
}

fn arrival(contacts: &[Contact], bundle: &Bundle) -> Option<Time> {
    let plan = ContactPlan::new(contacts.to_vec()).unwrap();
    earliest_arrival(&plan, bundle).ok().map(|route| route.arrival)
}

/// No route is later than any.
fn or_never(arrival: Option<Time>) -> Time {
    arrival.unwrap_or(Time::MAX)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_route_can_be_travelled_and_none_is_faster(
        contacts in contacts(), bytes in 1u64..12, sent in 0i64..15, split: bool,
    ) {
        let bundle = bundle(bytes, sent, split);
        let route = earliest_arrival(&ContactPlan::new(contacts.clone()).unwrap(), &bundle).ok();
        if let Some(route) = &route {
            check(&bundle, route)?;
        }
        let best = brute_force(&contacts, &bundle, bundle.source, bundle.sent, &[]);
        prop_assert_eq!(route.map(|route| route.arrival), best);
    }

    #[test]
    fn what_leaves_later_does_not_arrive_earlier(
        contacts in contacts(), bytes in 1u64..12, sent in 0i64..15, wait in 0i64..15, split: bool,
    ) {
        let early = arrival(&contacts, &bundle(bytes, sent, split));
        let late = arrival(&contacts, &bundle(bytes, sent + wait, split));
        prop_assert!(or_never(early) <= or_never(late));
    }

    #[test]
    fn one_more_contact_never_delays(
        contacts in contacts(), index: prop::sample::Index, bytes in 1u64..12, sent in 0i64..15, split: bool,
    ) {
        let mut fewer = contacts.clone();
        if !fewer.is_empty() {
            fewer.remove(index.index(contacts.len()));
        }
        let bundle = bundle(bytes, sent, split);
        prop_assert!(or_never(arrival(&contacts, &bundle)) <= or_never(arrival(&fewer, &bundle)));
    }

    #[test]
    fn leave_to_split_and_fewer_bytes_never_delay(contacts in contacts(), bytes in 2u64..12, sent in 0i64..15) {
        let whole = or_never(arrival(&contacts, &bundle(bytes, sent, false)));
        prop_assert!(or_never(arrival(&contacts, &bundle(bytes, sent, true))) <= whole);
        prop_assert!(or_never(arrival(&contacts, &bundle(bytes - 1, sent, false))) <= whole);
    }
}

#[test]
fn a_slow_contact_is_left_out_if_a_later_one_arrives_first() {
    // Through a relay in high orbit, and a little later in sight.
    let contacts = [contact(0, 3, (0, 10), 1, 100), contact(0, 3, (10, 20), 1, 1)];
    assert_eq!(arrival(&contacts, &bundle(5, 0, false)), Some(time(16)));
    assert_eq!(arrival(&contacts, &bundle(5, 0, true)), Some(time(16)));
    assert_eq!(arrival(&contacts[..1], &bundle(5, 0, false)), Some(time(105)));
}

#[test]
fn what_fits_no_contact_goes_in_fragments() {
    let contacts = vec![contact(0, 3, (0, 10), 1, 2), contact(0, 3, (50, 60), 1, 2)];
    let plan = ContactPlan::new(contacts.clone()).unwrap();
    let route = earliest_arrival(&plan, &bundle(15, 3, true)).unwrap();
    let sent: Vec<_> = route
        .hops
        .iter()
        .map(|hop| (hop.bytes, hop.departure, hop.arrival))
        .collect();
    assert_eq!(sent, [(7, time(3), time(12)), (8, time(50), time(60))]);
    assert_eq!(arrival(&contacts, &bundle(15, 3, false)), None);
}

#[test]
fn why_there_is_no_route_is_said() {
    let plan = ContactPlan::new(vec![contact(0, 1, (0, 10), 1, 0)]).unwrap();
    let error = earliest_arrival(&plan, &bundle(1, EXPIRES + 1, false)).unwrap_err();
    assert!(matches!(error, NoRoute::Expired { .. }), "{error}");
    let error = earliest_arrival(&plan, &bundle(1, 0, false)).unwrap_err();
    assert!(
        matches!(error, NoRoute::Unreachable { reached: 1, .. }),
        "{error}"
    );
    assert!(
        error.to_string().ends_with("make it smaller or let it be split"),
        "{error}"
    );
}

#[test]
fn what_is_there_needs_no_hop() {
    let at_home = Bundle {
        destination: node(0),
        ..bundle(1, 7, false)
    };
    let route = earliest_arrival(&ContactPlan::default(), &at_home).unwrap();
    assert_eq!(
        route,
        Route {
            hops: Vec::new(),
            arrival: time(7)
        }
    );
}
