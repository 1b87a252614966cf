//! One decision of a policy that routes: an instance that is asked once.

use super::convert;
use super::sandbox::{Allowance, Instance, Sandbox};
use crate::capability::bindings::route::RoutePre;
use karman_sched::call::{Order, Taker};
use karman_sched::plugin::Failure;
use karman_types::Limits;

/// The most bytes that are copied out of it: places, and words.
const MOST_COPIED: usize = 256 << 10;

/// In which order it has the providers of a task asked.
pub(super) fn order(
    pre: &RoutePre<Sandbox>,
    (limits, fuel): (&Limits, u64),
    task: &str,
    takers: &[Taker],
) -> Result<Order, Failure> {
    let allowance = Allowance {
        limits,
        fuel,
        copied: MOST_COPIED,
    };
    let mut instance = Instance::start(pre.engine(), &allowance, |store| pre.instantiate(store))?;
    let providers: Vec<_> = takers.iter().map(convert::provider).collect();
    instance
        .call(|route, store| route.karman_policy_router().call_route(store, task, &providers))
        .map(convert::order)
}
