//! Steps by Adam over the client's tiles, in an order that the seed decides.

use crate::Training;
use crate::data::Sample;
use crate::net::{LENGTH, Way};
use fastrand::Rng;

/// How much of the mean of slopes, and of their squares, a step keeps.
const KEEP: (f32, f32) = (0.9, 0.999);
/// What keeps a division from one by nothing.
const LEAST: f32 = 1e-8;

/// One training.
pub(crate) struct Course<'a> {
    pub(crate) samples: &'a [Sample],
    pub(crate) training: &'a Training,
}

/// How far it is. It is written down after each pass but the last.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Begun {
    pub(crate) model: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
    passes: u32,
    pub(crate) steps: u32,
    /// Of all steps together.
    losses: f32,
}

impl Begun {
    pub(crate) fn with(model: &[f32]) -> Self {
        Self {
            model: model.to_vec(),
            mean: vec![0.0; model.len()],
            square: vec![0.0; model.len()],
            passes: 0,
            steps: 0,
            losses: 0.0,
        }
    }

    /// The mean loss on the way.
    pub(crate) fn loss(&self) -> f32 {
        self.losses / self.steps.max(1) as f32
    }

    /// A step down these slopes.
    fn step(&mut self, slopes: &[f32], rate: f32) {
        self.steps += 1;
        let at = self.steps as i32;
        let (mean_left, square_left) = (1.0 - KEEP.0.powi(at), 1.0 - KEEP.1.powi(at));
        let moments = self.mean.iter_mut().zip(&mut self.square);
        for ((weight, slope), (mean, square)) in self.model.iter_mut().zip(slopes).zip(moments) {
            *mean = KEEP.0 * *mean + (1.0 - KEEP.0) * slope;
            *square = KEEP.1 * *square + (1.0 - KEEP.1) * slope * slope;
            *weight -= rate * (*mean / mean_left) / ((*square / square_left).sqrt() + LEAST);
        }
    }

    pub(crate) fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + 12 * self.model.len());
        bytes.extend(self.passes.to_le_bytes());
        bytes.extend(self.steps.to_le_bytes());
        bytes.extend(self.losses.to_le_bytes());
        for numbers in [&self.model, &self.mean, &self.square] {
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes
    }

    /// Nothing where it is not of this model.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let ([passes, steps, losses], numbers) = words.split_first_chunk::<3>()?;
        if !rest.is_empty() || numbers.len() != 3 * LENGTH {
            return None;
        }
        let mut each = numbers.chunks(LENGTH).map(|numbers| {
            numbers
                .iter()
                .map(|word| f32::from_le_bytes(*word))
                .collect::<Vec<f32>>()
        });
        Some(Self {
            passes: u32::from_le_bytes(*passes),
            steps: u32::from_le_bytes(*steps),
            losses: f32::from_le_bytes(*losses),
            model: each.next()?,
            mean: each.next()?,
            square: each.next()?,
        })
    }
}

impl Course<'_> {
    pub(crate) fn run(&self, start: &[f32], progress: Option<Begun>, keep: impl Fn(&Begun)) -> Begun {
        let mut begun = progress.unwrap_or_else(|| Begun::with(start));
        let mut way = Way::default();
        while begun.passes < self.training.epochs {
            self.pass(start, &mut begun, &mut way);
            if begun.passes < self.training.epochs {
                keep(&begun);
            }
        }
        begun
    }

    fn pass(&self, start: &[f32], begun: &mut Begun, way: &mut Way) {
        let training = self.training;
        let mut order: Vec<&Sample> = self.samples.iter().collect();
        // A seed for each pass: one that goes on after a power cut takes the same order.
        Rng::with_seed(training.seed.wrapping_add(begun.passes.into())).shuffle(&mut order);
        let mut slopes = vec![0.0; LENGTH];
        for batch in order.chunks(training.batch.max(1) as usize) {
            if training.most_steps.is_some_and(|most| begun.steps >= most) {
                break;
            }
            slopes.fill(0.0);
            let share = 1.0 / batch.len() as f32;
            let each = batch
                .iter()
                .map(|sample| way.gradient(&begun.model, sample, share, &mut slopes));
            begun.losses += share * each.sum::<f32>();
            for (slope, (weight, start)) in slopes.iter_mut().zip(begun.model.iter().zip(start)) {
                *slope += training.proximal * (weight - start);
            }
            begun.step(&slopes, training.learning_rate);
        }
        begun.passes += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::data::Data;
    use std::cell::RefCell;

    fn training(epochs: u32) -> Training {
        Training {
            version: 0,
            epochs,
            batch: 16,
            learning_rate: 3e-3,
            most_steps: None,
            proximal: 0.0,
            wants_control: false,
            control: Vec::new(),
            seed: 7,
        }
    }

    fn data() -> Data {
        let properties = [("pictures", "6"), ("held", "3")];
        let properties = properties.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Data::of(&Setting {
            run: String::new(),
            share: None,
            properties: properties.to_vec(),
        })
        .unwrap()
    }

    fn drawn() -> Vec<f32> {
        let mut random = Rng::with_seed(1);
        (0..LENGTH).map(|_| 0.4 * (random.f32() - 0.5)).collect()
    }

    #[test]
    fn it_learns_to_see_water() {
        let (data, training, start) = (data(), training(8), drawn());
        let course = Course {
            samples: &data.train,
            training: &training,
        };
        let trained = course.run(&start, None, |_| {});
        let overlap = |model: &[f32]| {
            let (both, either, _) = Way::default().judge(model, &data.held);
            both as f64 / either as f64
        };
        let (before, after) = (overlap(&start), overlap(&trained.model));
        assert!(after > 0.6 && after > before + 0.2, "{before} {after}");
    }

    #[test]
    fn a_training_that_goes_on_comes_to_the_same() {
        let (data, training, start) = (data(), training(3), drawn());
        let course = Course {
            samples: &data.train[..20],
            training: &training,
        };
        let kept = RefCell::new(Vec::new());
        let whole = course.run(&start, None, |begun| kept.borrow_mut().push(begun.write()));
        assert_eq!(kept.borrow().len(), 2);
        for progress in kept.into_inner() {
            let begun = Begun::read(&progress);
            assert!(begun.is_some());
            assert_eq!(course.run(&start, begun, |_| {}), whole);
        }
        assert_eq!(Begun::read(&[0; 16]), None);
    }

    #[test]
    fn partial_work_ends_after_its_steps() {
        let (data, start) = (data(), drawn());
        let training = Training {
            most_steps: Some(2),
            ..training(4)
        };
        let course = Course {
            samples: &data.train,
            training: &training,
        };
        assert_eq!(course.run(&start, None, |_| {}).steps, 2);
    }
}
