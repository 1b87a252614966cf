//! What members have asked of this node by bundle, and what has been done. A bundle's header is anybody's word: who carries one can put
//! the sealed order in it into another, which is no bundle that was here before. The order is the same, and is not done again.

use super::REMEMBERED_MS;
use crate::tables::number;
use crate::{StoreError, StoreLimits};
use karman_types::{Digest, NodeId};
use redb::{ReadableTable, Table};

/// When an order is forgotten, and its digest.
type Place = (u64, &'static str);
type Done<'txn> = Table<'txn, Place, &'static str>;
type Numbers<'txn> = Table<'txn, &'static str, u64>;
/// Before the id of a member: how many of its orders are remembered.
const ORDERS_OF: &str = "orders-of/";

/// An order that a member sealed to this node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BundleOrder {
    /// What it says, and who says it.
    pub digest: Digest,
    /// The member that sealed it.
    pub by: NodeId,
    /// The last instant at which it may be done, in milliseconds since 1970.
    pub good_until_ms: u64,
}

/// Remembers one that is done.
pub(super) fn remember(
    done: &mut Done<'_>,
    numbers: &mut Numbers<'_>,
    order: &BundleOrder,
) -> Result<(), StoreError> {
    let (digest, by) = (order.digest.to_string(), order.by.to_string());
    if done.insert(place(order, &digest), by.as_str())?.is_none() {
        let count = name_of(&by);
        let before = number(numbers, &count)?;
        numbers.insert(count.as_str(), before + 1)?;
    }
    Ok(())
}

/// Forgets those that have been remembered for long enough.
pub(super) fn forget(done: &mut Done<'_>, numbers: &mut Numbers<'_>, now_ms: u64) -> Result<(), StoreError> {
    for row in done.extract_from_if(..(now_ms, ""), |_, _| true)? {
        let count = name_of(row?.1.value());
        match number(numbers, &count)?.saturating_sub(1) {
            0 => _ = numbers.remove(count.as_str())?,
            left => _ = numbers.insert(count.as_str(), left)?,
        }
    }
    Ok(())
}

/// Refuses one that has been done, and one of a member that has given too many to remember one more: to forget one would be to do it again.
pub(super) fn must_be_new(
    order: &BundleOrder,
    done: &impl ReadableTable<Place, &'static str>,
    numbers: &impl ReadableTable<&'static str, u64>,
    limits: &StoreLimits,
) -> Result<(), StoreError> {
    let digest = order.digest.to_string();
    if done.get(place(order, &digest))?.is_some() {
        return Err(StoreError::Done { order: order.digest });
    }
    let value = number(numbers, &name_of(&order.by.to_string()))? + 1;
    let most = u64::from(limits.orders_per_member);
    match value > most {
        true => Err(StoreError::Limit {
            field: "orders-per-member",
            value,
            most,
        }),
        false => Ok(()),
    }
}

/// Whether any has been remembered for long enough.
pub(super) fn any_over(
    done: &impl ReadableTable<Place, &'static str>,
    now_ms: u64,
) -> Result<bool, StoreError> {
    Ok(done.range(..(now_ms, ""))?.next().is_some())
}

/// It is remembered longer than it is good, for a clock that is set back.
fn place<'a>(order: &BundleOrder, digest: &'a str) -> (u64, &'a str) {
    (order.good_until_ms.saturating_add(REMEMBERED_MS), digest)
}

fn name_of(by: &str) -> String {
    format!("{ORDERS_OF}{by}")
}
