use super::argument::bytes;
use super::pass::{Pass, grid};
use super::{Argument, Describe, Element, Expected, Words, check_shape};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// `C = A Bᵀ` of 8-bit integers with sums of 32 bits: exact, as quantised networks want it.
///
/// Inputs `a`, `m` by `k`, and `b`, `n` by `k`, four to a word along `k`; output `c`, `m` by `n` of `i32`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IntegerGemm {
    /// Rows of `A`.
    pub m: u32,
    /// Rows of `B`.
    pub n: u32,
    /// What is summed over; a multiple of 4, at most 2¹⁶ so that no sum overflows.
    pub k: u32,
}

/// Rows and columns of a workgroup's tile, and words of the inner dimension at a time.
const TILE: u32 = 16;

impl Describe for IntegerGemm {
    fn check(&self) -> Result<(), GpuError> {
        let (m, n, k) = (u64::from(self.m), u64::from(self.n), u64::from(self.k));
        check_shape(
            "integer-gemm",
            &[("m", self.m), ("n", self.n), ("k", self.k)],
            &[("a", m * k / 4), ("b", n * k / 4), ("c", m * n)],
        )?;
        match self.k.is_multiple_of(4) && self.k <= 1 << 16 {
            true => Ok(()),
            false => {
                let must = "it is a multiple of 4 and at most 65536";
                Err(GpuError::kernel("integer-gemm", "k", self.k as usize, must))
            }
        }
    }

    fn arguments(&self) -> Vec<Argument> {
        let (m, n, words) = (self.m as usize, self.n as usize, self.k as usize / 4);
        vec![
            Argument::input("a", Element::I8, m * words),
            Argument::input("b", Element::I8, n * words),
            Argument::output("c", Element::I32, m * n),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "integer-gemm",
            source: source!("integer_gemm"),
            constants: vec![("TILE", TILE)],
            parameters: vec![self.m, self.n, self.k / 4],
            bindings: vec![0, 1, 2],
            threads: [TILE, TILE, 1],
            workgroups: grid(u64::from(self.n.div_ceil(TILE)) * u64::from(self.m.div_ceil(TILE))),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (n, k) = (self.n as usize, self.k as usize);
        let (a, b) = (bytes(inputs[0]), bytes(inputs[1]));
        let c: &mut [i32] = bytemuck::cast_slice_mut(&mut outputs[0]);
        cpu.rows(c, n, |row, c| {
            cpu.vectorised(|| {
                let a = &a[row * k..][..k];
                for (c, b) in c.iter_mut().zip(b.chunks(k)) {
                    *c = a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum();
                }
            });
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let k = self.k as usize;
        let (a, b) = (bytes(inputs[0]), bytes(inputs[1]));
        let dot = |a: &[i8], b: &[i8]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
        let rows = a.chunks(k).flat_map(|a| b.chunks(k).map(move |b| dot(a, b)));
        vec![Expected::plain(rows.collect())]
    }

    fn tolerance(&self) -> f64 {
        0.0
    }

    fn operations(&self) -> u64 {
        2 * u64::from(self.m) * u64::from(self.n) * u64::from(self.k)
    }
}
