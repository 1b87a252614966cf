use super::participants::{Participants, Rate};
use super::renyi;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Adds up what the rounds of a run give away, as Rényi divergences, and turns the sum into (ε, δ).
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Accountant {
    adjacency: Adjacency,
    rounds: Vec<Rounds>,
}

/// Equal rounds.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Rounds {
    noise_multiplier: f64,
    /// The chance to be drawn, where that counts.
    rate: Option<Rate>,
    count: u64,
}

/// Which two runs must look alike.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Adjacency {
    /// With a client and without it.
    AddOrRemoveClient,
    /// With any two updates of one client.
    AnyTwoUpdates,
}

/// What was given away up to now: with a chance of at least 1 - δ, whatever is seen is at most e^ε times more likely in one of two
/// adjacent runs than in the other.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Spent {
    /// ε.
    pub epsilon: f64,
    /// δ.
    pub delta: f64,
    /// Of which runs.
    pub adjacency: Adjacency,
    /// The Rényi order that gave it.
    pub order: f64,
    /// After how many rounds.
    pub rounds: u64,
    /// In how many of them the participants were drawn, which counts in their favour.
    pub drawn: u64,
}

/// What cannot be accounted for.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum AccountantError {
    /// No noise, no privacy.
    #[error("the noise multiplier is a positive finite number, not {0}")]
    NoiseMultiplier(f64),
    /// A chance that is none.
    #[error("δ is above 0 and below 1, not {0}")]
    Delta(f64),
    /// Nothing can be given away that is less than nothing.
    #[error("ε is a positive finite number, not {0}")]
    Epsilon(f64),
    /// Not with any noise up to the largest.
    #[error("no noise multiplier up to {largest} keeps {rounds} rounds within ε = {epsilon}")]
    Unreachable {
        /// What was asked for.
        epsilon: f64,
        /// In how many rounds.
        rounds: u64,
        /// The largest that was tried.
        largest: f64,
    },
}

impl Accountant {
    /// Before the first round.
    pub const fn new(adjacency: Adjacency) -> Self {
        Self {
            adjacency,
            rounds: Vec::new(),
        }
    }

    /// A round with these participants. The noise's standard deviation is `noise_multiplier` times the norm of an update, or, where adjacency
    /// is of any two updates, times the distance of two.
    ///
    /// Only participants that were drawn count as hidden, and only where adjacency is of clients that are there or not. There a client
    /// that is chosen displaces another, so that it moves the sum by two norms: such a round counts as one with half of the noise.
    ///
    /// # Errors
    ///
    /// The noise multiplier is not positive and finite.
    pub fn add(&mut self, noise_multiplier: f64, participants: &Participants) -> Result<(), AccountantError> {
        self.add_rounds(noise_multiplier, participants.drawn(), 1)
    }

    /// The same for so many rounds, each participant drawn at `rate`, or without drawing.
    pub(super) fn add_rounds(
        &mut self,
        noise_multiplier: f64,
        rate: Option<Rate>,
        count: u64,
    ) -> Result<(), AccountantError> {
        if !(noise_multiplier.is_finite() && noise_multiplier > 0.0) {
            return Err(AccountantError::NoiseMultiplier(noise_multiplier));
        }
        let rate = rate.filter(|_| self.adjacency == Adjacency::AddOrRemoveClient);
        match self.rounds.last_mut() {
            Some(last) if last.noise_multiplier == noise_multiplier && last.rate == rate => {
                last.count += count
            }
            _ => self.rounds.push(Rounds {
                noise_multiplier,
                rate,
                count,
            }),
        }
        Ok(())
    }

    /// What all rounds together give away at this δ.
    ///
    /// The bound is proposition 12 of Canonne, Kamath, Steinke (arXiv 2004.00010), at the best of some 160 orders.
    ///
    /// # Errors
    ///
    /// δ is not above 0 and below 1.
    pub fn spent(&self, delta: f64) -> Result<Spent, AccountantError> {
        if !(delta > 0.0 && delta < 1.0) {
            return Err(AccountantError::Delta(delta));
        }
        let (order, epsilon) = renyi::orders()
            .map(|order| (order, epsilon(order, self.divergence(order), delta)))
            .min_by(|one, other| one.1.total_cmp(&other.1))
            .unwrap_or((f64::NAN, f64::INFINITY));
        let count = |drawn: bool| {
            let counted = self
                .rounds
                .iter()
                .filter(move |rounds| !drawn || rounds.rate.is_some());
            counted.map(|rounds| rounds.count).sum()
        };
        Ok(Spent {
            epsilon,
            delta,
            adjacency: self.adjacency,
            order,
            rounds: count(false),
            drawn: count(true),
        })
    }

    fn divergence(&self, order: f64) -> f64 {
        let of = |rounds: &Rounds| {
            let (distance, rate) = match rounds.rate {
                Some(rate) => (1.0, rate.share()),
                None => (self.adjacency.chosen_distance(), 1.0),
            };
            rounds.count as f64 * renyi::divergence(order, rounds.noise_multiplier / distance, rate)
        };
        self.rounds.iter().map(of).sum()
    }
}

impl Adjacency {
    /// What a client moves the sum by in a round whose participants were chosen, over what the noise is measured by.
    const fn chosen_distance(self) -> f64 {
        match self {
            // Its own update comes, and that of the one that it displaces goes.
            Self::AddOrRemoveClient => 2.0,
            Self::AnyTwoUpdates => 1.0,
        }
    }
}

fn epsilon(order: f64, divergence: f64, delta: f64) -> f64 {
    // The total variation is at most √(1 - e^-D): where that is below δ, ε is 0.
    if delta * delta + (-divergence).exp_m1() > 0.0 {
        return 0.0;
    }
    let epsilon = divergence + (-1.0 / order).ln_1p() - (delta * order).ln() / (order - 1.0);
    epsilon.max(0.0)
}

/// The least noise multiplier, to a thousandth, with which so many rounds stay within (ε, δ), each client drawn at `rate`, or chosen
/// without drawing. For plans: what was given away is what an [`Accountant`] says after the rounds.
///
/// # Errors
///
/// ε or δ is impossible, or no multiplier up to 64 is enough.
pub fn noise_multiplier_for(
    epsilon: f64,
    delta: f64,
    rounds: u64,
    rate: Option<Rate>,
) -> Result<f64, AccountantError> {
    const LARGEST: f64 = 64.0;
    if !(epsilon.is_finite() && epsilon > 0.0) {
        return Err(AccountantError::Epsilon(epsilon));
    }
    let spends = |noise_multiplier: f64| {
        let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
        accountant.add_rounds(noise_multiplier, rate, rounds)?;
        Ok(accountant.spent(delta)?.epsilon)
    };
    let (mut too_little, mut enough) = (0.01, LARGEST);
    if spends(enough)? > epsilon {
        return Err(AccountantError::Unreachable {
            epsilon,
            rounds,
            largest: LARGEST,
        });
    }
    while enough - too_little > 0.001 * enough {
        let middle = f64::midpoint(too_little, enough);
        match spends(middle)? <= epsilon {
            true => enough = middle,
            false => too_little = middle,
        }
    }
    Ok(enough)
}

impl fmt::Display for Adjacency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddOrRemoveClient => "one client there or not",
            Self::AnyTwoUpdates => "any two updates of one client",
        })
    }
}

impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            epsilon,
            delta,
            adjacency,
            rounds,
            drawn,
            ..
        } = self;
        write!(
            f,
            "ε = {epsilon:.3}, δ = {delta:e} ({adjacency}; {rounds} rounds, {drawn} of them drawn)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::NodeId;

    fn drawn(rate: f64) -> Participants {
        Participants::poisson(&[NodeId::of_key(b"one")], Rate::new(rate).unwrap(), &[1; 32], 1)
    }

    fn spend(noise_multiplier: f64, participants: &Participants, adjacency: Adjacency) -> Spent {
        let mut accountant = Accountant::new(adjacency);
        accountant.add(noise_multiplier, participants).unwrap();
        accountant.spent(1e-5).unwrap()
    }

    #[test]
    fn only_those_that_were_drawn_are_hidden() {
        let chosen = Participants::chosen(drawn(0.01).nodes().to_vec());
        let central = Adjacency::AddOrRemoveClient;
        let hidden = spend(1.0, &drawn(0.01), central);
        let seen = spend(1.0, &drawn(1.0), central);
        assert!(hidden.epsilon < seen.epsilon / 2.0, "{hidden} {seen}");
        assert_eq!((hidden.drawn, spend(1.0, &chosen, central).drawn), (1, 0));
        for participants in [drawn(0.01), chosen] {
            let local = spend(1.0, &participants, Adjacency::AnyTwoUpdates);
            assert_eq!((local.epsilon, local.drawn), (seen.epsilon, 0));
        }
        assert_eq!(
            hidden.to_string(),
            format!(
                "ε = {:.3}, δ = 1e-5 (one client there or not; 1 rounds, 1 of them drawn)",
                hidden.epsilon
            )
        );
    }

    /// The sum moves by two norms: twice the noise hides as much of that as once hides of one.
    #[test]
    fn who_is_chosen_displaces_another_and_that_is_accounted_for() {
        let central = Adjacency::AddOrRemoveClient;
        let chosen = Participants::chosen(Vec::new());
        for noise in [0.8, 1.5, 4.0] {
            let twice = spend(2.0 * noise, &chosen, central).epsilon;
            assert_eq!(twice, spend(noise, &drawn(1.0), central).epsilon);
        }
    }

    #[test]
    fn nothing_spent_is_nothing_and_more_rounds_spend_more() {
        let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
        assert_eq!(accountant.spent(1e-5).unwrap().epsilon, 0.0);
        let mut before = 0.0;
        for _ in 0..5 {
            accountant.add(1.1, &drawn(0.2)).unwrap();
            let now = accountant.spent(1e-5).unwrap().epsilon;
            assert!(now > before);
            before = now;
        }
        assert_eq!(accountant.rounds.len(), 1, "equal rounds are one entry");
    }

    #[test]
    fn a_plan_keeps_within_what_was_asked_and_wastes_little() {
        for (epsilon, rounds, rate) in [(1.0, 100, Some(0.1)), (8.0, 1_000, Some(0.01)), (3.0, 10, None)] {
            let rate = rate.map(|rate| Rate::new(rate).unwrap());
            let noise = noise_multiplier_for(epsilon, 1e-5, rounds, rate).unwrap();
            let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
            accountant.add_rounds(noise, rate, rounds).unwrap();
            let spent = accountant.spent(1e-5).unwrap().epsilon;
            assert!(spent <= epsilon && spent > 0.99 * epsilon, "{spent} of {epsilon}");
        }
        let never = noise_multiplier_for(0.001, 1e-9, 1_000_000, None);
        assert!(matches!(never, Err(AccountantError::Unreachable { .. })));
    }

    #[test]
    fn bad_numbers_are_refused() {
        let mut accountant = Accountant::new(Adjacency::AddOrRemoveClient);
        for noise in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(accountant.add(noise, &drawn(0.5)).is_err());
        }
        for delta in [0.0, 1.0, f64::NAN] {
            assert!(accountant.spent(delta).is_err());
        }
        assert!(noise_multiplier_for(0.0, 1e-5, 1, None).is_err());
    }
}
