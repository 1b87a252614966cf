use super::{Candidate, Selection, best, quantile};
use crate::ClientId;
use fastrand::Rng;
use serde::{Deserialize, Serialize};

/// After Oort (Lai et al. 2021): the utility of a client is its samples times its loss, times `(T / t)^penalty` where it takes
/// longer than the preferred time T, plus what grows while it is not chosen. A share of each round explores clients that
/// were never chosen, drawn at random; the share shrinks to a fifth.
///
/// Oort's own statistic is the root of the mean squared loss per sample; here it is the mean loss that clients send. Utilities
/// are cut at their 95th percentile, as there, against outliers.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Oort {
    /// The share of never chosen clients at the start. Default 0.9.
    pub explore: f64,
    /// How much slow clients lose. Default 2.
    pub penalty: f64,
    /// Which share of the clients is fast enough to lose nothing. Default 0.5.
    pub preferred: f64,
}

impl Default for Oort {
    fn default() -> Self {
        Self {
            explore: 0.9,
            penalty: 2.0,
            preferred: 0.5,
        }
    }
}

/// Each round explores this much less than the one before, down to the least.
const EXPLORE_DECAY: f64 = 0.98;
const EXPLORE_LEAST: f64 = 0.2;

impl Oort {
    fn utility(&self, candidate: &Candidate, cut: f64, preferred: f64, round: u64) -> f64 {
        let statistical = statistical(candidate).min(cut);
        let idle = round.saturating_sub(candidate.last_round.unwrap_or(0)).max(1);
        // The confidence term of the paper, on the scale of the utilities.
        let unseen = cut * (0.1 * (round.max(1) as f64).ln() * idle as f64 / round.max(1) as f64).sqrt();
        let seconds = candidate.seconds.unwrap_or(preferred);
        let slow = match seconds > preferred {
            true => (preferred / seconds).powf(self.penalty),
            false => 1.0,
        };
        (statistical + unseen) * slow
    }
}

fn statistical(candidate: &Candidate) -> f64 {
    candidate.samples as f64 * candidate.loss.unwrap_or(0.0).max(0.0)
}

impl Selection for Oort {
    fn name(&self) -> &str {
        "oort"
    }

    fn choose(
        &mut self,
        candidates: &[Candidate],
        count: usize,
        round: u64,
        random: &mut Rng,
    ) -> Vec<ClientId> {
        let (fresh, tried): (Vec<&Candidate>, Vec<&Candidate>) =
            candidates.iter().partition(|candidate| candidate.chosen == 0);
        let decayed = self.explore * EXPLORE_DECAY.powf(round as f64);
        let share = decayed.max(EXPLORE_LEAST.min(self.explore));
        let explore = ((count as f64 * share).round() as usize).max(count.saturating_sub(tried.len()));
        let explored = random.choose_multiple(fresh.iter().map(|it| it.client), explore.min(count));

        let cut = quantile(tried.iter().map(|it| statistical(it)), 0.95).unwrap_or(0.0);
        let seconds = tried.iter().filter_map(|it| it.seconds);
        let preferred = quantile(seconds, self.preferred).unwrap_or(f64::INFINITY);
        let utility = |it: &&Candidate| (self.utility(it, cut, preferred, round), it.client);
        let exploited = best(
            tried.iter().map(utility).collect(),
            count - explored.len(),
            random,
        );
        explored.into_iter().chain(exploited).collect()
    }
}
