use super::argument::floats_mut;
use super::pass::{Pass, grid};
use super::{Argument, Describe, Element, Expected, Words, check_shape, halves, product};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use half::f16;
use ndarray::s;
use serde::{Deserialize, Serialize};

/// `C = A Wᵀ` with weights of 4 or 8 bits in groups along `k`: a weight is `(q - zero) scale`, with one scale and one zero point
/// per group of its row. Weights are unpacked where they are used (W4A16, W8A16).
///
/// Inputs: `activations`, `m` by `k` in half precision; `weights`, a row of `n` after the other, each filled up to whole groups, 8
/// or 4 to a word with the first in the low bits; `groups`, per row and group a word with the scale in half precision in the
/// low bits and the zero point above. Output: `c`, `m` by `n` in `f32`; sums are taken in `f32`. [`Quantised`](super::Quantised) makes the two.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QuantisedGemm {
    /// Rows of activations.
    pub m: u32,
    /// Rows of weights.
    pub n: u32,
    /// What is summed over; even.
    pub k: u32,
    /// Weights with one scale; a multiple of 8. 128 as AWQ and GPTQ have it takes 4.25 bits a weight.
    pub group: u32,
    /// 4 or 8.
    pub bits: u32,
}

/// Rows of activations up to which weights are unpacked for each row again.
const MOST_VECTORS: u32 = 4;
const VECTOR_THREADS: u32 = 64;
const VECTOR_ROWS: u32 = 4;

/// Rows of weights that the processor takes at once, and the most weights that it unpacks at once for a product of matrices.
const BLOCK: usize = 64;
const MOST_UNPACKED: usize = 1 << 20;

impl QuantisedGemm {
    pub(super) fn per_word(&self) -> usize {
        32 / self.bits as usize
    }

    pub(super) fn groups(&self) -> usize {
        self.k.div_ceil(self.group.max(1)) as usize
    }

    pub(super) fn row_words(&self) -> usize {
        self.groups() * self.group as usize / self.per_word()
    }

    /// Scale and zero point.
    #[inline(always)]
    pub(super) fn scale(&self, groups: &[u32], row: usize, group: usize) -> (f32, f32) {
        let word = groups[row * self.groups() + group];
        (f16::from_bits(word as u16).to_f32(), (word >> 16) as f32)
    }

    pub(super) fn weight(&self, weights: &[u32], row: usize, k: usize) -> u32 {
        let word = weights[row * self.row_words() + k / self.per_word()];
        word >> (k % self.per_word() * self.bits as usize) & ((1 << self.bits) - 1)
    }

    /// One row of weights as numbers.
    #[inline(always)]
    pub(super) fn unpack(&self, weights: &[u32], groups: &[u32], row: usize, into: &mut [f32]) {
        let words = &weights[row * self.row_words()..][..self.row_words()];
        let group = self.group as usize;
        for (number, (into, words)) in into
            .chunks_mut(group)
            .zip(words.chunks(group / self.per_word()))
            .enumerate()
        {
            let (scale, zero) = self.scale(groups, row, number);
            let (bits, mask) = (self.bits, (1 << self.bits) - 1);
            for (into, word) in into.chunks_mut(self.per_word()).zip(words) {
                for (place, value) in into.iter_mut().enumerate() {
                    let q = word >> (place as u32 * bits) & mask;
                    *value = (q as f32 - zero) * scale;
                }
            }
        }
    }

    /// One row of weights times some activations, without unpacking: `Σ_g scale (Σ q x - zero Σ x)`.
    #[inline(always)]
    fn dot<const BITS: u32, const PER: usize>(
        &self,
        words: &[u32],
        groups: &[u32],
        row: usize,
        x: &Summed,
    ) -> f32 {
        let per_group = self.group as usize / PER;
        let groups = (0..self.groups()).map(|group| {
            let (scale, zero) = self.scale(groups, row, group);
            let words = &words[group * per_group..][..per_group];
            let x = &x.values[group * self.group as usize..][..self.group as usize];
            let mut sums = [0.0f32; PER];
            for (word, x) in words.iter().zip(x.as_chunks::<PER>().0) {
                for place in 0..PER {
                    let q = word >> (place as u32 * BITS) & ((1 << BITS) - 1);
                    sums[place] += q.cast_signed() as f32 * x[place];
                }
            }
            (sums.iter().sum::<f32>(), scale, zero, group)
        });
        groups
            .map(|(sum, scale, zero, group)| scale * (sum - zero * x.sums[group]))
            .sum()
    }
}

/// A row of activations, filled up to whole groups, with the sum of each group.
struct Summed {
    values: Vec<f32>,
    sums: Vec<f32>,
}

impl Describe for QuantisedGemm {
    fn check(&self) -> Result<(), GpuError> {
        let must = |field, value: u32, must: &str| {
            Err(GpuError::kernel("quantised-gemm", field, value as usize, must))
        };
        if self.bits != 4 && self.bits != 8 {
            return must("bits", self.bits, "weights have 4 or 8");
        }
        check_shape(
            "quantised-gemm",
            &[("m", self.m), ("n", self.n), ("k", self.k), ("group", self.group)],
            &[],
        )?;
        if !self.group.is_multiple_of(8) {
            return must("group", self.group, "it is a multiple of 8");
        }
        if !self.k.is_multiple_of(2) {
            return must("k", self.k, "it is even");
        }
        let (m, n) = (u64::from(self.m), u64::from(self.n));
        check_shape(
            "quantised-gemm",
            &[],
            &[
                ("activations", m * u64::from(self.k) / 2),
                ("weights", n * self.row_words() as u64),
                ("groups", n * self.groups() as u64),
                ("c", m * n),
            ],
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let (m, n) = (self.m as usize, self.n as usize);
        vec![
            Argument::input("activations", Element::F16, m * self.k as usize / 2),
            Argument::input("weights", Element::U32, n * self.row_words()),
            Argument::input("groups", Element::U32, n * self.groups()),
            Argument::output("c", Element::F32, m * n),
        ]
    }

    fn passes(&self, tile: Tile) -> Vec<Pass> {
        let parameters = vec![
            self.m,
            self.n,
            self.k,
            self.group,
            self.groups() as u32,
            self.row_words() as u32,
        ];
        let bits = ("BITS", self.bits);
        if self.m <= MOST_VECTORS {
            let [x, y, _] = grid(u64::from(self.n.div_ceil(VECTOR_ROWS)));
            return vec![Pass {
                name: "quantised-gemv",
                source: source!("quantised_head", "quantised_gemv"),
                constants: vec![bits, ("THREADS", VECTOR_THREADS), ("ROWS", VECTOR_ROWS)],
                parameters,
                bindings: vec![0, 1, 2, 3],
                threads: [VECTOR_THREADS, 1, 1],
                workgroups: [x, y, self.m],
            }];
        }
        vec![Pass {
            name: "quantised-gemm",
            source: source!("quantised_head", "quantised_gemm", "tile"),
            constants: tile.constants().into_iter().chain([bits]).collect(),
            parameters,
            bindings: vec![0, 1, 2, 3],
            threads: tile.threads(),
            workgroups: tile.workgroups(self.m, self.n, 1),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let (weights, groups) = (inputs[1], inputs[2]);
        let activations: Vec<f32> = halves(inputs[0]).iter().map(|value| value.to_f32()).collect();
        let c = floats_mut(&mut outputs[0]);
        if self.m <= MOST_VECTORS {
            let group = self.group as usize;
            for (x, c) in activations.chunks(k).zip(c.chunks_mut(n)) {
                let mut values = x.to_vec();
                values.resize(self.groups() * group, 0.0);
                let sums = values.chunks(group).map(|group| group.iter().sum()).collect();
                let x = Summed { values, sums };
                cpu.rows(c, BLOCK, |block, c| {
                    cpu.vectorised(|| {
                        for (place, c) in c.iter_mut().enumerate() {
                            let row = block * BLOCK + place;
                            let words = &weights[row * self.row_words()..][..self.row_words()];
                            *c = match self.bits {
                                4 => self.dot::<4, 8>(words, groups, row, &x),
                                _ => self.dot::<8, 4>(words, groups, row, &x),
                            };
                        }
                    });
                });
            }
            return;
        }
        let most = (MOST_UNPACKED / k).clamp(1, BLOCK);
        let mut block = vec![0.0; most.min(n) * k];
        for begin in (0..n).step_by(most) {
            let rows = most.min(n - begin);
            let unpacked = &mut block[..rows * k];
            cpu.rows(unpacked, k, |row, into| {
                cpu.vectorised(|| self.unpack(weights, groups, begin + row, into));
            });
            let w = product::view(unpacked, rows as u32, self.k, self.k).reversed_axes();
            let a = product::view(&activations, self.m, self.k, self.k);
            let c = product::view_mut(c, m, n);
            product::multiply(cpu, a, w, c.slice_move(s![.., begin..begin + rows]));
        }
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let (mut values, mut scale) = (Vec::new(), Vec::new());
        for row in 0..m {
            for column in 0..n {
                let (mut sum, mut size) = (0.0, 0.0);
                for inner in 0..k {
                    let (step, zero) = self.scale(inputs[2], column, inner / self.group as usize);
                    let q = f64::from(self.weight(inputs[1], column, inner));
                    let x = f64::from(halves(inputs[0])[row * k + inner].to_f32());
                    sum += (q - f64::from(zero)) * f64::from(step) * x;
                    // Kernels may sum q x and zero x apart.
                    size += (q + f64::from(zero)) * f64::from(step.abs()) * x.abs();
                }
                values.push(sum);
                scale.push(size);
            }
        }
        vec![Expected { values, scale }]
    }

    fn operations(&self) -> u64 {
        2 * u64::from(self.m) * u64::from(self.n) * u64::from(self.k)
    }
}
