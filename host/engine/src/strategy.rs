//! Strategies that plugins bring: `karman:federated/aggregator`, run so that the same round comes to the same version.
//!
//! A strategy has the sandbox of [policies](crate::policy): it reaches nothing, a call is held by its fuel and its memory, and numbers are
//! the same on every machine. Each round has an instance of its own, so that nothing is known in one that the round before has not said
//! outright. `karman-fed` decides what a round is, and what happens where a strategy fails.

use crate::plugin::{Export, Plugin};
use crate::policy::{Allowance, Instance};
use karman_sched::plugin::Failure;
use karman_types::TaskError;

pub use crate::capability::bindings::strategy::exports::karman::federated::aggregator::{
    Next, Round, Update,
};
pub use crate::learn::Array;

/// Units of fuel of one call where the manifest does not say: some 5 s of a desktop processor, if all of it is used.
pub const DEFAULT_FUEL: u64 = 10_000_000_000;

/// The most units of fuel of one call: some minutes of a desktop processor. Nothing else ends a call.
pub const MOST_FUEL: u64 = 1_000_000_000_000;

/// Bytes that may be copied out of a strategy besides what `limits.output` is for: the names and shapes of arrays.
const ASIDE: usize = 2 << 20;

impl Plugin {
    /// Whether it is a strategy.
    ///
    /// # Errors
    /// `invalid` when it is something else.
    pub fn check_strategy(&self) -> Result<(), TaskError> {
        match self.export {
            Export::Strategy(_) => Ok(()),
            _ => Err(self.wrong_world("karman:federated/strategy")),
        }
    }

    /// Has a strategy make the next version of a model, of these updates. Blocks for as long as that takes, and as long as another round is
    /// closed by this engine: no two instances have their memory at once.
    ///
    /// # Errors
    /// Why there is no next version. What there is may be no version of this model: that is for the caller to see.
    pub fn aggregate(
        &self,
        round: &Round,
        model: &[Array],
        state: &[u8],
        updates: impl Iterator<Item = Update>,
    ) -> Result<Next, Failure> {
        let Export::Strategy(pre) = &self.export else {
            let why = "it is no strategy".into();
            return Err(Failure::Host { why });
        };
        let _turn = self.engine.aggregating().lock();
        let limits = self.limits();
        let allowance = Allowance {
            limits,
            fuel: limits.fuel.unwrap_or(DEFAULT_FUEL),
            copied: limits.output.as_usize().saturating_add(ASIDE),
        };
        self.stats.instantiated();
        let mut instance = Instance::start(pre.engine(), &allowance, |store| pre.instantiate(store))?;
        instance.call(|strategy, store| {
            strategy
                .karman_federated_aggregator()
                .call_begin(store, round, model, state)
        })?;
        for update in updates {
            instance
                .call(|strategy, store| strategy.karman_federated_aggregator().call_take(store, &update))?;
        }
        let next = instance.call(|strategy, store| strategy.karman_federated_aggregator().call_finish(store));
        next.map_err(|failure| match failure {
            Failure::Unreadable { why } => Failure::Unreadable {
                why: format!("{why} (its `limits.output` is {})", limits.output),
            },
            failure => failure,
        })
    }
}
