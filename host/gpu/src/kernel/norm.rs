use super::argument::floats_mut;
use super::pass::{EACH, Pass, grid};
use super::{Argument, Describe, Element, Expected, Words, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Every row of a matrix of `f32` brought to a common measure.
///
/// Input `values`, rows by columns, and for the two norms `gain` of `columns` (layer norm also `shift`); output `result`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Norm {
    /// Which measure.
    pub normalise: Normalise,
    /// Rows.
    pub rows: u32,
    /// Numbers of a row.
    pub columns: u32,
    /// Added to the variance or mean square, in millionths. Default 10.
    #[serde(default = "ten")]
    pub epsilon_millionths: u32,
}

/// What a row is brought to.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalise {
    /// Positive numbers that sum to 1: `exp(x) / Σ exp(x)`.
    Softmax,
    /// Mean 0 and variance 1, times the gain, plus the shift.
    Layer,
    /// Mean square 1, times the gain.
    RootMeanSquare,
}

const fn ten() -> u32 {
    10
}

impl Norm {
    fn epsilon(&self) -> f64 {
        f64::from(self.epsilon_millionths) * 1e-6
    }
}

impl Describe for Norm {
    fn check(&self) -> Result<(), GpuError> {
        check_shape(
            "norm",
            &[("rows", self.rows), ("columns", self.columns)],
            &[("values", u64::from(self.rows) * u64::from(self.columns))],
        )
    }

    fn arguments(&self) -> Vec<Argument> {
        let (columns, all) = (self.columns as usize, self.rows as usize * self.columns as usize);
        let mut arguments = vec![Argument::input("values", Element::F32, all)];
        if self.normalise != Normalise::Softmax {
            arguments.push(Argument::input("gain", Element::F32, columns));
        }
        if self.normalise == Normalise::Layer {
            arguments.push(Argument::input("shift", Element::F32, columns));
        }
        arguments.push(Argument::output("result", Element::F32, all));
        arguments
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "norm",
            source: source!("norm"),
            constants: vec![("NORMALISE", self.normalise as u32)],
            parameters: vec![self.rows, self.columns, (self.epsilon() as f32).to_bits()],
            bindings: match self.normalise {
                Normalise::Softmax => vec![0, 0, 0, 1],
                Normalise::Layer => vec![0, 1, 2, 3],
                Normalise::RootMeanSquare => vec![0, 1, 1, 2],
            },
            threads: EACH,
            workgroups: grid(u64::from(self.rows)),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let columns = self.columns as usize;
        let values = floats(inputs[0]);
        let gain = inputs.get(1).map(|gain| floats(gain)).unwrap_or_default();
        let shift = inputs.get(2).map(|shift| floats(shift)).unwrap_or_default();
        let count = self.columns as f32;
        cpu.rows(floats_mut(&mut outputs[0]), columns, |row, result| {
            cpu.vectorised(|| {
                let values = &values[row * columns..][..columns];
                match self.normalise {
                    Normalise::Softmax => {
                        let largest = values.iter().copied().fold(f32::MIN, f32::max);
                        let mut total = 0.0;
                        for (result, value) in result.iter_mut().zip(values) {
                            *result = (value - largest).exp();
                            total += *result;
                        }
                        result.iter_mut().for_each(|result| *result /= total);
                    }
                    Normalise::Layer => {
                        let mean = values.iter().sum::<f32>() / count;
                        let variance = values
                            .iter()
                            .map(|value| (value - mean) * (value - mean))
                            .sum::<f32>()
                            / count;
                        let factor = 1.0 / (variance + self.epsilon() as f32).sqrt();
                        for (((result, value), gain), shift) in
                            result.iter_mut().zip(values).zip(gain).zip(shift)
                        {
                            *result = (value - mean) * factor * gain + shift;
                        }
                    }
                    Normalise::RootMeanSquare => {
                        let square = values.iter().map(|value| value * value).sum::<f32>() / count;
                        let factor = 1.0 / (square + self.epsilon() as f32).sqrt();
                        for ((result, value), gain) in result.iter_mut().zip(values).zip(gain) {
                            *result = value * factor * gain;
                        }
                    }
                }
            });
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let columns = self.columns as usize;
        let number = |argument: usize, place: usize| f64::from(floats(inputs[argument])[place]);
        let mut results = Vec::new();
        for row in floats(inputs[0]).chunks(columns) {
            let row: Vec<f64> = row.iter().map(|value| f64::from(*value)).collect();
            let mean = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>() / f64::from(self.columns);
            match self.normalise {
                Normalise::Softmax => {
                    let largest = row.iter().copied().fold(f64::MIN, f64::max);
                    let total: f64 = row.iter().map(|value| (value - largest).exp()).sum();
                    results.extend(row.iter().map(|value| (value - largest).exp() / total));
                }
                Normalise::Layer => {
                    let middle = mean(&mut row.iter().copied());
                    let variance = mean(&mut row.iter().map(|value| (value - middle).powi(2)));
                    let factor = 1.0 / (variance + self.epsilon()).sqrt();
                    let values = row.iter().enumerate();
                    results.extend(values.map(|(place, value)| {
                        (value - middle) * factor * number(1, place) + number(2, place)
                    }));
                }
                Normalise::RootMeanSquare => {
                    let square = mean(&mut row.iter().map(|value| value.powi(2)));
                    let factor = 1.0 / (square + self.epsilon()).sqrt();
                    results.extend(
                        row.iter()
                            .enumerate()
                            .map(|(place, value)| value * factor * number(1, place)),
                    );
                }
            }
        }
        match self.normalise {
            // Its numbers are small: each is held against itself.
            Normalise::Softmax => {
                let scale = results.iter().map(|value| value.max(1e-6)).collect();
                vec![Expected {
                    values: results,
                    scale,
                }]
            }
            _ => vec![Expected::plain(results)],
        }
    }

    fn tolerance(&self) -> f64 {
        2e-5
    }

    fn operations(&self) -> u64 {
        5 * u64::from(self.rows) * u64::from(self.columns)
    }
}
