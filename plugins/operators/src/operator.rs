//! An operator that is kept, and what is asked of it.

use crate::convolution::{Geometry, convolve};
use crate::lanes::Four;
use crate::product::{Panels, multiply};

/// An operator with its weights, ready to run.
pub(crate) enum Operator {
    /// Times this matrix.
    Product {
        inner: usize,
        columns: usize,
        weights: Panels,
    },
    /// A convolution.
    Convolution { shape: Geometry, weights: Vec<f32> },
    /// The larger of a number and zero.
    Relu,
    /// The sum of two halves.
    Add,
}

/// No side, channel or kernel is larger.
const MOST: usize = 1 << 16;

impl Operator {
    /// `matmul INNER COLUMNS`, `conv IN OUT SIDE KERNEL STRIDE GROUPS`, `relu` or `add`. The error says what is wrong.
    pub(crate) fn read(described: &str, weights: Vec<f32>) -> Result<Self, String> {
        let mut words = described.split(' ');
        let name = words.next().unwrap_or_default();
        let sizes = words.map(size).collect::<Result<Vec<_>, _>>()?;
        match (name, &sizes[..]) {
            ("matmul", &[inner, columns]) => {
                expect("weights", &weights, &[inner, columns])?;
                let weights = Panels::pack(&weights, inner, columns);
                Ok(Self::Product {
                    inner,
                    columns,
                    weights,
                })
            }
            ("conv", &[channels_in, channels_out, side, kernel, stride, groups]) => {
                if channels_in % groups != 0 || channels_out % groups != 0 {
                    return Err(format!(
                        "{channels_in} and {channels_out} channels are not multiples of {groups} groups"
                    ));
                }
                let dims = [channels_out, channels_in / groups, kernel, kernel];
                expect("weights", &weights, &dims)?;
                let shape = Geometry {
                    channels_in,
                    channels_out,
                    side,
                    kernel,
                    stride,
                    groups,
                };
                Ok(Self::Convolution { shape, weights })
            }
            ("relu", []) => Ok(Self::Relu),
            ("add", []) => Ok(Self::Add),
            _ => Err(format!(
                "`{described}` is none of `matmul INNER COLUMNS`, `conv IN OUT SIDE KERNEL STRIDE GROUPS`, `relu`, `add`"
            )),
        }
    }

    /// What it makes of these numbers. The error says what is wrong with them.
    #[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
    pub(crate) fn run(&self, mut input: Vec<f32>) -> Result<Vec<f32>, String> {
        match self {
            Self::Product {
                inner,
                columns,
                weights,
            } => {
                if input.is_empty() || input.len() % inner != 0 {
                    return Err(format!("{} numbers are not rows of {inner}", input.len()));
                }
                let mut out = vec![0.0; input.len() / inner * columns];
                multiply(&input, weights, &mut out);
                Ok(out)
            }
            Self::Convolution { shape, weights } => {
                expect("the input", &input, &[shape.channels_in, shape.side, shape.side])?;
                Ok(convolve(shape, weights, &input))
            }
            Self::Relu => {
                relu(&mut input);
                Ok(input)
            }
            Self::Add => {
                if input.len() % 2 != 0 {
                    return Err(format!("{} numbers are not two halves", input.len()));
                }
                let half = input.split_off(input.len() / 2);
                add(&mut input, &half);
                Ok(input)
            }
        }
    }
}

fn size(word: &str) -> Result<usize, String> {
    let size = word
        .parse::<usize>()
        .ok()
        .filter(|size| (1..=MOST).contains(size));
    size.ok_or_else(|| format!("`{word}` is not a size from 1 to {MOST}"))
}

/// Whether there are exactly so many numbers. In 64 bits, where the sizes of an input fit even multiplied.
fn expect(what: &str, numbers: &[f32], dims: &[usize]) -> Result<(), String> {
    let expected = dims
        .iter()
        .fold(1_u64, |all, dim| all.saturating_mul(*dim as u64));
    match numbers.len() as u64 == expected {
        true => Ok(()),
        false => Err(format!("{what}: {} numbers instead of {expected}", numbers.len())),
    }
}

#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn relu(numbers: &mut [f32]) {
    let zero = Four::splat(0.0);
    let (fours, rest) = numbers.as_chunks_mut::<4>();
    for four in fours {
        *four = Four::load(four).or_larger(zero).store();
    }
    for number in rest {
        if *number < 0.0 {
            *number = 0.0;
        }
    }
}

#[cfg_attr(target_arch = "wasm32", target_feature(enable = "simd128"))]
fn add(numbers: &mut [f32], others: &[f32]) {
    let (fours, rest) = numbers.as_chunks_mut::<4>();
    let (other_fours, other_rest) = others.as_chunks::<4>();
    for (four, other) in fours.iter_mut().zip(other_fours) {
        *four = Four::load(four).plus(Four::load(other)).store();
    }
    for (number, other) in rest.iter_mut().zip(other_rest) {
        *number += other;
    }
}
