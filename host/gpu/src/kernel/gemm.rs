use super::argument::floats_mut;
use super::encode::exactly;
use super::panels::Panels;
use super::pass::Pass;
use super::product::{multiply, view, view_mut};
use super::{Argument, Describe, Element, Expected, Words, check_shape, floats, halves};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use half::f16;
use half::slice::HalfFloatSliceExt;
use ndarray::{ArrayView2, s};
use serde::{Deserialize, Serialize};

/// `C = activation(A B + bias)`: `A` is `m` by `k`, `B` `k` by `n`, all row-major `f32`; with [`Gemm::half`] `A` and `B` are `f16`.
///
/// Inputs `a`, `b` and, with [`Gemm::bias`], `bias` of `n`; output `c`. With one row it is a product of a vector and a matrix.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Gemm {
    /// Rows of `A` and `C`.
    pub m: u32,
    /// Columns of `B` and `C`.
    pub n: u32,
    /// Columns of `A`, rows of `B`.
    pub k: u32,
    /// Whether `B` is given transposed, `n` by `k`, as weights of a linear layer are.
    #[serde(default)]
    pub transposed: bool,
    /// Elements from one row of `A` to the next, at least `k`. Default 0: `k`.
    #[serde(default)]
    pub a_stride: u32,
    /// Elements from one row of `B`, as it is given, to the next. Default 0: no gap.
    #[serde(default)]
    pub b_stride: u32,
    /// Whether `A` and `B` are in half precision, two to a word: half the memory to read. Products and sums are taken in `f32` all the
    /// same, so that no GPU needs arithmetic of half precision.
    #[serde(default)]
    pub half: bool,
    /// Whether there is a third input, added to every row.
    #[serde(default)]
    pub bias: bool,
    /// What is done to every element at the end.
    #[serde(default)]
    pub activation: Activation,
}

/// What is done to every element of a product at the end.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

impl Activation {
    pub(crate) fn apply(self, value: f32) -> f32 {
        match self {
            Self::None => value,
            Self::Relu => value.max(0.0),
            Self::Silu => value / (1.0 + (-value).exp()),
        }
    }

    pub(super) fn exactly(self, value: f64) -> f64 {
        match self {
            Self::None => value,
            Self::Relu => value.max(0.0),
            Self::Silu => value / (1.0 + (-value).exp()),
        }
    }
}

/// Rows up to which a thread per column reads `B` once per row instead of in tiles.
const MOST_VECTORS: u32 = 4;

/// Columns of a workgroup of `gemv.wgsl`, and the parts that it cuts `k` into.
const VECTOR_COLUMNS: u32 = 64;
const VECTOR_PARTS: u32 = 4;

impl Gemm {
    pub(super) fn a_row(&self) -> u32 {
        if self.a_stride == 0 { self.k } else { self.a_stride }
    }

    fn b_rows(&self) -> u32 {
        if self.transposed { self.n } else { self.k }
    }

    fn b_width(&self) -> u32 {
        if self.transposed { self.k } else { self.n }
    }

    pub(super) fn b_row(&self) -> u32 {
        if self.b_stride == 0 {
            self.b_width()
        } else {
            self.b_stride
        }
    }

    /// Elements between neighbours of one column, and of one row, of `B`.
    fn b_steps(&self) -> (u32, u32) {
        if self.transposed {
            (1, self.b_row())
        } else {
            (self.b_row(), 1)
        }
    }

    fn a_length(&self) -> u64 {
        length(self.m, self.a_row(), self.k)
    }

    fn b_length(&self) -> u64 {
        length(self.b_rows(), self.b_row(), self.b_width())
    }

    fn matrix(&self, name: &'static str, length: u64) -> Argument {
        match self.half {
            true => Argument::input(name, Element::F16, length.div_ceil(2) as usize),
            false => Argument::input(name, Element::F32, length as usize),
        }
    }
}

/// Elements of a matrix whose last row has no gap behind it.
fn length(rows: u32, stride: u32, width: u32) -> u64 {
    u64::from(rows.saturating_sub(1)) * u64::from(stride) + u64::from(width)
}

impl Describe for Gemm {
    fn check(&self) -> Result<(), GpuError> {
        let (m, n) = (u64::from(self.m), u64::from(self.n));
        check_shape(
            "gemm",
            &[
                ("m", self.m),
                ("n", self.n),
                ("k", self.k),
                ("a-stride", self.a_row()),
                ("b-stride", self.b_row()),
            ],
            &[("a", self.a_length()), ("b", self.b_length()), ("c", m * n)],
        )?;
        for (name, stride, width) in [
            ("a-stride", self.a_row(), self.k),
            ("b-stride", self.b_row(), self.b_width()),
        ] {
            if stride < width {
                return Err(GpuError::kernel(
                    "gemm",
                    name,
                    stride as usize,
                    format!("a row has {width} elements"),
                ));
            }
        }
        Ok(())
    }

    fn arguments(&self) -> Vec<Argument> {
        let mut arguments = vec![
            self.matrix("a", self.a_length()),
            self.matrix("b", self.b_length()),
        ];
        if self.bias {
            arguments.push(Argument::input("bias", Element::F32, self.n as usize));
        }
        arguments.push(Argument::output(
            "c",
            Element::F32,
            self.m as usize * self.n as usize,
        ));
        arguments
    }

    fn passes(&self, tile: Tile) -> Vec<Pass> {
        let (k_step, n_step) = self.b_steps();
        let bindings = if self.bias {
            vec![0, 1, 2, 3]
        } else {
            vec![0, 1, 1, 2]
        };
        let parameters = vec![
            self.m,
            self.n,
            self.k,
            self.a_row(),
            k_step,
            n_step,
            u32::from(self.bias),
            self.activation as u32,
        ];
        if self.m <= MOST_VECTORS && n_step == 1 {
            return vec![Pass {
                name: "gemv",
                source: match self.half {
                    true => source!("gemm_head", "gemm_half", "gemv"),
                    false => source!("gemm_head", "gemm_single", "gemv"),
                },
                constants: vec![("COLUMNS", VECTOR_COLUMNS), ("PARTS", VECTOR_PARTS)],
                parameters,
                bindings,
                threads: [VECTOR_COLUMNS, VECTOR_PARTS, 1],
                workgroups: [self.n.div_ceil(VECTOR_COLUMNS), self.m, 1],
            }];
        }
        vec![Pass {
            name: "gemm",
            source: match self.half {
                true => source!("gemm_head", "gemm_half", "gemm", "tile"),
                false => source!("gemm_head", "gemm_single", "gemm", "tile"),
            },
            constants: tile.constants(),
            parameters,
            bindings,
            threads: tile.threads(),
            workgroups: tile.workgroups(self.m, self.n, 1),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let c = floats_mut(&mut outputs[0]);
        if self.half {
            let a = halves(inputs[0])[..self.a_length() as usize].to_f32_vec();
            self.half_on_cpu(cpu, &a, halves(inputs[1]), c);
        } else {
            self.single_on_cpu(cpu, floats(inputs[0]), floats(inputs[1]), c);
        }
        self.finish(cpu, inputs, c);
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let number = |argument: usize, place: u32| match self.half {
            true => exactly(inputs[argument][place as usize / 2] >> (place % 2 * 16) & 0xffff),
            false => f64::from(floats(inputs[argument])[place as usize]),
        };
        let (k_step, n_step) = self.b_steps();
        let (mut values, mut scale) = (Vec::new(), Vec::new());
        for row in 0..self.m {
            for column in 0..self.n {
                let (mut sum, mut size) = (0.0, 0.0);
                for k in 0..self.k {
                    let left = number(0, row * self.a_row() + k);
                    let product = left * number(1, k * k_step + column * n_step);
                    sum += product;
                    size += product.abs();
                }
                let bias = if self.bias {
                    f64::from(floats(inputs[2])[column as usize])
                } else {
                    0.0
                };
                values.push(self.activation.exactly(sum + bias));
                scale.push(size + bias.abs());
            }
        }
        vec![Expected { values, scale }]
    }

    fn operations(&self) -> u64 {
        2 * u64::from(self.m) * u64::from(self.n) * u64::from(self.k)
    }
}

/// The most numbers of `B` that are widened at once.
const MOST_WIDENED: usize = 1 << 20;

impl Gemm {
    /// `B` of single precision as the processor reads it, for many products with it; none where time was over before it was laid out.
    pub(crate) fn panels(&self, cpu: &Cpu, b: &[u32]) -> Option<Panels> {
        Panels::new(cpu, self.view_of_b(floats(b)))
    }

    /// Bytes of `B` when it is laid out.
    pub(crate) const fn bytes_of_panels(&self) -> usize {
        Panels::bytes(self.k as usize, self.n as usize)
    }

    /// The product on the processor, by `B` as it was laid out.
    pub(crate) fn with_panels(&self, cpu: &Cpu, inputs: &[&[u32]], panels: &Panels) -> Words {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let mut output = vec![0; m * n];
        let (a, c) = (floats(inputs[0]), floats_mut(&mut output));
        if self.m <= MOST_VECTORS {
            for (a, c) in a.chunks(self.a_row() as usize).zip(c.chunks_mut(n)) {
                panels.multiply_vector(cpu, &a[..k], c);
            }
        } else {
            panels.multiply(cpu, view(a, self.m, self.k, self.a_row()), view_mut(c, m, n));
        }
        self.finish(cpu, inputs, c);
        output
    }

    /// Adds the bias, and applies the activation.
    fn finish(&self, cpu: &Cpu, inputs: &[&[u32]], c: &mut [f32]) {
        let bias = self.bias.then(|| floats(inputs[2]));
        if bias.is_none() && self.activation == Activation::None {
            return;
        }
        cpu.rows(c, self.n as usize, |_, row| {
            for (column, value) in row.iter_mut().enumerate() {
                *value = self
                    .activation
                    .apply(*value + bias.map_or(0.0, |bias| bias[column]));
            }
        });
    }

    fn view_of_b<'a>(&self, b: &'a [f32]) -> ArrayView2<'a, f32> {
        let b = view(b, self.b_rows(), self.b_width(), self.b_row());
        if self.transposed { b.reversed_axes() } else { b }
    }

    fn single_on_cpu(&self, cpu: &Cpu, a: &[f32], b: &[f32], c: &mut [f32]) {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        if self.m <= MOST_VECTORS {
            for (a, c) in a.chunks(self.a_row() as usize).zip(c.chunks_mut(n)) {
                self.vector_on_cpu(cpu, &a[..k], b, c);
            }
        } else {
            let a = view(a, self.m, self.k, self.a_row());
            multiply(cpu, a, self.view_of_b(b), view_mut(c, m, n));
        }
    }

    /// Half precision is widened some columns of `B` at a time: all of it would take twice its memory once more.
    fn half_on_cpu(&self, cpu: &Cpu, a: &[f32], b: &[f16], c: &mut [f32]) {
        let (m, n, k) = (self.m as usize, self.n as usize, self.k as usize);
        let stride = self.b_row() as usize;
        let most = (MOST_WIDENED / k).clamp(1, n);
        let mut block = vec![0.0f32; most * k];
        for begin in (0..n).step_by(most) {
            if cpu.is_late() {
                return;
            }
            let columns = most.min(n - begin);
            let (rows, width) = if self.transposed {
                (columns, k)
            } else {
                (k, columns)
            };
            let widened = &mut block[..rows * width];
            cpu.rows(widened, width, |row, into| {
                let at = match self.transposed {
                    true => (begin + row) * stride,
                    false => row * stride + begin,
                };
                b[at..][..width].convert_to_f32_slice(into);
            });
            let part = view(widened, rows as u32, width as u32, width as u32);
            let part = if self.transposed {
                part.reversed_axes()
            } else {
                part
            };
            let a = view(a, self.m, self.k, self.a_row());
            let c = view_mut(c, m, n).slice_move(s![.., begin..begin + columns]);
            multiply(cpu, a, part, c);
        }
    }
}

/// Columns that one thread computes at a time of a product with a vector, at most: their sums stay in the first-level cache, and the rows
/// of the matrix are read in long pieces.
const COLUMNS: usize = 4096;

/// Rows of `B` that are added at once.
const ROWS: usize = 4;

impl Gemm {
    /// One row of `A` times `B`, which is read once and where it is: packing it, as a product of matrices does, would cost more than
    /// the arithmetic.
    fn vector_on_cpu(&self, cpu: &Cpu, a: &[f32], b: &[f32], c: &mut [f32]) {
        let stride = self.b_row() as usize;
        let width = c.len().div_ceil(cpu.threads()).next_multiple_of(LANES);
        let width = width.min(COLUMNS);
        cpu.rows(c, width, |part, c| {
            cpu.vectorised(|| match self.transposed {
                true => {
                    for (row, c) in c.iter_mut().enumerate() {
                        *c = dot(a, &b[(part * width + row) * stride..][..a.len()]);
                    }
                }
                false => {
                    let row = |k: usize| &b[k * stride + part * width..][..c.len()];
                    let (fours, rest) = a.as_chunks::<ROWS>();
                    let mut sums = [0.0; COLUMNS];
                    for (number, [w, x, y, z]) in fours.iter().enumerate() {
                        let [one, two, three, four] = [0, 1, 2, 3].map(|place| row(ROWS * number + place));
                        for column in 0..c.len() {
                            sums[column] +=
                                (w * one[column] + x * two[column]) + (y * three[column] + z * four[column]);
                        }
                    }
                    for (number, x) in rest.iter().enumerate() {
                        let row = row(ROWS * fours.len() + number);
                        sums.iter_mut()
                            .zip(row)
                            .for_each(|(sum, value)| *sum += x * value);
                    }
                    c.copy_from_slice(&sums[..c.len()]);
                }
            });
        });
    }
}

/// Sums of this many run beside each other: the compiler may not reorder one.
const LANES: usize = 16;

#[inline(always)]
fn dot(one: &[f32], two: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let (ones, one) = one.as_chunks::<LANES>();
    let (twos, two) = two.as_chunks::<LANES>();
    for (one, two) in ones.iter().zip(twos) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * two[lane];
        }
    }
    let rest: f32 = one.iter().zip(two).map(|(one, two)| one * two).sum();
    sums.iter().sum::<f32>() + rest
}
