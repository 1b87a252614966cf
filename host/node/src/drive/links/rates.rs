//! How fast the links to other nodes were when they were last measured, for whatever reason: an operator sees it without measuring again.

use karman_types::NodeId;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Instant;

/// Nodes of which it is known.
const MOST: usize = 1024;

/// How fast a link was.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct MeasuredRate {
    /// Megabits (10⁶) per second.
    pub mbit_s: f64,
    /// How long ago that was, in milliseconds.
    pub age_ms: u64,
}

/// The links between this node and another.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::drive) struct Rates {
    /// From it to this one.
    pub(in crate::drive) down: Option<MeasuredRate>,
    /// From this one to it.
    pub(in crate::drive) up: Option<MeasuredRate>,
}

/// Which way something is sent.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Way {
    /// To the other node.
    There,
    /// From it to this one.
    Back,
}

/// What was measured last, by node and way.
#[derive(Default)]
pub(in crate::drive) struct RateTable(Mutex<HashMap<(NodeId, Way), (f64, Instant)>>);

impl RateTable {
    pub(super) fn put(&self, other: NodeId, way: Way, mbit_s: f64) {
        let mut known = self.0.lock();
        if known.len() >= 2 * MOST && !known.contains_key(&(other, way)) {
            let oldest = known.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| *key);
            oldest.map(|key| known.remove(&key));
        }
        known.insert((other, way), (mbit_s, Instant::now()));
    }

    pub(in crate::drive) fn with(&self, other: NodeId) -> Rates {
        let known = self.0.lock();
        let rate = |way| {
            known.get(&(other, way)).map(|(mbit_s, at)| MeasuredRate {
                mbit_s: *mbit_s,
                age_ms: at.elapsed().as_millis() as u64,
            })
        };
        Rates {
            down: rate(Way::Back),
            up: rate(Way::There),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_is_known_as_it_was_last_and_the_oldest_give_way() {
        let table = RateTable::default();
        let node = |number: usize| NodeId::of_key(&number.to_le_bytes());
        let mbit_s = |rate: Option<MeasuredRate>| rate.map(|rate| rate.mbit_s);
        table.put(node(0), Way::There, 1.0);
        table.put(node(0), Way::There, 2.0);
        let known = table.with(node(0));
        assert_eq!((mbit_s(known.up), mbit_s(known.down)), (Some(2.0), None));
        table.put(node(0), Way::Back, 3.0);
        for number in 1..2 * MOST {
            table.put(node(number), Way::Back, 4.0);
        }
        let known = table.with(node(0));
        assert_eq!((mbit_s(known.up), mbit_s(known.down)), (None, Some(3.0)));
        assert_eq!(mbit_s(table.with(node(2 * MOST - 1)).down), Some(4.0));
    }
}
