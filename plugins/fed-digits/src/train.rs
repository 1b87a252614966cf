//! Gradient descent over the client's samples, in an order that the seed decides.

use crate::Training;
use crate::data::Sample;
use crate::low_rank::LowRank;
use crate::net::Net;
use fastrand::Rng;

/// One training.
pub(crate) struct Course<'a> {
    pub(crate) net: Net,
    /// What is trained in place of the model.
    pub(crate) low_rank: Option<LowRank<'a>>,
    pub(crate) samples: &'a [Sample],
    pub(crate) training: &'a Training,
    /// SCAFFOLD's `c − c_k`, added to each gradient; zeros without it.
    pub(crate) drift: Vec<f32>,
}

/// How far it is. It is written down after each pass but the last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begun {
    pub(crate) model: Vec<f32>,
    pub(crate) passes: u32,
    pub(crate) steps: u32,
    /// Of all steps together.
    pub(crate) losses: f32,
}

pub(crate) struct Trained {
    pub(crate) model: Vec<f32>,
    pub(crate) steps: u32,
    pub(crate) loss: f32,
}

impl Course<'_> {
    pub(crate) fn run(&self, start: &[f32], progress: Option<Begun>, keep: impl Fn(&Begun)) -> Trained {
        let mut begun = progress.unwrap_or_else(|| Begun {
            model: start.to_vec(),
            passes: 0,
            steps: 0,
            losses: 0.0,
        });
        let mut gradient = vec![0.0; start.len()];
        while begun.passes < self.training.epochs {
            self.pass(start, &mut begun, &mut gradient);
            if begun.passes < self.training.epochs {
                keep(&begun);
            }
        }
        Trained {
            loss: begun.losses / begun.steps.max(1) as f32,
            steps: begun.steps,
            model: begun.model,
        }
    }

    fn pass(&self, start: &[f32], begun: &mut Begun, gradient: &mut [f32]) {
        let training = self.training;
        let mut order: Vec<&Sample> = self.samples.iter().collect();
        // A seed for each pass: one that goes on after a power cut takes the same order.
        Rng::with_seed(training.seed.wrapping_add(begun.passes.into())).shuffle(&mut order);
        for batch in order.chunks(training.batch.max(1) as usize) {
            if training.most_steps.is_some_and(|most| begun.steps >= most) {
                break;
            }
            gradient.fill(0.0);
            begun.losses += self.gradient(begun, batch, gradient);
            begun.steps += 1;
            let moves = gradient.iter().zip(start).zip(&self.drift);
            for (weight, ((slope, start), drift)) in begun.model.iter_mut().zip(moves) {
                let slope = slope + training.proximal * (*weight - start) + drift;
                *weight -= training.learning_rate * slope;
            }
        }
        begun.passes += 1;
    }

    /// Of what is trained.
    fn gradient(&self, begun: &Begun, batch: &[&Sample], gradient: &mut [f32]) -> f32 {
        match &self.low_rank {
            None => self.net.gradient(&begun.model, batch, gradient),
            Some(low_rank) => {
                // A seed for each step, for the same reason.
                let draw = self
                    .training
                    .seed
                    .rotate_left(32)
                    .wrapping_add(begun.steps.into());
                low_rank.gradient(&begun.model, batch, draw, gradient)
            }
        }
    }

    /// SCAFFOLD's option II: `c_k' − c_k = −c + (w − y) / (K · eta)`.
    pub(crate) fn control_change(&self, start: &[f32], end: &[f32], steps: u32, control: &[f32]) -> Vec<f32> {
        let way = steps.max(1) as f32 * self.training.learning_rate;
        let change = start
            .iter()
            .zip(end)
            .zip(control)
            .map(|((w, y), c)| (w - y) / way - c);
        change.collect()
    }
}

impl Begun {
    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + 4 * self.model.len());
        bytes.extend(self.passes.to_le_bytes());
        bytes.extend(self.steps.to_le_bytes());
        bytes.extend(self.losses.to_le_bytes());
        bytes.extend(write(&self.model));
        bytes
    }

    /// Nothing where it is not of a model of this length.
    pub(crate) fn read(bytes: &[u8], length: usize) -> Option<Self> {
        let (head, model) = bytes.split_first_chunk::<12>()?;
        let word = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        Some(Self {
            passes: u32::from_le_bytes(word(0)),
            steps: u32::from_le_bytes(word(4)),
            losses: f32::from_le_bytes(word(8)),
            model: read(model, length)?,
        })
    }
}

pub(crate) fn write(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Nothing where they are not so many.
pub(crate) fn read(bytes: &[u8], length: usize) -> Option<Vec<f32>> {
    let (words, rest) = bytes.as_chunks::<4>();
    let fits = words.len() == length && rest.is_empty();
    fits.then(|| words.iter().map(|word| f32::from_le_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::data::{Train, held};
    use std::cell::RefCell;

    fn training(epochs: u32) -> Training {
        Training {
            version: 0,
            epochs,
            batch: 8,
            learning_rate: 0.3,
            most_steps: None,
            proximal: 0.0,
            wants_control: false,
            control: Vec::new(),
            seed: 7,
        }
    }

    fn setting() -> Setting {
        Setting {
            run: String::new(),
            share: None,
            properties: Vec::new(),
        }
    }

    fn samples() -> Vec<Sample> {
        Train::of(&setting(), Vec::new()).unwrap().samples
    }

    #[test]
    fn both_models_learn() {
        let (samples, held, training) = (samples(), held(&setting()).unwrap(), training(10));
        for (net, least) in [(Net::Regression, 0.92), (Net::Convolution, 0.95)] {
            let drift = vec![0.0; net.length()];
            let course = Course {
                net,
                low_rank: None,
                samples: &samples,
                training: &training,
                drift,
            };
            let trained = course.run(&net.initial(1), None, |_| {});
            let (correct, _) = net.judge(&trained.model, &held);
            let accuracy = correct as f64 / held.len() as f64;
            assert!(accuracy > least, "{net:?}: {accuracy}");
        }
    }

    #[test]
    fn a_training_that_goes_on_comes_to_the_same() {
        let (samples, training) = (samples(), training(3));
        let net = Net::Convolution;
        let course = Course {
            net,
            low_rank: None,
            samples: &samples,
            training: &training,
            drift: vec![0.01; net.length()],
        };
        let kept = RefCell::new(Vec::new());
        let whole = course.run(&net.initial(1), None, |begun| {
            kept.borrow_mut().push(begun.write())
        });
        assert_eq!(kept.borrow().len(), 2);
        for progress in kept.into_inner() {
            let begun = Begun::read(&progress, net.length());
            assert!(begun.is_some());
            assert_eq!(course.run(&net.initial(1), begun, |_| {}).model, whole.model);
        }
    }

    #[test]
    fn partial_work_ends_after_its_steps() {
        let samples = samples();
        let training = Training {
            most_steps: Some(5),
            ..training(4)
        };
        let net = Net::Regression;
        let course = Course {
            net,
            low_rank: None,
            samples: &samples,
            training: &training,
            drift: vec![0.0; net.length()],
        };
        assert_eq!(course.run(&net.initial(1), None, |_| {}).steps, 5);
    }
}
