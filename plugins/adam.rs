//! Training by Adam, in an order of samples that a seed decides. Crates take this file in by its path.

use fastrand::Rng;

/// How much of the mean of slopes, and of their squares, a step keeps.
const KEEP: (f32, f32) = (0.9, 0.999);
/// What keeps a division from one by nothing.
const LEAST: f32 = 1e-8;

/// How to train: what an order of a run says of it.
#[derive(Clone, Copy, Debug)]
pub struct How {
    /// Passes over the samples.
    pub epochs: u32,
    /// Samples of a step.
    pub batch: u32,
    /// The size of a step.
    pub rate: f32,
    /// No more steps than this.
    pub most_steps: Option<u32>,
    /// Adds `proximal / 2 * |w - w0|^2` to the loss, where w0 is the model that was given.
    pub proximal: f32,
    /// Decides the order.
    pub seed: u64,
}

/// How far a training is. It is written down after each pass but the last.
#[derive(Clone, Debug, PartialEq)]
pub struct Begun {
    /// The model as it is now.
    pub model: Vec<f32>,
    mean: Vec<f32>,
    square: Vec<f32>,
    passes: u32,
    /// Steps so far.
    pub steps: u32,
    /// Of all steps together.
    losses: f32,
}

impl How {
    /// Trains from `start`, or goes on with what was begun. `gradient` takes a model, a sample, its share of a step and a sum to
    /// add that share of its gradient to, and gives its loss; `keep` is told after each pass but the last.
    pub fn train<S>(
        &self,
        samples: &[S],
        start: &[f32],
        progress: Option<Begun>,
        mut gradient: impl FnMut(&[f32], &S, f32, &mut [f32]) -> f32,
        keep: impl Fn(&Begun),
    ) -> Begun {
        let mut begun = progress.unwrap_or_else(|| Begun::with(start));
        while begun.passes < self.epochs {
            self.pass(samples, start, &mut begun, &mut gradient);
            if begun.passes < self.epochs {
                keep(&begun);
            }
        }
        begun
    }

    fn pass<S>(
        &self,
        samples: &[S],
        start: &[f32],
        begun: &mut Begun,
        gradient: &mut impl FnMut(&[f32], &S, f32, &mut [f32]) -> f32,
    ) {
        let mut order: Vec<&S> = samples.iter().collect();
        // A seed for each pass: one that goes on after a power cut takes the same order.
        Rng::with_seed(self.seed.wrapping_add(begun.passes.into())).shuffle(&mut order);
        let mut slopes = vec![0.0; start.len()];
        for batch in order.chunks(self.batch.max(1) as usize) {
            if self.most_steps.is_some_and(|most| begun.steps >= most) {
                break;
            }
            slopes.fill(0.0);
            let share = 1.0 / batch.len() as f32;
            let mut losses = 0.0;
            for sample in batch {
                losses += gradient(&begun.model, sample, share, &mut slopes);
            }
            begun.losses += share * losses;
            for (slope, (weight, start)) in slopes.iter_mut().zip(begun.model.iter().zip(start)) {
                *slope += self.proximal * (weight - start);
            }
            begun.step(&slopes, self.rate);
        }
        begun.passes += 1;
    }
}

impl Begun {
    fn with(model: &[f32]) -> Self {
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
    pub fn loss(&self) -> f32 {
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

    /// All of it as bytes.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(12 + 12 * self.model.len());
        bytes.extend(self.passes.to_le_bytes());
        bytes.extend(self.steps.to_le_bytes());
        bytes.extend(self.losses.to_le_bytes());
        for numbers in [&self.model, &self.mean, &self.square] {
            bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        }
        bytes
    }

    /// Nothing where it is not of a model of this length.
    pub fn read(bytes: &[u8], length: usize) -> Option<Self> {
        let (words, rest) = bytes.as_chunks::<4>();
        let ([passes, steps, losses], numbers) = words.split_first_chunk::<3>()?;
        if !rest.is_empty() || numbers.len() != 3 * length {
            return None;
        }
        let mut each = numbers.chunks(length.max(1)).map(|numbers| {
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
