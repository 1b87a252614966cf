use super::argument::floats_mut;
use super::pass::Pass;
use super::{Argument, Describe, Element, Expected, Words, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// `softmax(Q Kᵀ / √width) V` per head, with the softmax taken as the keys go by (Milakov and Gimelshein 2018), so that no matrix of
/// scores is kept.
///
/// Inputs `queries` (heads by queries by width), `keys` and `values` (key-heads by keys by width); output `result` like the queries.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Attention {
    /// Heads of the queries.
    pub heads: u32,
    /// Heads of keys and values; divides `heads`. Default 0: as many.
    #[serde(default)]
    pub key_heads: u32,
    /// Queries of a head, at most 65,535.
    pub queries: u32,
    /// Keys of a head.
    pub keys: u32,
    /// Numbers of a query, key and value; at most 256.
    pub width: u32,
    /// Whether a query sees only keys up to its own place, the last query the last key.
    #[serde(default)]
    pub causal: bool,
}

/// The widest head that the shader has registers for.
const MOST_WIDTH: u32 = 256;

/// Threads of a workgroup, and the keys that it takes at a time.
const BLOCK: u32 = 64;

/// Keys between two looks at the time of the processor: some milliseconds.
const KEYS: usize = 4096;

/// A workgroup is one query of one head.
const MOST_WORKGROUPS: u32 = 65_535;

impl Attention {
    const fn key_heads(&self) -> u32 {
        if self.key_heads == 0 {
            self.heads
        } else {
            self.key_heads
        }
    }

    /// Keys that a query sees.
    const fn seen(&self, query: usize) -> usize {
        match self.causal {
            true => query + 1 + self.keys as usize - self.queries as usize,
            false => self.keys as usize,
        }
    }
}

impl Describe for Attention {
    fn check(&self) -> Result<(), GpuError> {
        check_shape(
            "attention",
            &[
                ("heads", self.heads),
                ("key-heads", self.key_heads()),
                ("queries", self.queries),
                ("keys", self.keys),
                ("width", self.width),
            ],
            &[
                (
                    "queries",
                    u64::from(self.heads) * u64::from(self.queries) * u64::from(self.width.min(MOST_WIDTH)),
                ),
                (
                    "keys",
                    u64::from(self.key_heads())
                        * u64::from(self.keys)
                        * u64::from(self.width.min(MOST_WIDTH)),
                ),
            ],
        )?;
        let must =
            |field, value: u32, must: &str| Err(GpuError::kernel("attention", field, value as usize, must));
        if self.width > MOST_WIDTH {
            return must("width", self.width, "256 is the most");
        }
        for (field, value) in [("heads", self.heads), ("queries", self.queries)] {
            if value > MOST_WORKGROUPS {
                return must(field, value, "65535 is the most");
            }
        }
        if !self.heads.is_multiple_of(self.key_heads()) {
            return must("key-heads", self.key_heads, "it divides heads");
        }
        if self.causal && self.keys < self.queries {
            return must("keys", self.keys, "there is one for each query");
        }
        Ok(())
    }

    fn arguments(&self) -> Vec<Argument> {
        let width = self.width as usize;
        let queries = self.heads as usize * self.queries as usize * width;
        let keys = self.key_heads() as usize * self.keys as usize * width;
        vec![
            Argument::input("queries", Element::F32, queries),
            Argument::input("keys", Element::F32, keys),
            Argument::input("values", Element::F32, keys),
            Argument::output("result", Element::F32, queries),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "attention",
            source: source!("attention"),
            constants: vec![],
            parameters: vec![
                self.heads / self.key_heads(),
                self.queries,
                self.keys,
                self.width,
                u32::from(self.causal),
                (1.0 / (self.width as f32).sqrt()).to_bits(),
            ],
            bindings: vec![0, 1, 2, 3],
            threads: [BLOCK, 1, 1],
            workgroups: [self.queries, self.heads, 1],
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let [queries, keys, values] = [floats(inputs[0]), floats(inputs[1]), floats(inputs[2])];
        let (width, rows) = (self.width as usize, self.queries as usize);
        let of_head = self.keys as usize * width;
        let scale = 1.0 / (self.width as f32).sqrt();
        cpu.rows(floats_mut(&mut outputs[0]), width, |number, result| {
            cpu.vectorised(|| {
                let (head, row) = (number / rows, number % rows);
                let head = head / (self.heads / self.key_heads()) as usize;
                let query = &queries[number * width..][..width];
                let seen = self.seen(row) * width;
                let keys = keys[head * of_head..][..seen].chunks(width);
                let values = values[head * of_head..][..seen].chunks(width);
                let (mut largest, mut total) = (f32::MIN, 0.0);
                for (number, (key, value)) in keys.zip(values).enumerate() {
                    if number % KEYS == 0 && cpu.is_late() {
                        return;
                    }
                    let score = scale * query.iter().zip(key).map(|(query, key)| query * key).sum::<f32>();
                    if score > largest {
                        let shrink = (largest - score).exp();
                        total *= shrink;
                        result.iter_mut().for_each(|result| *result *= shrink);
                        largest = score;
                    }
                    let weight = (score - largest).exp();
                    total += weight;
                    result
                        .iter_mut()
                        .zip(value)
                        .for_each(|(result, value)| *result += weight * value);
                }
                result.iter_mut().for_each(|result| *result /= total);
            });
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let [queries, keys, values] = [floats(inputs[0]), floats(inputs[1]), floats(inputs[2])];
        let (width, rows) = (self.width as usize, self.queries as usize);
        let of_head = self.keys as usize * width;
        let (mut results, mut sizes) = (Vec::new(), Vec::new());
        for (number, query) in queries.chunks(width).enumerate() {
            let head = number / rows / (self.heads / self.key_heads()) as usize;
            let seen = self.seen(number % rows) * width;
            let keys = keys[head * of_head..][..seen].chunks(width);
            let dot = |key: &[f32]| {
                query
                    .iter()
                    .zip(key)
                    .map(|(q, k)| f64::from(*q) * f64::from(*k))
                    .sum::<f64>()
            };
            let scores: Vec<f64> = keys.map(|key| dot(key) / f64::from(self.width).sqrt()).collect();
            let largest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
            let total: f64 = weights.iter().sum();
            for column in 0..width {
                let value = |key: usize| f64::from(values[head * of_head + key * width + column]);
                results.push(
                    weights
                        .iter()
                        .enumerate()
                        .map(|(key, weight)| weight * value(key))
                        .sum::<f64>()
                        / total,
                );
                let size = weights
                    .iter()
                    .enumerate()
                    .map(|(key, weight)| weight * value(key).abs());
                sizes.push(size.sum::<f64>() / total);
            }
        }
        vec![Expected {
            values: results,
            scale: sizes,
        }]
    }

    /// An error of the score counts as often as the exponential is steep.
    fn tolerance(&self) -> f64 {
        5e-5
    }

    fn operations(&self) -> u64 {
        let pairs = match self.causal {
            true => (0..self.queries as usize)
                .map(|query| self.seen(query) as u64)
                .sum(),
            false => u64::from(self.queries) * u64::from(self.keys),
        };
        4 * u64::from(self.heads) * pairs * u64::from(self.width)
    }
}
