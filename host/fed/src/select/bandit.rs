use super::times::Times;
use super::{Candidate, Outcome, Selection, quantile};
use crate::state::{pack, unpack};
use crate::{ClientId, StateError};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// A bandit that chooses the set of clients from which most is to be learnt per second (after Liu et al. 2026, in our own form).
///
/// A round lasts as long as its slowest client. So speed is not one merit among others: together with one slow client others as slow
/// cost nothing more. Of all sets of m clients the one is chosen whose sum of worths, over the time of its slowest, is the greatest.
///
/// The worth of a client is `loss · (reputation · samples · labels · rounds since it was chosen) ^ returns`. Its reputation is the
/// discounted upper confidence bound of how well its updates agreed with the aggregate,
/// `mean + explore · √(2 ln (discounted total) / (discounted count))`, at most 1, which is also what a client gets that never sent one; times the
/// discounted share of orders of which an update came, as if one had come of two more. Labels is the entropy of its labels. What clients
/// declare is cut at the 90th percentile of all.
///
/// Who was never chosen is expected to take as long as others with so many samples, at the quantile `caution` of what was measured
/// of those. The first round, before anything was, asks those with the fewest samples. Everybody is chosen at least once in every
/// 10 n / m rounds, all that are due together.
///
/// Its members are no random sample.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bandit {
    /// How much of what was learned is kept per round. Default 0.95.
    pub discount: f64,
    /// How much uncertainty counts. Default 0.1.
    pub explore: f64,
    /// To which power all of a client's worth but its loss is raised: the less, the more speed counts beside it. Default 0.6.
    pub returns: f64,
    /// Which share of clients with as many samples takes no longer than is expected of one that was never chosen. Default 0.9.
    pub caution: f64,
    #[serde(skip)]
    arms: BTreeMap<ClientId, Arm>,
}

/// What is known of one client: how well its updates agreed, how many there were, and of how many orders none came, all discounted.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
struct Arm {
    rewards: f64,
    count: f64,
    failed: f64,
}

impl Default for Bandit {
    fn default() -> Self {
        Self {
            discount: 0.95,
            explore: 0.1,
            returns: 0.6,
            caution: 0.9,
            arms: BTreeMap::new(),
        }
    }
}

/// Everybody is chosen once in so many times n / m rounds.
const FAIRNESS: f64 = 10.0;
/// So many orders everybody is believed to have answered before.
const BELIEF: f64 = 2.0;
/// What clients declare counts up to this quantile.
const CUT: f64 = 0.9;
/// What a client counts that has a single label, where one that has all of them equally counts 1 more.
const ONE_LABEL: f64 = 0.05;

/// A client, what a round with it takes, and what it is worth.
#[derive(Clone, Copy, Debug)]
struct Offer {
    client: ClientId,
    seconds: f64,
    worth: f64,
}

/// What the declared quantities of the candidates are cut at.
struct Cuts {
    samples: f64,
    loss: f64,
    /// For those that do not tell their labels.
    label_entropy: f64,
}

impl Cuts {
    fn of(candidates: &[Candidate]) -> Self {
        let all = |of: fn(&Candidate) -> Option<f64>| quantile(candidates.iter().filter_map(of), CUT);
        let labels: Vec<f64> = candidates.iter().filter_map(|it| it.label_entropy).collect();
        Self {
            samples: all(|it| Some(it.samples as f64)).unwrap_or(1.0),
            loss: all(|it| it.loss).unwrap_or(1.0),
            label_entropy: labels.iter().sum::<f64>() / labels.len().max(1) as f64,
        }
    }
}

impl Bandit {
    /// The upper bound of how well an update of this client will agree, 0 to 1, for the share of orders of which one comes.
    fn reputation(&self, client: ClientId, total: f64) -> f64 {
        let Some(arm) = self.arms.get(&client) else {
            return 1.0;
        };
        let comes = (arm.count + BELIEF) / (arm.count + arm.failed + BELIEF);
        if arm.count == 0.0 {
            return comes;
        }
        // Right after a discount the total may be below one; its logarithm is no bonus then.
        let bonus = (2.0 * total.max(1.0).ln() / arm.count).sqrt();
        (arm.rewards / arm.count + self.explore * bonus).min(1.0) * comes
    }

    fn worth(&self, candidate: &Candidate, cuts: &Cuts, total: f64, round: u64) -> f64 {
        let samples = (candidate.samples as f64).clamp(1.0, cuts.samples.max(1.0));
        let labels = ONE_LABEL + candidate.label_entropy.unwrap_or(cuts.label_entropy);
        // Whose loss nobody knows may be among those who have most to learn.
        let loss = candidate
            .loss
            .unwrap_or(cuts.loss)
            .clamp(1e-6, cuts.loss.max(1e-6));
        let away = since(candidate, round).max(1) as f64;
        loss * (self.reputation(candidate.client, total) * samples * labels * away).powf(self.returns)
    }
}

/// Rounds since it was chosen.
fn since(candidate: &Candidate, round: u64) -> u64 {
    round.saturating_sub(candidate.last_round.unwrap_or(0))
}

/// The `count` of these whose worth is the greatest for the time of the slowest of them, which is at least `least` seconds.
fn most_per_second(mut offers: Vec<Offer>, count: usize, least: f64) -> Vec<Offer> {
    offers.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
    // The greatest worths among those that are no slower than this one, smallest first.
    let mut kept: Vec<f64> = Vec::new();
    let (mut sum, mut best) = (0.0, (f64::NEG_INFINITY, offers.len()));
    for (place, offer) in offers.iter().enumerate() {
        kept.insert(kept.partition_point(|worth| *worth < offer.worth), offer.worth);
        sum += offer.worth;
        if kept.len() > count {
            sum -= kept.remove(0);
        }
        let per_second = sum / offer.seconds.max(least);
        if kept.len() == count && per_second > best.0 {
            best = (per_second, place + 1);
        }
    }
    offers.truncate(best.1);
    offers.sort_by(|a, b| b.worth.total_cmp(&a.worth));
    offers.truncate(count);
    offers
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
        let mut all: Vec<&Candidate> = candidates.iter().collect();
        random.shuffle(&mut all);
        let Some(times) = Times::learnt(candidates, self.caution) else {
            all.sort_by_key(|candidate| (candidate.chosen, candidate.samples));
            return all.iter().take(count).map(|candidate| candidate.client).collect();
        };
        let total: f64 = self.arms.values().map(|arm| arm.count).sum();
        let cuts = Cuts::of(candidates);
        let offer = |candidate: &&Candidate| Offer {
            client: candidate.client,
            seconds: times.of(candidate),
            worth: self.worth(candidate, &cuts, total, round),
        };
        let patience = (FAIRNESS * candidates.len() as f64 / count.max(1) as f64).ceil() as u64;
        // Who was away for longest is first.
        all.sort_by_key(|candidate| Reverse(since(candidate, round)));
        let due = all.partition_point(|candidate| since(candidate, round) >= patience);
        let due: Vec<Offer> = all.drain(..due.min(count)).map(|it| offer(&it)).collect();
        let least = due.iter().map(|offer| offer.seconds).fold(0.0, f64::max);
        let others = most_per_second(all.iter().map(offer).collect(), count - due.len(), least);
        due.iter().chain(&others).map(|offer| offer.client).collect()
    }

    fn learn(&mut self, outcomes: &[Outcome], _: &[Candidate]) {
        for arm in self.arms.values_mut() {
            arm.rewards *= self.discount;
            arm.count *= self.discount;
            arm.failed *= self.discount;
        }
        for outcome in outcomes {
            let arm = self.arms.entry(outcome.client).or_default();
            match outcome.contribution {
                Some(contribution) => {
                    arm.rewards += contribution.clamp(0.0, 1.0);
                    arm.count += 1.0;
                }
                None => arm.failed += 1.0,
            }
        }
    }

    fn wants_contributions(&self) -> bool {
        true
    }

    fn save(&self) -> Vec<u8> {
        pack(&self.arms)
    }

    fn load(&mut self, state: &[u8]) -> Result<(), StateError> {
        self.arms = unpack(self.name(), state)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fastrand::Rng;
    use proptest::prelude::*;

    fn per_second(offers: &[Offer], least: f64) -> f64 {
        let slowest = offers.iter().map(|offer| offer.seconds).fold(least, f64::max);
        offers.iter().map(|offer| offer.worth).sum::<f64>() / slowest
    }

    proptest! {
        /// Against all sets that there are.
        #[test]
        fn no_set_is_worth_more_per_second(
            numbers in prop::collection::vec((0.1..10.0f64, 0.1..10.0f64), 1..9), count in 1usize..9, least in 0.0..10.0f64,
        ) {
            let offer = |(client, (seconds, worth)): (usize, &(f64, f64))| Offer {
                client: ClientId(client as u64),
                seconds: *seconds,
                worth: *worth,
            };
            let offers: Vec<Offer> = numbers.iter().enumerate().map(offer).collect();
            let chosen = most_per_second(offers.clone(), count, least);
            let count = count.min(offers.len());
            prop_assert_eq!(chosen.len(), count);
            let sets = (0u32..1 << offers.len()).filter(|set| set.count_ones() as usize == count);
            let greatest = sets.map(|set| {
                let members = offers.iter().enumerate().filter(|(i, _)| set & (1 << i) != 0);
                per_second(&members.map(|(_, offer)| *offer).collect::<Vec<_>>(), least)
            });
            let greatest = greatest.fold(0.0, f64::max);
            prop_assert!(per_second(&chosen, least) >= greatest * (1.0 - 1e-9));
        }
    }

    fn candidate(client: u64, seconds: f64) -> Candidate {
        Candidate {
            client: ClientId(client),
            samples: 10,
            seconds: Some(seconds),
            chosen: 1,
            last_round: Some(1),
            ..Candidate::default()
        }
    }

    #[test]
    fn slow_ones_come_along_with_one_that_is_due() {
        let mut all: Vec<Candidate> = (0..4).map(|client| candidate(client, 1.0)).collect();
        all.extend([candidate(4, 90.0), candidate(5, 100.0)]);
        let choose = |all: &[Candidate]| {
            let mut chosen = Bandit::default().choose(all, 2, 30, &mut Rng::with_seed(1));
            chosen.sort();
            chosen
        };
        for fast in &mut all[..4] {
            fast.last_round = Some(29);
        }
        assert!(
            choose(&all)[1] < ClientId(4),
            "the fast ones are worth more per second"
        );
        all[5].last_round = None;
        assert_eq!(choose(&all), [ClientId(4), ClientId(5)]);
    }

    #[test]
    fn who_fails_once_is_asked_again_before_who_always_fails() {
        let mut bandit = Bandit::default();
        let outcome = |client, contribution| Outcome {
            client: ClientId(client),
            seconds: None,
            contribution,
        };
        for round in 0..10 {
            let unlucky = (round > 0).then_some(0.8);
            bandit.learn(
                &[outcome(0, Some(0.8)), outcome(1, unlucky), outcome(2, None)],
                &[],
            );
        }
        let total = bandit.arms.values().map(|arm| arm.count).sum();
        let [steady, unlucky, failing] = [0, 1, 2].map(|id| bandit.reputation(ClientId(id), total));
        assert!(unlucky > 0.9 * steady, "{unlucky} {steady}");
        assert!(failing < 0.3 * unlucky, "{failing} {unlucky}");
    }

    #[test]
    fn where_nothing_was_measured_little_data_come_first_and_nobody_twice() {
        let fresh = |client, samples| Candidate {
            client: ClientId(client),
            samples,
            ..Candidate::default()
        };
        let mut all = [fresh(0, 30), fresh(1, 10), fresh(2, 20)];
        let choose = |all: &[Candidate]| Bandit::default().choose(all, 1, 1, &mut Rng::with_seed(1));
        assert_eq!(choose(&all), [ClientId(1)]);
        all[1].chosen = 1;
        assert_eq!(choose(&all), [ClientId(2)], "the first one gave no answer");
    }
}
