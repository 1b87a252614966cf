//! Local differential privacy: noise that a client adds to an update on its own node, before anything of it is encoded, and the account of
//! what it has given away of itself in a run. The driver may be anyone: what it asks for is bounded here.

use super::wire::{Course, Work};
use crate::config::FederatedConfig;
use karman_engine::learn::Array;
use karman_fed::privacy::Local;
use karman_fed::{LocalPrivacy, RunError};
use karman_types::TaskError;

/// The noise that an order asks for, and what the operator of this node lets its client give away.
pub(super) struct Noise {
    asked: LocalPrivacy,
    most_epsilon: Option<f64>,
}

/// Whether the operator of this node lets its client carry this out: where local privacy is required, no update leaves without noise.
///
/// # Errors
/// `denied`, of `federated.require-local-privacy`, where one would.
pub(super) fn check(work: &Work, own: &FederatedConfig) -> Result<(), TaskError> {
    match work {
        Work::Train { .. } | Work::Sum { .. } | Work::Spread { .. } if own.require_local_privacy => Err(
            TaskError::denied("updates leave this node with noise only: the run needs `[local-privacy]`")
                .with_field("federated.require-local-privacy")
                .with_hint("its operator sets it in node.toml"),
        ),
        _ => Ok(()),
    }
}

impl Noise {
    /// As an order asks for it.
    ///
    /// # Errors
    /// `invalid`, of the number that is out of its bounds, or of `course.rows` where more than an update would leave.
    pub(super) fn new(
        asked: LocalPrivacy,
        course: &Course,
        own: &FederatedConfig,
    ) -> Result<Self, TaskError> {
        mechanism(&asked)?;
        if course.rows > 1 {
            let says = format!(
                "an update with noise has 1 row, not {}: each would give something away",
                course.rows
            );
            return Err(TaskError::invalid(says).with_field("course.rows"));
        }
        Ok(Self {
            asked,
            most_epsilon: own.most_epsilon,
        })
    }

    /// The account of a client with these rounds before, which one more update does not overdraw.
    ///
    /// # Errors
    /// `limit` with the bound that it would exceed; `denied` where the noise of this run was another before.
    pub(super) fn account(&self, kept: Option<Local>) -> Result<Local, TaskError> {
        let begun = mechanism(&self.asked)?;
        let account = match kept {
            Some(kept) if kept.anew() != begun => {
                let says = "the noise of this run was another before: it is the same for all updates";
                return Err(TaskError::denied(says).with_field("local-privacy"));
            }
            kept => kept.unwrap_or(begun),
        };
        let of_run = (
            "local-privacy.most-epsilon",
            self.asked.delta,
            self.asked.most_epsilon,
        );
        let of_node = (
            "federated.most-epsilon",
            LocalPrivacy::USUAL_DELTA,
            self.most_epsilon,
        );
        for (field, delta, most) in [of_run, of_node] {
            within(&account, field, delta, most)?;
        }
        Ok(account)
    }
}

fn mechanism(asked: &LocalPrivacy) -> Result<Local, TaskError> {
    asked.mechanism().map_err(|error| {
        let field = match &error {
            RunError::Number { field, .. } => field,
            _ => "local-privacy",
        };
        TaskError::invalid(error.to_string()).with_field(field)
    })
}

fn within(account: &Local, field: &str, delta: f64, most: Option<f64>) -> Result<(), TaskError> {
    let Some(most) = most else { return Ok(()) };
    let after = account.spent_after(1, delta);
    let epsilon = after
        .map_err(|error| TaskError::internal(error.to_string()))?
        .epsilon;
    // A bound that is no number bounds everything.
    match epsilon <= most {
        true => Ok(()),
        false => Err(TaskError::limit(format!(
            "one more update would give away ε = {epsilon:.3} at δ = {delta:e}, and `{field}` is {most}"
        ))
        .with_field(field)),
    }
}

/// Clips an update as a whole, adds noise to all of its arrays, and puts it down in the account.
///
/// # Errors
/// `failed`, in words about what the plugin gave back, where a number of it is none; `internal` where the operating system has no entropy.
pub(super) fn add(account: &mut Local, changes: &mut [Array]) -> Result<(), TaskError> {
    let numbers: Vec<f32> = changes
        .iter()
        .flat_map(|array| array.values.iter().copied())
        .collect();
    let mut entropy = [0; 32];
    getrandom::fill(&mut entropy).map_err(|error| TaskError::internal(error.to_string()))?;
    let released = account.release(&numbers, entropy);
    let (released, _) = released.map_err(|error| TaskError::failed(error.to_string()).with_field("model"))?;
    let mut released = released.into_iter();
    for array in changes {
        let pairs = array.values.iter_mut().zip(released.by_ref());
        pairs.for_each(|(value, noised)| *value = noised);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
