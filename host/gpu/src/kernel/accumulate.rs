use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// `result = sum + Σ weight × update`: one step of a federated average, up to eight updates in one pass over memory.
///
/// Inputs `sum` of `length`, `updates` one after the other, `weights`; output `result`. Where the sum is kept in place, take
/// [`Accumulate::add`].
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Accumulate {
    /// Numbers of an update.
    pub length: u32,
    /// Updates at once: 1 to 8.
    pub updates: u32,
}

/// Updates that one pass takes: more streams than this defeat the processor's prefetching.
const MOST_UPDATES: usize = 8;

/// Numbers that one thread takes at a time: the sum of a part stays in the first-level cache.
const PART: usize = 4096;

impl Accumulate {
    /// Adds weighted updates to a sum in place, on the processor. What is longer than the sum is left out.
    ///
    /// ```
    /// use karman_gpu::{Accumulate, Cpu};
    ///
    /// let mut sum = vec![0.0; 2];
    /// Accumulate::add(&Cpu::new(1), &mut sum, &[(&[1.0, 2.0], 0.25), (&[5.0, 6.0], 0.75)]);
    /// assert_eq!(sum, [4.0, 5.0]);
    /// ```
    #[expect(clippy::needless_range_loop, reason = "nine arrays go by one index")]
    pub fn add(cpu: &Cpu, sum: &mut [f32], updates: &[(&[f32], f32)]) {
        for updates in updates.chunks(MOST_UPDATES) {
            cpu.rows(sum, PART, |part, sum| {
                let at = part * PART;
                cpu.vectorised(|| match updates {
                    // One loop over all eight reads each number once and the sum once.
                    [a, b, c, d, e, f, g, h] => {
                        let [a, b, c, d, e, f, g, h] = [a, b, c, d, e, f, g, h]
                            .map(|(update, weight)| (&update[at..][..sum.len()], *weight));
                        for i in 0..sum.len() {
                            let one = a.0[i] * a.1 + b.0[i] * b.1 + (c.0[i] * c.1 + d.0[i] * d.1);
                            let two = e.0[i] * e.1 + f.0[i] * f.1 + (g.0[i] * g.1 + h.0[i] * h.1);
                            sum[i] += one + two;
                        }
                    }
                    updates => {
                        for (update, weight) in updates {
                            sum.iter_mut()
                                .zip(&update[at..])
                                .for_each(|(sum, value)| *sum += weight * value);
                        }
                    }
                });
            });
        }
    }
}

impl Describe for Accumulate {
    fn check(&self) -> Result<(), GpuError> {
        if !(1..=MOST_UPDATES as u32).contains(&self.updates) {
            return Err(GpuError::kernel(
                "accumulate",
                "updates",
                self.updates as usize,
                "1 to 8 go in at once",
            ));
        }
        check_length("accumulate", "length", self.length)?;
        let all = u64::from(self.length) * u64::from(self.updates);
        check_shape("accumulate", &[], &[("updates", all)])
    }

    fn arguments(&self) -> Vec<Argument> {
        let (length, updates) = (self.length as usize, self.updates as usize);
        vec![
            Argument::input("sum", Element::F32, length),
            Argument::input("updates", Element::F32, length * updates),
            Argument::input("weights", Element::F32, updates),
            Argument::output("result", Element::F32, length),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "accumulate",
            source: source!("accumulate", "each"),
            constants: vec![("UPDATES", self.updates)],
            parameters: vec![self.length],
            bindings: vec![0, 1, 2, 3],
            threads: EACH,
            workgroups: each(u64::from(self.length)),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let result = floats_mut(&mut outputs[0]);
        result.copy_from_slice(floats(inputs[0]));
        let updates = floats(inputs[1]).chunks(self.length as usize);
        let updates: Vec<_> = updates.zip(floats(inputs[2]).iter().copied()).collect();
        Self::add(cpu, result, &updates);
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let (sum, updates, weights) = (floats(inputs[0]), floats(inputs[1]), floats(inputs[2]));
        let length = self.length as usize;
        let products = |place: usize| {
            let product =
                move |(n, weight): (usize, &f32)| f64::from(*weight) * f64::from(updates[n * length + place]);
            weights
                .iter()
                .enumerate()
                .map(product)
                .chain([f64::from(sum[place])])
        };
        vec![Expected {
            values: (0..length).map(|place| products(place).sum()).collect(),
            scale: (0..length)
                .map(|place| products(place).map(f64::abs).sum())
                .collect(),
        }]
    }

    fn operations(&self) -> u64 {
        2 * u64::from(self.length) * u64::from(self.updates)
    }
}
