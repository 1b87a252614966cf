use super::argument::floats_mut;
use super::pass::Pass;
use super::product::{multiply, view, view_mut};
use super::{Argument, Describe, Element, Expected, Words, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Many products of matrices of `f32` at once, each of its own two, as the heads of attention have them: `C = A B`, where each `A` is `m` by
/// `k` and each `B` `k` by `n`, all row-major, one after the other.
///
/// Inputs `a` and `b`; output `c`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct BatchedGemm {
    /// Products.
    pub batch: u32,
    /// Rows of each `A` and `C`.
    pub m: u32,
    /// Columns of each `B` and `C`.
    pub n: u32,
    /// Columns of each `A`, rows of each `B`.
    pub k: u32,
    /// Whether there is one `A` for all products. Default not.
    #[serde(default)]
    pub shares_a: bool,
    /// Whether there is one `B` for all products. Default not.
    #[serde(default)]
    pub shares_b: bool,
}

impl BatchedGemm {
    /// Elements from the matrix of one product to that of the next.
    const fn layers(&self) -> (u32, u32) {
        let a = if self.shares_a { 0 } else { self.m * self.k };
        let b = if self.shares_b { 0 } else { self.k * self.n };
        (a, b)
    }

    /// Elements of all matrices of these sides; of one where all products share it.
    fn words(&self, (rows, columns): (u32, u32), is_shared: bool) -> u64 {
        let batch = if is_shared { 1 } else { self.batch };
        u64::from(batch)
            .saturating_mul(u64::from(rows))
            .saturating_mul(u64::from(columns))
    }

    fn lengths(&self) -> [(&'static str, u64); 3] {
        [
            ("a", self.words((self.m, self.k), self.shares_a)),
            ("b", self.words((self.k, self.n), self.shares_b)),
            ("c", self.words((self.m, self.n), false)),
        ]
    }
}

impl Describe for BatchedGemm {
    fn check(&self) -> Result<(), GpuError> {
        check_shape(
            "batched-gemm",
            &[("batch", self.batch), ("m", self.m), ("n", self.n), ("k", self.k)],
            &self.lengths(),
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let [a, b, c] = self.lengths().map(|(_, words)| words as usize);
        vec![
            Argument::input("a", Element::F32, a),
            Argument::input("b", Element::F32, b),
            Argument::output("c", Element::F32, c),
        ]
    }

    fn passes(&self, tile: Tile) -> Vec<Pass> {
        let (a, b) = self.layers();
        vec![Pass {
            name: "batched-gemm",
            source: source!("batched_gemm", "tile"),
            constants: tile.constants(),
            parameters: vec![self.batch, self.m, self.n, self.k, a, b],
            bindings: vec![0, 1, 2],
            threads: tile.threads(),
            workgroups: tile.workgroups(self.m, self.n, self.batch),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (a, b) = (floats(inputs[0]), floats(inputs[1]));
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let (a_layer, b_layer) = self.layers();
        let products = floats_mut(&mut outputs[0]).chunks_mut(m * n);
        let products: Vec<(usize, &mut [f32])> = products.enumerate().collect();
        cpu.pieces(products, |(number, c)| {
            let a = &a[number * a_layer as usize..][..m * k];
            let b = &b[number * b_layer as usize..][..k * n];
            let (a, b) = (view(a, self.m, self.k, self.k), view(b, self.k, self.n, self.n));
            multiply(cpu, a, b, view_mut(c, m, n));
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let (a, b) = (floats(inputs[0]), floats(inputs[1]));
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let (a_layer, b_layer) = self.layers();
        let element = |place: usize| {
            let (number, row, column) = (place / (m * n), place / n % m, place % n);
            let (a, b) = (&a[number * a_layer as usize..], &b[number * b_layer as usize..]);
            let products = (0..k).map(|at| f64::from(a[row * k + at]) * f64::from(b[at * n + column]));
            products.fold((0.0, 0.0), |(sum, size), product| {
                (sum + product, size + product.abs())
            })
        };
        let (values, scale) = (0..self.batch as usize * m * n).map(element).unzip();
        vec![Expected { values, scale }]
    }

    fn operations(&self) -> u64 {
        2 * u64::from(self.batch) * u64::from(self.m) * u64::from(self.n) * u64::from(self.k)
    }
}
