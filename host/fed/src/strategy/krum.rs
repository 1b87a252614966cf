use super::{Aggregate, Gather, Strategy, StrategyError, descend};
use crate::Arithmetic;
use serde::{Deserialize, Serialize};

/// The updates that lie nearest to their nearest neighbours (Blanchard et al. 2017): Krum takes the best one, Multi-Krum the mean of the
/// `keep` best. Among n updates of which f may lie, the score of each is the sum of its n − f − 2 least squared distances. Needs
/// n ≥ 2f + 3.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Krum {
    /// Liars that it is to stand. Default 1.
    pub liars: usize,
    /// Updates whose mean is taken. Default 1, which is Krum; at most as many as there are honest ones.
    pub keep: usize,
}

impl Default for Krum {
    fn default() -> Self {
        Self { liars: 1, keep: 1 }
    }
}

impl Krum {
    const fn needs(&self) -> usize {
        self.liars.saturating_mul(2).saturating_add(3)
    }
}

/// The updates in the order of their Krum scores among `of`, best first; on a tie the earlier one. `distances` is a square of
/// `count` rows.
pub(super) fn ranked(distances: &[f64], count: usize, of: &[usize], liars: usize) -> Vec<usize> {
    let neighbours = of.len().saturating_sub(liars + 2).max(1);
    let score = |i: usize| {
        let mut row: Vec<f64> = of
            .iter()
            .filter(|j| **j != i)
            .map(|j| distances[i * count + j])
            .collect();
        row.sort_unstable_by(f64::total_cmp);
        row.iter().take(neighbours).sum::<f64>()
    };
    let mut scored: Vec<(f64, usize)> = of.iter().map(|i| (score(*i), *i)).collect();
    scored.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    scored.into_iter().map(|(_, i)| i).collect()
}

impl Strategy for Krum {
    fn name(&self) -> &str {
        "krum"
    }

    fn gather(&self) -> Gather {
        Gather::Together { least: self.needs() }
    }

    fn combine(&self, updates: &[&[f32]], arithmetic: &dyn Arithmetic) -> Result<Vec<f32>, StrategyError> {
        let count = updates.len();
        if count < self.needs() {
            return Err(StrategyError::NotDefined {
                rule: "Krum",
                updates: count,
                liars: self.liars,
                needs: self.needs(),
            });
        }
        let distances = arithmetic.squared_distances(updates)?;
        let all: Vec<usize> = (0..count).collect();
        let keep = self.keep.clamp(1, count - self.liars);
        let kept = ranked(&distances, count, &all, self.liars).into_iter().take(keep);
        let kept: Vec<&[f32]> = kept.map(|i| updates[i]).collect();
        Ok(arithmetic.trimmed_mean(&kept, 0)?)
    }

    fn step(&mut self, model: &mut [f32], aggregate: &Aggregate<'_>) -> Result<(), StrategyError> {
        descend(model, 1.0, aggregate.update);
        Ok(())
    }
}
