use super::{Candidate, Outcome, Selection, best, quantile};
use crate::state::{pack, unpack};
use crate::{ClientId, StateError};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Discounted upper confidence bounds over what clients have been worth (after Liu et al. 2026, in our own form).
///
/// The reward of a round is `reputation · R + data · Q + speed · (1 − L)`, each in 0..1: R a moving mean of how well the client's
/// updates agreed with the aggregate, Q half its sample count up to the 90th percentile and half the entropy of its labels, L the
/// logarithm of its round time between the shortest and the longest: times differ by factors, and one straggler would make all others
/// look alike. The score is the discounted mean reward plus
/// `explore · √(2 ln (discounted total) / (discounted count))`. Who was never tried counts as an average client
/// that was tried once, so that the first rounds do not go to all stragglers, and everybody is chosen at least once in every 5 n / m
/// rounds.
///
/// The sum of the three weights should be 1. Its members are no random sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bandit {
    /// How much of what was learned is kept per round. Default 0.98.
    pub discount: f64,
    /// How much uncertainty counts. Default 0.1; with 0.5 and this discount it would choose nearly at random.
    pub explore: f64,
    /// How fast reputation follows. Default 0.2.
    pub smoothing: f64,
    /// The weight of reputation. Default 0.4.
    pub reputation: f64,
    /// The weight of the data. Default 0.3.
    pub data: f64,
    /// The weight of speed. Default 0.3.
    pub speed: f64,
    #[serde(skip)]
    arms: BTreeMap<ClientId, Arm>,
}

/// What is known of one client.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Arm {
    reputation: f64,
    rewards: f64,
    count: f64,
}

impl Default for Bandit {
    fn default() -> Self {
        Self {
            discount: 0.98,
            explore: 0.1,
            smoothing: 0.2,
            reputation: 0.4,
            data: 0.3,
            speed: 0.3,
            arms: BTreeMap::new(),
        }
    }
}

/// Everybody is chosen once in so many times n / m rounds.
const FAIRNESS: f64 = 5.0;

impl Bandit {
    fn score(&self, arm: &Arm, total: f64) -> f64 {
        // Right after a discount the total may be below one; its logarithm is no bonus then.
        let bonus = (2.0 * total.max(1.0).ln() / arm.count).sqrt();
        arm.rewards / arm.count + self.explore * bonus
    }

    /// What a client is taken for that was never tried.
    fn average(&self) -> Arm {
        let means = self.arms.values().map(|arm| arm.rewards / arm.count);
        Arm {
            reputation: 0.5,
            rewards: means.sum::<f64>() / self.arms.len().max(1) as f64,
            count: 1.0,
        }
    }

    fn quality(candidate: &Candidate, n_90: f64) -> f64 {
        let size = (candidate.samples as f64 / n_90.max(1.0)).min(1.0);
        // Who does not tell his labels is judged by size alone.
        0.5 * size + 0.5 * candidate.label_entropy.unwrap_or(size)
    }
}

impl Selection for Bandit {
    fn name(&self) -> &str {
        "bandit"
    }

    fn choose(
        &mut self,
        candidates: &[Candidate],
        count: usize,
        round: u64,
        random: &mut Rng,
    ) -> Vec<ClientId> {
        let total: f64 = self.arms.values().map(|arm| arm.count).sum();
        let patience = (FAIRNESS * candidates.len() as f64 / count.max(1) as f64).ceil() as u64;
        let average = self.average();
        let score = |candidate: &Candidate| match self.arms.get(&candidate.client) {
            _ if round.saturating_sub(candidate.last_round.unwrap_or(0)) >= patience => f64::INFINITY,
            arm => self.score(arm.unwrap_or(&average), total),
        };
        let scored = candidates
            .iter()
            .map(|candidate| (score(candidate), candidate.client));
        best(scored.collect(), count, random)
    }

    fn learn(&mut self, outcomes: &[Outcome], all: &[Candidate]) {
        let n_90 = quantile(all.iter().map(|it| it.samples as f64), 0.9).unwrap_or(1.0);
        let measured = || all.iter().filter_map(|it| it.seconds);
        let (least, most) = (
            measured().fold(f64::INFINITY, f64::min),
            measured().fold(0.0, f64::max),
        );
        for arm in self.arms.values_mut() {
            arm.rewards *= self.discount;
            arm.count *= self.discount;
        }
        for outcome in outcomes {
            let Ok(place) = all.binary_search_by_key(&outcome.client, |it| it.client) else {
                continue;
            };
            let candidate = &all[place];
            let arm = self.arms.entry(outcome.client).or_insert(Arm {
                reputation: 0.5,
                rewards: 0.0,
                count: 0.0,
            });
            let contribution = outcome.contribution.unwrap_or(0.0).clamp(0.0, 1.0);
            arm.reputation += self.smoothing * (contribution - arm.reputation);
            let reward = match outcome.seconds {
                None => 0.0,
                Some(_) => {
                    let late = match candidate.seconds {
                        Some(seconds) if most > least && least > 0.0 => {
                            ((seconds / least).ln() / (most / least).ln()).clamp(0.0, 1.0)
                        }
                        _ => 0.0,
                    };
                    self.reputation * arm.reputation
                        + self.data * Self::quality(candidate, n_90)
                        + self.speed * (1.0 - late)
                }
            };
            arm.rewards += reward;
            arm.count += 1.0;
        }
    }

    fn wants_contributions(&self) -> bool {
        self.reputation > 0.0
    }

    fn save(&self) -> Vec<u8> {
        pack(&self.arms)
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        self.arms = unpack(self.name(), state)?;
        Ok(())
    }
}
