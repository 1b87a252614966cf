//! What a client of federated learning knows of potholes, apart from being a client: vehicles and roads ([`road`], [`fleet`]), a net
//! that tells potholes, manholes and bumps apart sample by sample ([`unet`]), how it is trained ([`How`]) and judged ([`loss`]).
//!
//! The plugin `fed-pothole` and the study `pothole` are both made of it.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

#[path = "../../../adam.rs"]
mod adam;
pub mod fleet;
mod layers;
pub mod loss;
mod parts;
pub mod road;
pub mod unet;
#[path = "../../../vectors.rs"]
mod vectors;

pub use adam::{Begun, How};
pub use unet::Unet;

impl How {
    /// [`How::train`] of this net over windows.
    pub fn teach(
        &self,
        unet: &Unet,
        windows: &[fleet::Window],
        start: &[f32],
        progress: Option<Begun>,
        keep: impl Fn(&Begun),
    ) -> Begun {
        let gradient = |model: &[f32], window: &fleet::Window, share: f32, sum: &mut [f32]| {
            unet.gradient(model, window, share, sum)
        };
        self.train(windows, start, progress, gradient, keep)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Drive, Habits};
    use std::cell::RefCell;

    fn how(epochs: u32) -> How {
        How {
            epochs,
            batch: 4,
            rate: 3e-3,
            most_steps: None,
            proximal: 0.0,
            seed: 7,
        }
    }

    #[test]
    fn it_learns_what_lies_on_the_road() {
        let unet = Unet::new();
        let habits = Habits::of(1, 0);
        let (windows, held) = (habits.windows(Drive::Train, 16), habits.windows(Drive::Held, 8));
        let start = unet.initial(1);
        let trained = how(12).teach(&unet, &windows, &start, None, |_| {});
        assert_eq!(trained.steps, 48);
        let loss = |model: &[f32]| unet.judge(model, &held).loss();
        let (before, after) = (loss(&start), loss(&trained.model));
        assert!(after < 0.75 * before, "{before} {after}");
    }

    #[test]
    fn a_training_that_goes_on_comes_to_the_same() {
        let unet = Unet::new();
        let windows = Habits::of(2, 1).windows(Drive::Train, 3);
        let (start, how) = (unet.initial(1), how(3));
        let kept = RefCell::new(Vec::new());
        let whole = how.teach(&unet, &windows, &start, None, |begun| {
            kept.borrow_mut().push(begun.write())
        });
        assert_eq!(kept.borrow().len(), 2);
        for progress in kept.into_inner() {
            let begun = Begun::read(&progress, unet.length());
            assert!(begun.is_some());
            assert_eq!(how.teach(&unet, &windows, &start, begun, |_| {}), whole);
        }
        assert_eq!(Begun::read(&[0; 16], unet.length()), None);
    }

    #[test]
    fn partial_work_ends_after_its_steps_and_a_tether_keeps_near() {
        let unet = Unet::new();
        let windows = Habits::of(2, 1).windows(Drive::Train, 6);
        let start = unet.initial(1);
        let way = |how: How| {
            let trained = how.teach(&unet, &windows, &start, None, |_| {});
            let each = trained
                .model
                .iter()
                .zip(&start)
                .map(|(one, other)| (one - other).powi(2));
            (trained.steps, each.sum::<f32>())
        };
        let most_steps = Some(3);
        let (steps, free) = way(How { most_steps, ..how(4) });
        assert_eq!(steps, 3);
        let (_, bound) = way(How {
            most_steps,
            proximal: 1e3,
            ..how(4)
        });
        assert!(bound < free, "{bound} {free}");
    }
}
