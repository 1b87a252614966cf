//! A 1-D U-Net with attention: two levels down, a wide look in the middle, two levels up, and across on each level what a gate
//! lets through. What comes out is a score for each sample and kind.

use crate::fleet::{ROWS, WINDOW, Window};
use crate::layers::{Arrays, Conv, doubled, halved, through_doubled, through_halved};
use crate::loss::{Judged, loss};
use crate::parts::{Block, Gate, Gated, Passed};
use crate::road::Kind;
use crate::vectors::add;
use fastrand::Rng;
use std::f32::consts::TAU;

/// Channels of the two levels and of the middle.
const WIDTHS: [usize; 3] = [8, 16, 24];
/// How far apart the middle's convolutions take samples.
const DILATION: usize = 4;

/// Where the numbers of a model lie. They are one row, in the order of [`Unet::arrays`].
#[derive(Debug)]
pub struct Unet {
    arrays: Arrays,
    down: [Block; 2],
    middle: Block,
    gates: [Gate; 2],
    up: [Block; 2],
    head: Conv,
}

/// What one window leaves on its way for the way back.
struct Way {
    down: [Passed; 2],
    middle: Passed,
    /// By level: what comes from below, as long as the level, and what the gate has let through.
    from_below: [Vec<f32>; 2],
    gated: [Gated; 2],
    up: [Passed; 2],
    scores: Vec<f32>,
}

impl Default for Unet {
    fn default() -> Self {
        Self::new()
    }
}

impl Unet {
    /// The net.
    pub fn new() -> Self {
        let mut arrays = Arrays::default();
        let [outer, inner, deep] = WIDTHS;
        Self {
            down: [
                Block::new(&mut arrays, "down0", ROWS, outer, 1),
                Block::new(&mut arrays, "down1", outer, inner, 1),
            ],
            middle: Block::new(&mut arrays, "middle", inner, deep, DILATION),
            gates: [
                Gate::new(&mut arrays, "gate0", outer, inner),
                Gate::new(&mut arrays, "gate1", inner, deep),
            ],
            up: [
                Block::new(&mut arrays, "up0", inner + outer, outer, 1),
                Block::new(&mut arrays, "up1", deep + inner, inner, 1),
            ],
            head: Conv::pointwise(&mut arrays, "head", Kind::ALL.len(), outer),
            arrays,
        }
    }

    /// Name and shape of each array, in order.
    pub fn arrays(&self) -> &[(String, Vec<u32>)] {
        &self.arrays.named
    }

    /// Numbers of a model.
    pub const fn length(&self) -> usize {
        self.arrays.length
    }

    /// A model to begin with: weights by He et al. (2015), scales 1, biases 0.
    pub fn initial(&self, seed: u64) -> Vec<f32> {
        let mut random = Rng::with_seed(seed);
        let mut model = Vec::with_capacity(self.length());
        for (name, shape) in self.arrays() {
            let count = shape.iter().product::<u32>() as usize;
            let takes: u32 = shape.iter().skip(1).product();
            let width = (2.0 / takes as f32).sqrt();
            let number = |random: &mut Rng| match shape.len() {
                1 if name.ends_with(".scale") => 1.0,
                1 => 0.0,
                _ => width * normal(random),
            };
            model.extend((0..count).map(|_| number(&mut random)));
        }
        model
    }

    /// The scores of a window: for each kind in order a row of as many as there are samples.
    pub fn scores(&self, model: &[f32], window: &Window) -> Vec<f32> {
        self.forward(model, window).scores
    }

    /// Adds the gradient of the window's loss to `sum`, `share` times; gives that loss.
    pub fn gradient(&self, model: &[f32], window: &Window, share: f32, sum: &mut [f32]) -> f32 {
        let way = self.forward(model, window);
        let (loss, mut slopes) = loss(&way.scores, &window.kinds);
        slopes.iter_mut().for_each(|slope| *slope *= share);
        self.backward(model, &way, &slopes, sum);
        loss
    }

    /// What the model makes of these windows.
    pub fn judge(&self, model: &[f32], windows: &[Window]) -> Judged {
        let mut judged = Judged::default();
        for window in windows {
            judged.count(&self.scores(model, window), &window.kinds);
        }
        judged
    }

    fn forward(&self, model: &[f32], window: &Window) -> Way {
        let [outer, inner, deep] = [WINDOW, WINDOW / 2, WINDOW / 4];
        let down0 = self.down[0].forward(model, window.input.clone(), outer);
        let down1 = self.down[1].forward(model, halved(&down0.out), inner);
        let middle = self.middle.forward(model, halved(&down1.out), deep);
        let (below1, gated1, up1) = self.rise(1, model, &middle.out, &down1.out, inner);
        let (below0, gated0, up0) = self.rise(0, model, &up1.out, &down0.out, outer);
        Way {
            scores: self.head.forward(model, &up0.out, outer),
            down: [down0, down1],
            middle,
            from_below: [below0, below1],
            gated: [gated0, gated1],
            up: [up0, up1],
        }
    }

    /// From the level below to this one, with what goes across.
    fn rise(
        &self,
        level: usize,
        model: &[f32],
        below: &[f32],
        across: &[f32],
        length: usize,
    ) -> (Vec<f32>, Gated, Passed) {
        let below = doubled(below);
        let gated = self.gates[level].forward(model, across, &below, length);
        let both = [below.as_slice(), gated.out.as_slice()].concat();
        let up = self.up[level].forward(model, both, length);
        (below, gated, up)
    }

    fn backward(&self, model: &[f32], way: &Way, slopes: &[f32], sum: &mut [f32]) {
        let [outer, inner, deep] = [WINDOW, WINDOW / 2, WINDOW / 4];
        let slopes = self.head.backward(model, &way.up[0].out, slopes, outer, sum);
        let (across0, slopes) = self.sink(0, model, way, slopes, outer, sum);
        let (across1, slopes) = self.sink(1, model, way, slopes, inner, sum);
        let slopes = self.middle.backward(model, &way.middle, slopes, deep, sum);
        let mut slopes = through_halved(&slopes, &way.down[1].out);
        add(&mut slopes, &across1, 1.0);
        let slopes = self.down[1].backward(model, &way.down[1], slopes, inner, sum);
        let mut slopes = through_halved(&slopes, &way.down[0].out);
        add(&mut slopes, &across0, 1.0);
        self.down[0].backward(model, &way.down[0], slopes, outer, sum);
    }

    /// The way back of [`Unet::rise`]: how the loss changes with what goes across, and with the level below.
    fn sink(
        &self,
        level: usize,
        model: &[f32],
        way: &Way,
        slopes: Vec<f32>,
        length: usize,
        sum: &mut [f32],
    ) -> (Vec<f32>, Vec<f32>) {
        let slopes = self.up[level].backward(model, &way.up[level], slopes, length, sum);
        let below = &way.from_below[level];
        let (of_below, of_gated) = slopes.split_at(below.len());
        let (across, by_gate) = self.gates[level].backward(
            model,
            &way.gated[level],
            (way.down[level].out.as_slice(), below.as_slice()),
            of_gated.to_vec(),
            sum,
        );
        let mut of_below = of_below.to_vec();
        add(&mut of_below, &by_gate, 1.0);
        (across, through_doubled(&of_below))
    }
}

/// A draw of mean 0 and spread 1.
fn normal(random: &mut Rng) -> f32 {
    let (radius, turn) = ((1.0 - random.f32()).ln(), random.f32());
    (-2.0 * radius).sqrt() * (TAU * turn).cos()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::{Drive, Habits};

    fn window() -> Window {
        let windows = Habits::of(1, 0).windows(Drive::Train, 6);
        let most = windows
            .into_iter()
            .max_by_key(|window| window.kinds.iter().filter(|kind| **kind > 0).count());
        most.unwrap()
    }

    #[test]
    fn a_model_is_as_long_as_its_arrays() {
        let unet = Unet::new();
        let numbers: u32 = unet
            .arrays()
            .iter()
            .map(|(_, shape)| shape.iter().product::<u32>())
            .sum();
        assert_eq!((unet.length(), unet.initial(1).len()), (18_798, numbers as usize));
        let mut names: Vec<&str> = unet.arrays().iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), unet.arrays().len());
        let scores = unet.scores(&unet.initial(1), &window());
        assert_eq!(scores.len(), Kind::ALL.len() * WINDOW);
    }

    /// Each array along its own gradient, and some numbers alone, against differences of the loss. These are as wide as numbers of 32
    /// bits need, and so go over edges of ReLU and maxima: bounds are wider than those of the layers' own tests.
    #[test]
    fn gradients_are_those_of_the_loss() {
        let (unet, window) = (Unet::new(), window());
        let model = unet.initial(2);
        let mut gradient = vec![0.0; unet.length()];
        unet.gradient(&model, &window, 1.0, &mut gradient);
        let loss = |model: &[f32]| f64::from(unet.gradient(model, &window, 1.0, &mut vec![0.0; model.len()]));
        let numeric = |along: &[f32], by: f32| {
            let [mut more, mut less] = [model.clone(), model.clone()];
            add(&mut more, along, by);
            add(&mut less, along, -by);
            (loss(&more) - loss(&less)) / (2.0 * f64::from(by))
        };
        let mut start = 0;
        for (name, shape) in unet.arrays() {
            let end = start + shape.iter().product::<u32>() as usize;
            let own = &gradient[start..end];
            let steep = own.iter().map(|slope| slope * slope).sum::<f32>().sqrt();
            // A gate may be shut for a model that was drawn.
            assert!(steep > 0.0 || name.starts_with("gate"), "{name} learns nothing");
            let mut along = vec![0.0; model.len()];
            add(&mut along[start..end], own, 1.0 / steep.max(1e-9));
            let (numeric, steep) = (numeric(&along, 1e-3), f64::from(steep));
            assert!(
                (numeric - steep).abs() < 0.2 * steep + 4e-3,
                "{name}: {numeric} {steep}"
            );
            start = end;
        }
        let mut random = Rng::with_seed(3);
        for _ in 0..40 {
            let place = random.usize(..model.len());
            let mut along = vec![0.0; model.len()];
            along[place] = 1.0;
            let (numeric, slope) = (numeric(&along, 1e-3), f64::from(gradient[place]));
            assert!(
                (numeric - slope).abs() < 0.2 * slope.abs() + 4e-3,
                "{place}: {numeric} {slope}"
            );
        }
    }

    #[test]
    fn gradients_add_up_by_their_shares() {
        let (unet, window) = (Unet::new(), window());
        let model = unet.initial(4);
        let mut once = vec![0.0; unet.length()];
        unet.gradient(&model, &window, 1.0, &mut once);
        let mut halves = vec![0.0; unet.length()];
        (0..2).for_each(|_| _ = unet.gradient(&model, &window, 0.5, &mut halves));
        for (once, halves) in once.iter().zip(&halves) {
            assert!(
                (once - halves).abs() <= 1e-4 * once.abs() + 1e-6,
                "{once} {halves}"
            );
        }
    }
}
