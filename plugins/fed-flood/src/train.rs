//! Steps by Adam over the client's tiles.

use crate::Training;
use crate::adam::{Begun, How};
use crate::data::Sample;
use crate::net::Way;

/// One training.
pub(crate) struct Course<'a> {
    pub(crate) samples: &'a [Sample],
    pub(crate) training: &'a Training,
}

impl Course<'_> {
    pub(crate) fn run(&self, start: &[f32], progress: Option<Begun>, keep: impl Fn(&Begun)) -> Begun {
        let how = How {
            epochs: self.training.epochs,
            batch: self.training.batch,
            rate: self.training.learning_rate,
            most_steps: self.training.most_steps,
            proximal: self.training.proximal,
            seed: self.training.seed,
        };
        let mut way = Way::default();
        how.train(
            self.samples,
            start,
            progress,
            |model, sample, share, sum| way.gradient(model, sample, share, sum),
            keep,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::data::Data;
    use crate::net::LENGTH;
    use fastrand::Rng;
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
            let begun = Begun::read(&progress, LENGTH);
            assert!(begun.is_some());
            assert_eq!(course.run(&start, begun, |_| {}), whole);
        }
        assert_eq!(Begun::read(&[0; 16], LENGTH), None);
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
