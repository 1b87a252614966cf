use super::argument::{bytes, floats_mut};
use super::pass::{EACH, Pass, each, grid};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats, halves};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use half::f16;
use serde::{Deserialize, Serialize};

/// Numbers of `f32` in fewer bits, as updates travel (`karman_tensor::encode`).
///
/// Input `values`, rows by columns. Output of [`Format::F16`]: `codes`, two to a word. Outputs of [`Format::Int8`]: `scales`, one
/// per row, its largest magnitude over 127; `codes`, four to a word, each the number over the scale of its row, rounded.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Encode {
    /// Into what.
    pub format: Format,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row.
    pub columns: u32,
}

/// Numbers back from what [`Encode`] made of them: its outputs are the inputs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Decode {
    /// From what.
    pub format: Format,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row.
    pub columns: u32,
}

/// How a number is written in fewer bits.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Format {
    /// Half precision.
    F16,
    /// Eight bits, and a scale per row.
    Int8,
}

fn check(kernel: &str, rows: u32, columns: u32) -> Result<(), GpuError> {
    check_length(kernel, "columns", columns)?;
    check_shape(
        kernel,
        &[("rows", rows)],
        &[("values", u64::from(rows) * u64::from(columns))],
    )
}

fn codes(format: Format, elements: usize) -> (Element, usize) {
    match format {
        Format::F16 => (Element::F16, elements.div_ceil(2)),
        Format::Int8 => (Element::I8, elements.div_ceil(4)),
    }
}

#[inline(always)]
fn code(value: f32, scale: f32) -> i8 {
    let level = if scale > 0.0 { value / scale } else { 0.0 };
    level.round_ties_even().clamp(-127.0, 127.0) as i8
}

#[inline(always)]
fn scale(row: &[f32]) -> f32 {
    row.iter().fold(0.0f32, |most, value| most.max(value.abs())) / 127.0
}

impl Encode {
    fn elements(&self) -> usize {
        self.rows as usize * self.columns as usize
    }
}

impl Describe for Encode {
    fn check(&self) -> Result<(), GpuError> {
        check("encode", self.rows, self.columns)
    }

    fn arguments(&self) -> Vec<Argument> {
        let (element, words) = codes(self.format, self.elements());
        let mut arguments = vec![Argument::input("values", Element::F32, self.elements())];
        if self.format == Format::Int8 {
            arguments.push(Argument::output("scales", Element::F32, self.rows as usize));
        }
        arguments.push(Argument::output("codes", element, words));
        arguments
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        let parameters = vec![self.elements() as u32, self.rows, self.columns];
        let pass = |step: u32, bindings: Vec<usize>, workgroups| Pass {
            name: "encode",
            source: source!("encode"),
            constants: vec![("STEP", step)],
            parameters: parameters.clone(),
            bindings,
            threads: EACH,
            workgroups,
        };
        let words = each(codes(self.format, self.elements()).1 as u64);
        match self.format {
            Format::F16 => vec![pass(0, vec![0, 0, 1], words)],
            Format::Int8 => vec![
                pass(1, vec![0, 0, 1], grid(u64::from(self.rows))),
                pass(2, vec![0, 1, 2], words),
            ],
        }
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let values = floats(inputs[0]);
        match (self.format, outputs) {
            (Format::F16, [codes]) => {
                const PART: usize = 4096;
                cpu.rows(
                    bytemuck::cast_slice_mut::<u32, f16>(codes),
                    PART,
                    |part, codes: &mut [f16]| {
                        for (code, value) in codes.iter_mut().zip(&values[part * PART..]) {
                            *code = f16::from_f32(*value);
                        }
                    },
                );
            }
            (_, [scales, codes]) => {
                let columns = self.columns as usize;
                let codes = &mut bytemuck::cast_slice_mut::<u32, i8>(codes)[..self.elements()];
                cpu.rows(codes, columns, |row, codes: &mut [i8]| {
                    cpu.vectorised(|| {
                        let row = &values[row * columns..][..columns];
                        let scale = scale(row);
                        codes
                            .iter_mut()
                            .zip(row)
                            .for_each(|(place, value)| *place = code(*value, scale));
                    });
                });
                for (place, row) in floats_mut(scales).iter_mut().zip(values.chunks(columns)) {
                    *place = scale(row);
                }
            }
            _ => unreachable!("arguments() names the outputs"),
        }
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let values = floats(inputs[0]);
        let wide = |value: &f32| f64::from(*value);
        if self.format == Format::F16 {
            let mut codes: Vec<f64> = values.iter().map(wide).collect();
            codes.resize(codes.len().next_multiple_of(2), 0.0);
            return vec![Expected::plain(codes)];
        }
        let (mut scales, mut codes) = (Vec::new(), Vec::new());
        for row in values.chunks(self.columns as usize) {
            let most = row.iter().map(|value| wide(value).abs()).fold(0.0, f64::max);
            let scale = most / 127.0;
            let level = |value| if most > 0.0 { wide(value) / scale } else { 0.0 };
            codes.extend(row.iter().map(level));
            scales.push(scale);
        }
        codes.resize(codes.len().next_multiple_of(4), 0.0);
        // A code lies half a step from what it stands for at most; the arithmetic of single precision comes on top.
        let steps = vec![0.5005 / self.tolerance(); codes.len()];
        let exact = scales.iter().map(|scale| scale * 1e-3).collect();
        vec![
            Expected {
                values: scales,
                scale: exact,
            },
            Expected {
                values: codes,
                scale: steps,
            },
        ]
    }

    /// Half a unit in the last place of half precision, either way of rounding; half a step of 8 bits.
    fn tolerance(&self) -> f64 {
        1.0 / 1024.0
    }

    fn operations(&self) -> u64 {
        self.elements() as u64
    }
}

impl Decode {
    fn elements(&self) -> usize {
        self.rows as usize * self.columns as usize
    }
}

impl Describe for Decode {
    fn check(&self) -> Result<(), GpuError> {
        check("decode", self.rows, self.columns)
    }

    fn arguments(&self) -> Vec<Argument> {
        let (element, words) = codes(self.format, self.elements());
        let mut arguments = vec![];
        if self.format == Format::Int8 {
            arguments.push(Argument::input("scales", Element::F32, self.rows as usize));
        }
        arguments.push(Argument::input("codes", element, words));
        arguments.push(Argument::output("values", Element::F32, self.elements()));
        arguments
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "decode",
            source: source!("decode", "each"),
            constants: vec![("INT8", u32::from(self.format == Format::Int8))],
            parameters: vec![self.elements() as u32, self.columns],
            bindings: match self.format {
                Format::F16 => vec![0, 0, 1],
                Format::Int8 => vec![0, 1, 2],
            },
            threads: EACH,
            workgroups: each(self.elements() as u64),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let columns = self.columns as usize;
        let values = floats_mut(&mut outputs[0]);
        cpu.rows(values, columns, |row, values| {
            cpu.vectorised(|| match self.format {
                Format::F16 => {
                    let codes = &halves(inputs[0])[row * columns..];
                    values
                        .iter_mut()
                        .zip(codes)
                        .for_each(|(value, code)| *value = code.to_f32());
                }
                Format::Int8 => {
                    let (scale, codes) = (floats(inputs[0])[row], &bytes(inputs[1])[row * columns..]);
                    values
                        .iter_mut()
                        .zip(codes)
                        .for_each(|(value, code)| *value = f32::from(*code) * scale);
                }
            });
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let values = (0..self.elements()).map(|place| match self.format {
            Format::F16 => exactly(inputs[0][place / 2] >> (place % 2 * 16) & 0xffff),
            Format::Int8 => {
                let scale = f64::from(floats(inputs[0])[place / self.columns as usize]);
                let byte = inputs[1][place / 4] >> (place % 4 * 8) & 0xff;
                scale * (f64::from(byte) - if byte > 127 { 256.0 } else { 0.0 })
            }
        });
        vec![Expected::plain(values.collect())]
    }

    fn operations(&self) -> u64 {
        self.elements() as u64
    }
}

/// What the bits of half precision say (IEEE 754 binary16): nothing of the library that the processor's path uses.
pub(super) fn exactly(half: u32) -> f64 {
    let (sign, exponent, fraction) = (half >> 15, (half >> 10 & 31) as i32, f64::from(half & 0x3ff));
    let size = match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction > 0.0 => f64::NAN,
        31 => f64::INFINITY,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if sign == 1 { -size } else { size }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::f32_words;

    const INT8: Encode = Encode {
        format: Format::Int8,
        rows: 1,
        columns: 3,
    };

    #[test]
    fn codes_are_held_against_what_they_stand_for() {
        let expected = INT8.reference(&[&f32_words(&[0.3, -1.0, 0.0])]);
        assert_eq!(expected[0].values, [1.0 / 127.0]);
        let (first, exact) = (expected[1].values[0], f64::from(0.3f32) * 127.0);
        assert!((first - exact).abs() < 1e-9, "{first}");
        assert_eq!(expected[1].values[1..], [-127.0, 0.0, 0.0]);
        // The nearest code is right, its neighbours are not.
        let holds = |code| expected[1].error(&[code, -127.0, 0.0, 0.0]) <= INT8.tolerance();
        assert_eq!([37.0, 38.0, 39.0].map(holds), [false, true, false]);
    }

    #[test]
    fn every_half_is_read_as_the_library_reads_it() {
        for bits in 0..=u16::MAX {
            let (ours, theirs) = (exactly(u32::from(bits)), f16::from_bits(bits).to_f64());
            assert!(
                ours == theirs || ours.is_nan() && theirs.is_nan(),
                "{bits:#x}: {ours} {theirs}"
            );
        }
    }
}
