use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A network that is served, with its early exits: what a policy knows of it, all measured.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Described", into = "Described")]
pub struct ServedModel {
    slo: Duration,
    wait: Duration,
    most: usize,
    exits: Vec<Exit>,
    /// Seconds of each exit for batches of 1 to `most`.
    seconds: Vec<Vec<f64>>,
}

/// An exit: how good its answers are and how long they take.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Exit {
    /// Which exit of the network, 1 the shallowest.
    pub depth: u32,
    /// The share of its answers that are right.
    pub accuracy: f64,
    /// How long a batch takes, for some sizes of batches, from small to large: the 95th percentile where that was measured.
    pub times: Vec<(usize, Duration)>,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Nothing to run.
    #[error("the model has no exits: give it at least its last")]
    NoExits,
    /// Nothing could be taken.
    #[error("`most` is {0}, but a batch has from 1 to {max} requests", max = ServedModel::MOST)]
    Most(usize),
    /// Nothing could be on time.
    #[error("`slo` must be longer than 0")]
    Slo,
    /// No share.
    #[error("exit {depth}: `accuracy` is {accuracy}, but must be from 0 to 1")]
    Accuracy {
        /// Of which exit.
        depth: u32,
        /// What was given.
        accuracy: f64,
    },
    /// Times that were not measured, or not in order.
    #[error(
        "exit {depth}: `times` needs sizes of batches from 1 on, growing, each with a time longer than 0"
    )]
    Times {
        /// Of which exit.
        depth: u32,
    },
}

impl ServedModel {
    /// The largest batch there may be.
    pub const MOST: usize = 4096;

    /// A model whose answers are due `slo` after their requests, with its exits from shallow to deep, in batches of at most
    /// `most` requests. The time of a batch whose size was not profiled is that of the next larger one, and of the largest
    /// beyond.
    ///
    /// # Errors
    /// [`ProfileError`] names what does not fit.
    pub fn new(slo: Duration, most: usize, exits: Vec<Exit>) -> Result<Self, ProfileError> {
        if slo.is_zero() {
            return Err(ProfileError::Slo);
        }
        if !(1..=Self::MOST).contains(&most) {
            return Err(ProfileError::Most(most));
        }
        if exits.is_empty() {
            return Err(ProfileError::NoExits);
        }
        let seconds = exits.iter().map(|exit| exit.seconds(most));
        let seconds = seconds.collect::<Result<_, _>>()?;
        Ok(Self {
            slo,
            wait: Duration::ZERO,
            most,
            exits,
            seconds,
        })
    }

    /// The same, whose requests wait so long for others to be run with, where the policy heeds that ([`Gather`](super::Gather)).
    pub fn with_wait(self, wait: Duration) -> Self {
        Self { wait, ..self }
    }

    /// By when an answer is due, after its request.
    pub const fn slo(&self) -> Duration {
        self.slo
    }

    /// For how long at most a request waits for others to be run with. Default 0.
    pub const fn wait(&self) -> Duration {
        self.wait
    }

    /// How many requests a batch may have.
    pub const fn most(&self) -> usize {
        self.most
    }

    /// The exits, from shallow to deep.
    pub fn exits(&self) -> &[Exit] {
        &self.exits
    }

    /// The last exit.
    pub const fn deepest(&self) -> usize {
        self.exits.len() - 1
    }

    /// How long a batch takes, in seconds; one that is too large counts as the largest, an empty one as one request.
    pub fn seconds(&self, exit: usize, batch: usize) -> f64 {
        self.seconds[exit][batch.clamp(1, self.most) - 1]
    }

    /// The same as a length of time.
    pub fn time(&self, exit: usize, batch: usize) -> Duration {
        Duration::from_secs_f64(self.seconds(exit, batch))
    }
}

impl Exit {
    /// Those exits that no other one beats: none takes as long or longer with a batch of one and is no better. From shallow to
    /// deep, with the accuracy growing.
    pub fn pareto(mut exits: Vec<Self>) -> Vec<Self> {
        let time = |exit: &Self| exit.times.first().map(|(_, time)| *time);
        exits.sort_by(|a, b| time(a).cmp(&time(b)).then(b.accuracy.total_cmp(&a.accuracy)));
        let mut best = f64::NEG_INFINITY;
        exits.retain(|exit| {
            let better = exit.accuracy > best;
            best = best.max(exit.accuracy);
            better
        });
        exits
    }

    fn seconds(&self, most: usize) -> Result<Vec<f64>, ProfileError> {
        let depth = self.depth;
        if !(0.0..=1.0).contains(&self.accuracy) {
            let accuracy = self.accuracy;
            return Err(ProfileError::Accuracy { depth, accuracy });
        }
        let grows = self.times.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let counts = |(batch, time): &(usize, Duration)| *batch > 0 && !time.is_zero();
        let Some(&(_, longest)) = self
            .times
            .last()
            .filter(|_| grows && self.times.iter().all(counts))
        else {
            return Err(ProfileError::Times { depth });
        };
        // Rounding up: a batch that takes less than planned breaks no promise.
        let time = |batch| {
            let profiled = self.times.iter().find(|(size, _)| *size >= batch);
            profiled.map_or(longest, |(_, time)| *time).as_secs_f64()
        };
        Ok((1..=most).map(time).collect())
    }
}

/// A model as it is written down.
#[derive(Deserialize, Serialize)]
struct Described {
    slo: Duration,
    #[serde(default, skip_serializing_if = "Duration::is_zero")]
    wait: Duration,
    most: usize,
    exits: Vec<Exit>,
}

impl TryFrom<Described> for ServedModel {
    type Error = ProfileError;

    fn try_from(described: Described) -> Result<Self, ProfileError> {
        let model = Self::new(described.slo, described.most, described.exits)?;
        Ok(model.with_wait(described.wait))
    }
}

impl From<ServedModel> for Described {
    fn from(model: ServedModel) -> Self {
        Self {
            slo: model.slo,
            wait: model.wait,
            most: model.most,
            exits: model.exits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn exit(depth: u32, accuracy: f64, ms: u32) -> Exit {
        Exit {
            depth,
            accuracy,
            times: vec![(1, ms * MS), (4, 2 * ms * MS)],
        }
    }

    #[test]
    fn times_between_are_those_of_the_next_larger_batch() {
        let model = ServedModel::new(50 * MS, 8, vec![exit(1, 0.5, 3)]).unwrap();
        let ms: Vec<u128> = (0..10).map(|batch| model.time(0, batch).as_millis()).collect();
        assert_eq!(ms, [3, 3, 6, 6, 6, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn exits_that_others_beat_are_left_out() {
        let exits = vec![exit(1, 0.6, 1), exit(2, 0.5, 2), exit(3, 0.8, 3), exit(4, 0.8, 4)];
        let kept = Exit::pareto(exits);
        let depths: Vec<u32> = kept.iter().map(|exit| exit.depth).collect();
        assert_eq!(depths, [1, 3]);
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let new = |slo, most, exits| ServedModel::new(slo, most, exits).unwrap_err();
        let good = || vec![exit(1, 0.5, 3)];
        assert_eq!(new(Duration::ZERO, 8, good()), ProfileError::Slo);
        assert_eq!(new(MS, 0, good()), ProfileError::Most(0));
        assert_eq!(new(MS, 5000, good()), ProfileError::Most(5000));
        assert_eq!(new(MS, 8, vec![]), ProfileError::NoExits);
        assert!(matches!(
            new(MS, 8, vec![exit(2, f64::NAN, 3)]),
            ProfileError::Accuracy { depth: 2, .. }
        ));
        assert_eq!(
            new(MS, 8, vec![exit(2, 0.5, 0)]),
            ProfileError::Times { depth: 2 }
        );
        for times in [vec![], vec![(0, MS)], vec![(2, MS), (2, MS)]] {
            let exit = Exit {
                depth: 3,
                accuracy: 0.5,
                times,
            };
            assert_eq!(new(MS, 8, vec![exit]), ProfileError::Times { depth: 3 });
        }
    }
}
