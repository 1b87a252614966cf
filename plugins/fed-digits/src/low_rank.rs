//! Low-rank adapters of the dense layer, trained in place of the model: its weights count as `W + B · A`, and only A and B move.

use crate::data::Sample;
use crate::digits::LABELS;
use crate::exports::karman::federated::learner::{Array, Error, Setting};
use crate::learner::{arrays, numbers, property, refused};
use crate::net::{Net, dot};
use fastrand::Rng;

/// The arrays of the factors, which come after those of the model.
const A: &str = "dense.weight.lora-a";
const B: &str = "dense.weight.lora-b";

/// What is trained where a run has low-rank adapters.
pub(crate) struct LowRank<'a> {
    net: Net,
    /// It stays as it is.
    model: &'a [f32],
    rank: usize,
    /// Ranks below this one whose prefixes are to be of use by themselves; none where ranks are not nested.
    below: Vec<u32>,
}

impl<'a> LowRank<'a> {
    /// The adapters that came after a model, with the numbers of A and B in one row; nothing where none came.
    pub(crate) fn of(
        setting: &Setting,
        net: Net,
        model: &'a [f32],
        given: &[Array],
    ) -> Result<Option<(Self, Vec<f32>)>, Error> {
        let Some(first) = given.first() else {
            return Ok(None);
        };
        let rank = first.shape.first().copied().unwrap_or(0);
        if !(1..=LABELS as u32).contains(&rank) {
            return Err(refused(
                "model",
                "adapters of the dense layer have a rank of 1 to 10",
            ));
        }
        let low_rank = Self {
            net,
            model,
            rank: rank as usize,
            below: below(setting, rank)?,
        };
        let factors = numbers("model", given, &low_rank.wanted())?;
        Ok(Some((low_rank, factors)))
    }

    /// Adds the gradient of the mean loss over these samples by A and B to `gradient`; gives the loss. Where ranks are nested, half of
    /// the loss is that of a prefix, drawn anew for each step.
    pub(crate) fn gradient(
        &self,
        factors: &[f32],
        samples: &[&Sample],
        draw: u64,
        gradient: &mut [f32],
    ) -> f32 {
        let count = self.below.len() as u32;
        if count == 0 {
            return self.of_prefix(self.rank, 1.0, factors, samples, gradient);
        }
        let prefix = self.below[Rng::with_seed(draw).u32(..count) as usize] as usize;
        self.of_prefix(self.rank, 0.5, factors, samples, gradient)
            + self.of_prefix(prefix, 0.5, factors, samples, gradient)
    }

    /// The arrays after training: those of the model as they were, and the factors.
    pub(crate) fn arrays(&self, factors: &[f32]) -> Vec<Array> {
        let mut all = arrays(self.net.arrays(), self.model);
        all.extend(arrays(self.wanted().into(), factors));
        all
    }

    /// `share` times the loss, and its gradient, where the first ranks alone count.
    fn of_prefix(
        &self,
        first: usize,
        share: f32,
        factors: &[f32],
        samples: &[&Sample],
        gradient: &mut [f32],
    ) -> f32 {
        let (rank, inputs) = (self.rank, self.net.inputs());
        let model = self.merged(factors, first);
        let mut of_model = vec![0.0; model.len()];
        let loss = self.net.gradient(&model, samples, &mut of_model);
        let of_weights = &of_model[self.net.dense_at()..];
        let (a, b) = factors.split_at(rank * inputs);
        let (of_a, of_b) = gradient.split_at_mut(rank * inputs);
        for (label, slopes) in of_weights.chunks(inputs).take(LABELS).enumerate() {
            for k in 0..first {
                let at = label * rank + k;
                of_b[at] += share * dot(slopes, &a[k * inputs..][..inputs]);
                let row = &mut of_a[k * inputs..][..inputs];
                row.iter_mut()
                    .zip(slopes)
                    .for_each(|(sum, slope)| *sum += share * b[at] * slope);
            }
        }
        share * loss
    }

    /// The model with what the first ranks add to it.
    fn merged(&self, factors: &[f32], first: usize) -> Vec<f32> {
        let (rank, inputs) = (self.rank, self.net.inputs());
        let (a, b) = factors.split_at(rank * inputs);
        let mut model = self.model.to_vec();
        let weights = &mut model[self.net.dense_at()..][..LABELS * inputs];
        for (label, row) in weights.chunks_mut(inputs).enumerate() {
            for k in 0..first {
                let factor = b[label * rank + k];
                let of_a = &a[k * inputs..][..inputs];
                row.iter_mut()
                    .zip(of_a)
                    .for_each(|(weight, a)| *weight += factor * a);
            }
        }
        model
    }

    fn wanted(&self) -> [(&'static str, Vec<u32>); 2] {
        let (rank, inputs) = (self.rank as u32, self.net.inputs() as u32);
        [(A, vec![rank, inputs]), (B, vec![LABELS as u32, rank])]
    }
}

/// Of the ranks that the run has, those below this one, where its rule nests them.
fn below(setting: &Setting, rank: u32) -> Result<Vec<u32>, Error> {
    if property(setting, "low-rank.rule") != Some("prelort") {
        return Ok(Vec::new());
    }
    let ranks = property(setting, "low-rank.ranks").unwrap_or_default();
    let ranks: Result<Vec<u32>, _> = ranks.split(',').map(str::parse::<u32>).collect();
    let mut ranks = ranks.map_err(|_| refused("low-rank.ranks", "these are no ranks"))?;
    ranks.retain(|other| (1..rank).contains(other));
    Ok(ranks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::{Train, held};
    use crate::digits::normal;

    fn setting(rule: &str) -> Setting {
        crate::learner::setting(0, 1, &[("low-rank.rule", rule), ("low-rank.ranks", "2,4")])
    }

    /// B is zero, A is drawn.
    fn given(net: Net, rank: usize) -> Vec<Array> {
        let mut random = Rng::with_seed(5);
        let inputs = net.inputs();
        let width = (1.0 / inputs as f64).sqrt();
        let mut factors: Vec<f32> = (0..rank * inputs)
            .map(|_| (width * normal(&mut random)) as f32)
            .collect();
        factors.resize(rank * (inputs + LABELS), 0.0);
        let shapes = [
            (A, vec![rank as u32, inputs as u32]),
            (B, vec![LABELS as u32, rank as u32]),
        ];
        arrays(shapes.into(), &factors)
    }

    /// Against differences of the loss.
    #[test]
    fn gradients_are_those_of_the_loss() {
        for (net, rule) in [(Net::Regression, "florist"), (Net::Convolution, "prelort")] {
            let setting = setting(rule);
            let all = Train::of(&setting, Vec::new()).unwrap().samples;
            let samples: Vec<&Sample> = all.iter().take(5).collect();
            let model = net.initial(3);
            let (low_rank, start) = LowRank::of(&setting, net, &model, &given(net, 4))
                .unwrap()
                .unwrap();
            let mut random = Rng::with_seed(1);
            let factors: Vec<f32> = start
                .iter()
                .map(|x| x + 0.1 * normal(&mut random) as f32)
                .collect();
            let loss =
                |factors: &[f32]| low_rank.gradient(factors, &samples, 7, &mut vec![0.0; factors.len()]);
            let mut gradient = vec![0.0; factors.len()];
            low_rank.gradient(&factors, &samples, 7, &mut gradient);
            for _ in 0..40 {
                let place = random.usize(..factors.len());
                let moved = |by: f32| {
                    let mut moved = factors.clone();
                    moved[place] += by;
                    loss(&moved)
                };
                let numeric = (moved(1e-2) - moved(-1e-2)) / 2e-2;
                assert!(
                    (numeric - gradient[place]).abs() < 1e-2,
                    "{net:?} {place}: {numeric} {}",
                    gradient[place]
                );
            }
        }
    }

    #[test]
    fn the_model_stays_as_it_was_and_what_the_factors_add_is_learnt() {
        let (setting, net) = (setting("florist"), Net::Regression);
        let all = Train::of(&setting, Vec::new()).unwrap().samples;
        // Of every label: they lie one after the other.
        let samples: Vec<&Sample> = all.iter().step_by(4).collect();
        let model = net.initial(1);
        let (low_rank, mut factors) = LowRank::of(&setting, net, &model, &given(net, 4))
            .unwrap()
            .unwrap();
        let held = held(&setting).unwrap();
        let right = |factors: &[f32]| net.judge(&low_rank.merged(factors, 4), &held).0;
        let before = right(&factors);
        let mut gradient = vec![0.0; factors.len()];
        for step in 0..200 {
            gradient.fill(0.0);
            low_rank.gradient(&factors, &samples, step, &mut gradient);
            factors
                .iter_mut()
                .zip(&gradient)
                .for_each(|(x, slope)| *x -= 0.3 * slope);
        }
        assert!(
            right(&factors) > before + held.len() as u64 / 2,
            "{} {before}",
            right(&factors)
        );
        let after = low_rank.arrays(&factors);
        assert_eq!(numbers("model", &after[..2], &net.arrays()).unwrap(), model);
        assert_eq!(
            numbers("model", &after[2..], &low_rank.wanted()).unwrap(),
            factors
        );
    }

    #[test]
    fn adapters_of_other_shapes_are_refused() {
        let (setting, net) = (setting("prelort"), Net::Regression);
        let model = net.initial(1);
        let of = |given: &[Array]| LowRank::of(&setting, net, &model, given).map(|found| found.is_some());
        assert!(matches!(of(&[]), Ok(false)));
        assert!(matches!(of(&given(net, 4)), Ok(true)));
        assert!(of(&given(net, 11)).is_err());
        assert!(of(&given(net, 4)[..1]).is_err());
        assert!(of(&given(Net::Convolution, 4)).is_err());
        assert_eq!(below(&setting, 4).unwrap(), [2]);
        assert_eq!(below(&setting, 2).unwrap(), [0; 0]);
    }
}
