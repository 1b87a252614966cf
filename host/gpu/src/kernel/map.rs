use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Source, Words, check_length, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Steps on every element of an array of `f32`, fused: one pass over memory whatever their number.
///
/// Input `values` and, for each [`Step::Add`] and [`Step::Multiply`], another array of as many; output `result`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Map {
    /// Elements.
    pub length: u32,
    /// At most 16, in order.
    pub steps: Vec<Step>,
}

/// One step on an element `x`.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// `x + y` of the next input.
    Add,
    /// `x y` of the next input.
    Multiply,
    /// `x` times a number.
    Scale(f32),
    /// `x` plus a number.
    Offset(f32),
    /// `max(x, y)` of a number.
    AtLeast(f32),
    /// `min(x, y)` of a number.
    AtMost(f32),
    /// `max(x, 0)`.
    Relu,
    /// `x / (1 + exp(-x))`.
    Silu,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// The hyperbolic tangent.
    Tanh,
    /// `x / 2 (1 + tanh(√(2/π) (x + 0.044715 x³)))`.
    Gelu,
    /// `exp(x)`.
    Exp,
    /// The magnitude.
    Abs,
    /// The square root; of what is below 0 no number.
    SquareRoot,
    /// The error function, `2/√π ∫ exp(-t²) dt` from 0 to `x`.
    Erf,
}

const MOST_STEPS: usize = 16;
/// √(2/π).
const GELU: f32 = 0.797_884_6;

impl Step {
    const fn takes_input(self) -> bool {
        matches!(self, Self::Add | Self::Multiply)
    }

    #[inline(always)]
    fn apply(self, x: f32, y: f32) -> f32 {
        match self {
            Self::Add => x + y,
            Self::Multiply => x * y,
            Self::Scale(factor) => x * factor,
            Self::Offset(term) => x + term,
            Self::AtLeast(least) => x.max(least),
            Self::AtMost(most) => x.min(most),
            Self::Relu => x.max(0.0),
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            Self::Gelu => 0.5 * x * (1.0 + (GELU * (x + 0.044_715 * x * x * x)).tanh()),
            Self::Exp => x.exp(),
            Self::Abs => x.abs(),
            Self::SquareRoot => x.sqrt(),
            Self::Erf => libm::erff(x),
        }
    }

    fn exactly(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Multiply => x * y,
            Self::Scale(factor) => x * f64::from(factor),
            Self::Offset(term) => x + f64::from(term),
            Self::AtLeast(least) => x.max(f64::from(least)),
            Self::AtMost(most) => x.min(f64::from(most)),
            Self::Relu => x.max(0.0),
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Tanh => x.tanh(),
            Self::Gelu => {
                0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3))).tanh())
            }
            Self::Exp => x.exp(),
            Self::Abs => x.abs(),
            Self::SquareRoot => x.sqrt(),
            Self::Erf => libm::erf(x),
        }
    }

    /// The number that the caller gives with it.
    const fn number(self) -> Option<f32> {
        match self {
            Self::Scale(number) | Self::Offset(number) | Self::AtLeast(number) | Self::AtMost(number) => {
                Some(number)
            }
            _ => None,
        }
    }

    /// The step as WGSL; `y` is the expression of its input or number.
    fn wgsl(self, y: &str) -> String {
        match self {
            Self::Add | Self::Offset(_) => format!("x + {y}"),
            Self::Multiply | Self::Scale(_) => format!("x * {y}"),
            Self::AtLeast(_) => format!("max(x, {y})"),
            Self::AtMost(_) => format!("min(x, {y})"),
            Self::Relu => "max(x, 0.0)".into(),
            Self::Silu => "x / (1.0 + exp(-x))".into(),
            Self::Sigmoid => "1.0 / (1.0 + exp(-x))".into(),
            // Beyond this it is 1, and the exponentials within overflow.
            Self::Tanh => "tanh(clamp(x, -20.0, 20.0))".into(),
            Self::Gelu => {
                let inner = format!("clamp({GELU} * (x + 0.044715 * x * x * x), -20.0, 20.0)");
                format!("0.5 * x * (1.0 + tanh({inner}))")
            }
            Self::Exp => "exp(x)".into(),
            Self::Abs => "abs(x)".into(),
            Self::SquareRoot => "sqrt(x)".into(),
            Self::Erf => "error_function(x)".into(),
        }
    }

    /// The step as CUDA C++.
    fn cuda(self, y: &str) -> String {
        match self {
            Self::Add | Self::Offset(_) => format!("x + {y}"),
            Self::Multiply | Self::Scale(_) => format!("x * {y}"),
            Self::AtLeast(_) => format!("fmaxf(x, {y})"),
            Self::AtMost(_) => format!("fminf(x, {y})"),
            Self::Relu => "fmaxf(x, 0.0f)".into(),
            Self::Silu => "x / (1.0f + expf(-x))".into(),
            Self::Sigmoid => "1.0f / (1.0f + expf(-x))".into(),
            Self::Tanh => "tanhf(x)".into(),
            Self::Gelu => format!("0.5f * x * (1.0f + tanhf({GELU}f * (x + 0.044715f * x * x * x)))"),
            Self::Exp => "expf(x)".into(),
            Self::Abs => "fabsf(x)".into(),
            Self::SquareRoot => "sqrtf(x)".into(),
            Self::Erf => "erff(x)".into(),
        }
    }
}

impl Map {
    fn more_inputs(&self) -> usize {
        self.steps.iter().filter(|step| step.takes_input()).count()
    }

    fn numbers(&self) -> impl Iterator<Item = f32> {
        self.steps.iter().filter_map(|step| step.number())
    }

    /// One shader for this chain of steps, whatever its numbers: those are parameters.
    fn wgsl(&self) -> String {
        let inputs = 1 + self.more_inputs();
        let numbers: String = (0..self.numbers().count())
            .map(|place| format!(" number_{place}: f32,"))
            .collect();
        let mut text = format!(
            "struct Parameters {{ length: u32,{numbers} }}\n\
             @group(0) @binding(0) var<uniform> parameters: Parameters;\n"
        );
        let bindings = (0..inputs).map(|n| (n, "read")).chain([(inputs, "read_write")]);
        for (number, access) in bindings {
            // A `String` takes all that is written to it.
            let _ = writeln!(
                text,
                "@group(0) @binding({}) var<storage, {access}> array_{number}: array<f32>;",
                number + 1
            );
        }
        if self.steps.contains(&Step::Erf) {
            text.push_str(wgsl!("erf"));
        }
        text.push_str("fn elements() -> u32 { return parameters.length; }\nfn each(i: u32) {\n    var x = array_0[i];\n");
        for (step, place) in self.steps.iter().zip(self.places()) {
            let y = match place {
                Place::Number(place) => format!("parameters.number_{place}"),
                Place::Array(place) => format!("array_{place}[i]"),
            };
            let _ = writeln!(text, "    x = {};", step.wgsl(&y));
        }
        let _ = writeln!(text, "    array_{inputs}[i] = x;\n}}");
        text.push_str(wgsl!("each"));
        text
    }

    /// The same as CUDA C++.
    fn cuda(&self) -> String {
        let inputs = 1 + self.more_inputs();
        let mut text = "struct Parameters {\n    unsigned length;\n".to_owned();
        for place in 0..self.numbers().count() {
            let _ = writeln!(text, "    float number_{place};");
        }
        text.push_str("};\n\nstruct Buffers {\n");
        for number in 0..inputs {
            let _ = writeln!(text, "    const float *array_{number};");
        }
        let _ = writeln!(text, "    float *array_{inputs};\n}};\n");
        text.push_str(
            "static __device__ unsigned elements(const Parameters &parameters) { return parameters.length; }\n\n\
             static __device__ void each(const Parameters &parameters, const Buffers &buffers, unsigned i) {\n    \
             float x = buffers.array_0[i];\n",
        );
        for (step, place) in self.steps.iter().zip(self.places()) {
            let y = match place {
                Place::Number(place) => format!("parameters.number_{place}"),
                Place::Array(place) => format!("buffers.array_{place}[i]"),
            };
            let _ = writeln!(text, "    x = {};", step.cuda(&y));
        }
        let _ = writeln!(text, "    buffers.array_{inputs}[i] = x;\n}}\n");
        text.push_str(cuda!("each"));
        text
    }

    /// Where each step finds its other operand, if it has one.
    fn places(&self) -> impl Iterator<Item = Place> {
        let (mut arrays, mut numbers) = (0, 0..);
        self.steps.iter().map(move |step| {
            arrays += usize::from(step.takes_input());
            match step.number().and_then(|_| numbers.next()) {
                Some(place) => Place::Number(place),
                None => Place::Array(arrays),
            }
        })
    }
}

/// Where a step's other operand is.
enum Place {
    /// Among the parameters.
    Number(usize),
    /// Among the arrays, of which the first is what the steps are done to.
    Array(usize),
}

impl Describe for Map {
    fn check(&self) -> Result<(), GpuError> {
        check_length("map", "length", self.length)?;
        if self.steps.len() > MOST_STEPS || self.more_inputs() > 4 {
            return Err(GpuError::kernel(
                "map",
                "steps",
                self.steps.len(),
                "16 are the most, 4 of them with an input",
            ));
        }
        let finite = |step: &Step| step.number().is_none_or(f32::is_finite);
        match self.steps.iter().position(|step| !finite(step)) {
            Some(place) => Err(GpuError::kernel(
                "map",
                "steps",
                place,
                "its number has to be finite",
            )),
            None => Ok(()),
        }
    }

    fn arguments(&self) -> Vec<Argument> {
        let length = self.length as usize;
        let mut arguments = vec![Argument::input("values", Element::F32, length)];
        arguments.extend((0..self.more_inputs()).map(|_| Argument::input("other", Element::F32, length)));
        arguments.push(Argument::output("result", Element::F32, length));
        arguments
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        vec![Pass {
            name: "map",
            source: Source {
                wgsl: self.wgsl().into(),
                cuda: self.cuda().into(),
            },
            constants: vec![],
            parameters: std::iter::once(self.length)
                .chain(self.numbers().map(f32::to_bits))
                .collect(),
            bindings: (0..self.more_inputs() + 2).collect(),
            threads: EACH,
            workgroups: each(u64::from(self.length)),
        }]
    }

    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        const PART: usize = 4096;
        cpu.rows(floats_mut(&mut outputs[0]), PART, |part, result| {
            cpu.vectorised(|| {
                result.copy_from_slice(&floats(inputs[0])[part * PART..][..result.len()]);
                let mut next = 0;
                for step in &self.steps {
                    next += usize::from(step.takes_input());
                    match step.takes_input() {
                        true => {
                            let other = &floats(inputs[next])[part * PART..];
                            result
                                .iter_mut()
                                .zip(other)
                                .for_each(|(x, y)| *x = step.apply(*x, *y));
                        }
                        false => result.iter_mut().for_each(|x| *x = step.apply(*x, 0.0)),
                    }
                }
            });
        });
    }

    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let values = (0..self.length as usize).map(|place| {
            let mut next = 0;
            self.steps
                .iter()
                .fold(f64::from(floats(inputs[0])[place]), |x, step| {
                    next += usize::from(step.takes_input());
                    step.exactly(
                        x,
                        if step.takes_input() {
                            f64::from(floats(inputs[next])[place])
                        } else {
                            0.0
                        },
                    )
                })
        });
        vec![Expected::plain(values.collect())]
    }

    fn operations(&self) -> u64 {
        u64::from(self.length) * self.steps.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tune::CANDIDATES;

    /// A plugin that scales by another number each time compiles once.
    #[test]
    fn numbers_are_parameters_of_one_shader() {
        let pass = |factor: f32, term: f32| {
            let steps = vec![Step::Scale(factor), Step::Add, Step::Offset(term)];
            Map { length: 4, steps }.passes(CANDIDATES[0]).remove(0)
        };
        let (one, other) = (pass(0.5, 3.0), pass(-7.25, f32::MIN_POSITIVE));
        assert_eq!(one.wgsl(), other.wgsl());
        let numbers = |pass: Pass| {
            pass.parameters[1..]
                .iter()
                .map(|bits| f32::from_bits(*bits))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            (numbers(one), numbers(other)),
            (vec![0.5, 3.0], vec![-7.25, f32::MIN_POSITIVE])
        );
    }
}
