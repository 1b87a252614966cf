use crate::{Contact, ContactPlan, Time};
use karman_types::NodeId;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// Data that want to go from one node to another.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bundle {
    /// The node where it is.
    pub source: NodeId,
    /// The node where it shall be.
    pub destination: NodeId,
    /// Its size on the wire, headers included; an empty one counts as one byte.
    pub bytes: u64,
    /// When it can leave.
    pub sent: Time,
    /// The last instant at which it may arrive.
    pub expires: Time,
    /// Whether it may go in fragments over several contacts with the same neighbour (RFC 9171, section 5.8), instead
    /// of within one. The next node waits for all of them. Headers of the fragments are not counted.
    pub split: bool,
}

/// What is sent in one contact.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Hop {
    /// The contact.
    pub contact: Contact,
    /// How much of the bundle: all of it, unless it is split.
    pub bytes: u64,
    /// When its first bit leaves.
    pub departure: Time,
    /// When its last bit has arrived.
    pub arrival: Time,
}

/// A way over time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Route {
    /// What is sent, in the order of the way; none if the bundle is where it shall be. The fragments of a split
    /// bundle are several hops between the same two nodes.
    pub hops: Vec<Hop>,
    /// When all of it is there.
    pub arrival: Time,
}

/// Why there is no route.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NoRoute {
    /// It is too late already.
    #[error("the bundle expires at {expires}, before it can leave at {sent}: give it a longer life")]
    Expired {
        /// When it can leave.
        sent: Time,
        /// When it expires.
        expires: Time,
    },
    /// The contacts do not lead there in time.
    #[error(
        "no contacts take {bytes} bytes from {source_node} to {destination} by {expires} ({reached} other nodes can be \
         reached): extend the plan or its life, or make it smaller{}", if *split { "" } else { " or let it be split" }
    )]
    Unreachable {
        /// Where it is.
        source_node: NodeId,
        /// Where it shall be.
        destination: NodeId,
        /// Its size.
        bytes: u64,
        /// When it expires.
        expires: Time,
        /// Whether it may be split.
        split: bool,
        /// How many nodes it could be brought to.
        reached: usize,
    },
}

/// The route on which a bundle arrives first.
///
/// It is the search of contact graph routing (CCSDS 734.3-B-1, "schedule-aware bundle routing"): labels of earliest
/// arrival, set in the order of time, over nodes that store what they hold for as long as needed. A contact is used
/// from its start, or from when the bundle is there; the last bit leaves before its end and arrives one delay later.
/// Waiting never hurts, so one label for each node is enough. What other bundles take of a contact is not known here.
///
/// Equal plans and bundles give equal routes. Each contact is looked at once, or some fifty times for a bundle that
/// may be split.
///
/// # Errors
/// [`NoRoute`] says which way it fails.
pub fn earliest_arrival(plan: &ContactPlan, bundle: &Bundle) -> Result<Route, NoRoute> {
    let &Bundle {
        destination,
        sent,
        expires,
        ..
    } = bundle;
    if sent > expires {
        return Err(NoRoute::Expired { sent, expires });
    }
    let mut search = Search::new(plan, bundle, &[]);
    match search.arrival(destination) {
        Some(arrival) => Ok(Route {
            hops: search.hops(destination),
            arrival,
        }),
        None => Err(search.none(destination, expires)),
    }
}

/// The search for the nodes that a bundle can come to from its source, in the order of time. It goes on to whichever destination it is
/// asked about, so that bundles which differ in nothing else share it.
pub(crate) struct Search<'a> {
    plan: &'a ContactPlan,
    bundle: Bundle,
    /// Nodes that do not take it from its source.
    refused_by: &'a [NodeId],
    /// For each node that was reached, when, and from which one.
    labels: BTreeMap<NodeId, (Time, NodeId)>,
    queue: BinaryHeap<Reverse<(Time, NodeId)>>,
}

impl<'a> Search<'a> {
    /// One that has not begun. The destination of the bundle counts for nothing.
    pub(crate) fn new(plan: &'a ContactPlan, bundle: &Bundle, refused_by: &'a [NodeId]) -> Self {
        let &Bundle { source, sent, .. } = bundle;
        Self {
            plan,
            bundle: *bundle,
            refused_by,
            labels: BTreeMap::from([(source, (sent, source))]),
            queue: BinaryHeap::from([Reverse((sent, source))]),
        }
    }

    /// When the bundle is first at this node, if it comes there before it expires.
    pub(crate) fn arrival(&mut self, destination: NodeId) -> Option<Time> {
        loop {
            let next = self.queue.peek().map(|Reverse((ready, _))| *ready);
            // What comes later improves no label.
            if let Some((arrival, _)) = self.labels.get(&destination)
                && next.is_none_or(|next| *arrival <= next)
            {
                return Some(*arrival);
            }
            let Reverse((ready, node)) = self.queue.pop()?;
            if self.labels.get(&node).is_none_or(|label| label.0 >= ready) {
                self.go_on(node, ready);
            }
        }
    }

    fn go_on(&mut self, node: NodeId, ready: Time) {
        for pair in self.plan.contacts_from(node).chunk_by(|a, b| a.to == b.to) {
            let to = pair[0].to;
            if node == self.bundle.source && self.refused_by.contains(&to) {
                continue;
            }
            let Some(arrival) = crossing(pair, &self.bundle, ready) else {
                continue;
            };
            if self.labels.get(&to).is_none_or(|label| arrival < label.0) {
                self.labels.insert(to, (arrival, node));
                self.queue.push(Reverse((arrival, to)));
            }
        }
    }

    /// The contact in which the bundle leaves for a node that was reached.
    pub(crate) fn first_contact(&self, destination: NodeId) -> Option<Contact> {
        let mut to = destination;
        while let Some((_, from)) = self.labels.get(&to)
            && *from != self.bundle.source
        {
            to = *from;
        }
        Some(self.leg(to).first()?.contact)
    }

    /// Why a bundle that expires then, and not after the one of this search, is not there: the search has looked for it.
    pub(crate) fn none(&self, destination: NodeId, expires: Time) -> NoRoute {
        let in_time = self.labels.values().filter(|(arrival, _)| *arrival <= expires);
        NoRoute::Unreachable {
            source_node: self.bundle.source,
            destination,
            bytes: self.bundle.bytes,
            expires,
            split: self.bundle.split,
            // The source is no other node.
            reached: in_time.count() - 1,
        }
    }

    /// Goes back along the labels from the destination, and says what is sent on the way.
    fn hops(&self, destination: NodeId) -> Vec<Hop> {
        let mut hops = Vec::new();
        let mut to = destination;
        while to != self.bundle.source {
            hops.extend(self.leg(to).into_iter().rev());
            to = self.labels[&to].1;
        }
        hops.reverse();
        hops
    }

    /// What is sent to a node that was reached, from the one before it.
    fn leg(&self, to: NodeId) -> Vec<Hop> {
        let (arrival, from) = self.labels[&to];
        let (ready, _) = self.labels[&from];
        let pair = self.plan.contacts_between(from, to);
        if self.bundle.split {
            return fragments(pair, &self.bundle, ready, arrival);
        }
        let mut whole = pair
            .iter()
            .filter_map(|contact| whole(contact, &self.bundle, ready));
        whole.find(|hop| hop.arrival == arrival).into_iter().collect()
    }
}

/// When a bundle that is ready at one end of these contacts of one pair is first at the other.
fn crossing(pair: &[Contact], bundle: &Bundle, ready: Time) -> Option<Time> {
    let arrival = if bundle.split {
        first_by(pair, bundle, ready)?
    } else {
        let whole = pair.iter().filter_map(|contact| whole(contact, bundle, ready));
        whole.map(|hop| hop.arrival).min()?
    };
    (arrival <= bundle.expires).then_some(arrival)
}

/// The bundle as a whole in this contact, if it fits.
fn whole(contact: &Contact, bundle: &Bundle, ready: Time) -> Option<Hop> {
    let bytes = bundle.bytes.max(1);
    let departure = contact.start.max(ready);
    let sending = contact.rate.time_for(bytes);
    (sending <= contact.end.since(departure)).then(|| Hop {
        contact: *contact,
        bytes,
        departure,
        arrival: departure + sending + contact.delay,
    })
}

/// The first instant by which all fragments can have arrived. Later instants never let fewer bytes arrive, so it is
/// found by halving, however the delays of the contacts differ.
fn first_by(pair: &[Contact], bundle: &Bundle, ready: Time) -> Option<Time> {
    let enough = |by: Time| {
        let sum = pair
            .iter()
            .map(|contact| u128::from(bytes_by(contact, ready, by)))
            .sum::<u128>();
        sum >= u128::from(bundle.bytes.max(1))
    };
    let (mut early, mut late) = (ready.unix_micros(), bundle.expires.unix_micros());
    if !enough(bundle.expires) {
        return None;
    }
    while early < late {
        let middle = early.midpoint(late);
        if enough(Time::from_unix_micros(middle)) {
            late = middle;
        } else {
            early = middle + 1;
        }
    }
    Some(Time::from_unix_micros(late))
}

/// How many bytes can have arrived over a contact by an instant.
fn bytes_by(contact: &Contact, ready: Time, by: Time) -> u64 {
    let last = contact.end.min(by - contact.delay);
    contact.rate.bytes_in(last.since(contact.start.max(ready)))
}

/// What goes over each contact so that all has arrived by an instant that [`first_by`] found.
fn fragments(pair: &[Contact], bundle: &Bundle, ready: Time, by: Time) -> Vec<Hop> {
    let mut left = bundle.bytes.max(1);
    let mut hops = Vec::new();
    for contact in pair {
        if left == 0 {
            break;
        }
        let bytes = bytes_by(contact, ready, by).min(left);
        if bytes > 0 {
            let departure = contact.start.max(ready);
            hops.push(Hop {
                contact: *contact,
                bytes,
                departure,
                arrival: departure + contact.rate.time_for(bytes) + contact.delay,
            });
            left -= bytes;
        }
    }
    hops
}
