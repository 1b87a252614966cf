use chacha20::ChaCha20Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use karman_types::NodeId;
use serde::{Deserialize, Serialize};

/// The chance with which each client is drawn: above 0, at most 1.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Rate(f64);

/// A chance that is none.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("the chance to be drawn is above 0 and at most 1, not {0}")]
pub struct RateError(f64);

impl Rate {
    /// A chance.
    ///
    /// # Errors
    ///
    /// It is not above 0 and at most 1.
    pub fn new(share: f64) -> Result<Self, RateError> {
        match share > 0.0 && share <= 1.0 {
            true => Ok(Self(share)),
            false => Err(RateError(share)),
        }
    }

    /// As a number.
    pub const fn share(self) -> f64 {
        self.0
    }
}

impl TryFrom<f64> for Rate {
    type Error = RateError;

    fn try_from(share: f64) -> Result<Self, RateError> {
        Self::new(share)
    }
}

impl From<Rate> for f64 {
    fn from(rate: Rate) -> Self {
        rate.0
    }
}

/// Who takes part in a round, and how that came about.
///
/// There is no way to write one down as drawn that was not: the fields are private, and it cannot be deserialized. Who was drawn is
/// drawn again from the seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Participants {
    nodes: Vec<NodeId>,
    drawn: Option<Rate>,
}

impl Participants {
    /// Draws each of the population on its own with the same chance (Poisson sampling), by ChaCha20 from the run's secret seed and
    /// the round.
    ///
    /// The population is everybody who may ever take part, not those who happen to be there: one that is drawn and away sends
    /// nothing. The seed has to be secret, and so have the participants, from whoever must not learn more than ε says.
    pub fn poisson(population: &[NodeId], rate: Rate, seed: &[u8; 32], round: u64) -> Self {
        let mut random = ChaCha20Rng::from_seed(*seed);
        random.set_stream(round);
        let mut population = population.to_vec();
        population.sort_unstable();
        population.dedup();
        // Rounded down: nobody is drawn more often than is accounted for.
        let below = (rate.0 * 64_f64.exp2()) as u128;
        population.retain(|_| u128::from(random.next_u64()) < below);
        Self {
            nodes: population,
            drawn: Some(rate),
        }
    }

    /// Participants that came about in any other way. Nothing is hidden by who they are.
    pub const fn chosen(nodes: Vec<NodeId>) -> Self {
        Self { nodes, drawn: None }
    }

    /// Who they are.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The chance they were drawn with; `None` if they were chosen.
    pub const fn drawn(&self) -> Option<Rate> {
        self.drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_drawn_with_the_same_chance_and_the_same_seed_draws_the_same() {
        let population: Vec<_> = (0..200_u8).map(|n| NodeId::of_key(&[n])).collect();
        let rate = Rate::new(0.3).unwrap();
        let mut times = vec![0_u32; population.len()];
        for round in 0..1_000 {
            let drawn = Participants::poisson(&population, rate, &[9; 32], round);
            assert_eq!(drawn, Participants::poisson(&population, rate, &[9; 32], round));
            for (node, times) in population.iter().zip(&mut times) {
                *times += u32::from(drawn.nodes().contains(node));
            }
        }
        // Five standard deviations of a binomial.
        assert!(
            times
                .iter()
                .all(|times| (300.0 - f64::from(*times)).abs() < 5.0 * 14.5),
            "{times:?}"
        );
        let all = Participants::poisson(&population, Rate::new(1.0).unwrap(), &[9; 32], 1);
        assert_eq!(all.nodes().len(), population.len());
    }

    #[test]
    fn order_and_repetition_do_not_matter() {
        let mut population: Vec<_> = (0..20_u8).map(|n| NodeId::of_key(&[n])).collect();
        let rate = Rate::new(0.5).unwrap();
        let one = Participants::poisson(&population, rate, &[1; 32], 1);
        population.reverse();
        population.push(population[3]);
        assert_eq!(one, Participants::poisson(&population, rate, &[1; 32], 1));
    }

    #[test]
    fn chances_are_checked() {
        for share in [0.0, -0.1, 1.1, f64::NAN] {
            assert!(Rate::new(share).is_err(), "{share}");
        }
        assert_eq!(Participants::chosen(Vec::new()).drawn(), None);
    }
}
