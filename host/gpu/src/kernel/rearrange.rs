use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Elements of an array of `f32` in another order: along each dimension of the result, how far the array goes on. Transposed tensors, parts
/// of them, turned around or every second element, and elements that stand there more than once.
///
/// Input `values`; output `result`, of these sizes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Rearrange {
    /// Elements of the array.
    pub length: u32,
    /// Where in it the first element of the result lies. Default 0.
    #[serde(default)]
    pub begin: u32,
    /// The sizes of the result, the outermost in front: at most 8.
    pub sizes: Vec<u32>,
    /// For each of them how many elements of the array lie from one place to the next: 0 where it is the same all along, below 0 where it
    /// goes backwards.
    pub steps: Vec<i32>,
}

/// The most dimensions of a result.
const MOST_SIZES: usize = 8;

/// Elements that one thread copies at a time.
const PART: usize = 4096;

/// A dimension of the result, or several that follow each other in the array alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Axis {
    size: usize,
    step: isize,
}

impl Rearrange {
    /// The dimensions of the result, the innermost first, and as few as may be.
    fn axes(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::new();
        for (size, step) in self.sizes.iter().zip(&self.steps).rev() {
            let axis = Axis {
                size: *size as usize,
                step: *step as isize,
            };
            match axes.last_mut() {
                _ if axis.size == 1 => {}
                Some(inner) if axis.step == inner.step * inner.size as isize => inner.size *= axis.size,
                _ => axes.push(axis),
            }
        }
        axes
    }

    fn elements(&self) -> usize {
        self.sizes.iter().map(|size| *size as usize).product()
    }

    /// The first and the last element of the array that the result has.
    fn span(&self) -> (i64, i64) {
        let begin = i64::from(self.begin);
        let along = self.sizes.iter().zip(&self.steps);
        along.fold((begin, begin), |(first, last), (size, step)| {
            let way = i64::from(*step) * (i64::from(*size) - 1);
            (first + way.min(0), last + way.max(0))
        })
    }

    /// Where an element of the result lies.
    fn place(&self, axes: &[Axis], element: usize) -> usize {
        let (mut outer, mut at) = (element, self.begin as isize);
        for axis in axes {
            at += (outer % axis.size) as isize * axis.step;
            outer /= axis.size;
        }
        // `check` has seen that all of them lie in the array.
        at.unsigned_abs()
    }
}

impl Describe for Rearrange {
    fn check(&self) -> Result<(), GpuError> {
        check_length("rearrange", "length", self.length)?;
        let dimensions = self.sizes.len();
        if dimensions > MOST_SIZES {
            let must = format!("{MOST_SIZES} sizes are the most");
            return Err(GpuError::kernel("rearrange", "sizes", dimensions, must));
        }
        if self.steps.len() != dimensions {
            let must = format!("there are {dimensions}, one for each size");
            return Err(GpuError::kernel("rearrange", "steps", self.steps.len(), must));
        }
        let mut all = 1u64;
        for size in &self.sizes {
            check_length("rearrange", "sizes", *size)?;
            all = all.saturating_mul(u64::from(*size));
        }
        check_shape("rearrange", &[], &[("result", all)])?;
        match self.span() {
            (0.., last) if last < i64::from(self.length) => Ok(()),
            (first, last) => {
                let must = format!("the result would take the elements from {first} to {last}");
                Err(GpuError::kernel(
                    "rearrange",
                    "length",
                    self.length as usize,
                    must,
                ))
            }
        }
    }

    fn arguments(&self) -> Vec<Argument> {
        vec![
            Argument::input("values", Element::F32, self.length as usize),
            Argument::output("result", Element::F32, self.elements()),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        let axes = self.axes();
        // The axes begin at a multiple of 16 bytes.
        let mut parameters = vec![self.elements() as u32, axes.len() as u32, self.begin, 0];
        for axis in &axes {
            // Backwards wraps around, and comes out where it should.
            parameters.extend([axis.size as u32, (axis.step as i32).cast_unsigned(), 0, 0]);
        }
        parameters.resize(4 + 4 * MOST_SIZES, 0);
        vec![Pass {
            name: "rearrange",
            source: source!("rearrange", "each"),
            constants: vec![],
            parameters,
            bindings: vec![0, 1],
            threads: EACH,
            workgroups: each(self.elements() as u64),
        }]
    }

    /// Along the innermost axis the array goes on by the same step.
    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let values = floats(inputs[0]);
        let axes = self.axes();
        let inner = axes.first().copied().unwrap_or(Axis { size: 1, step: 0 });
        cpu.rows(floats_mut(&mut outputs[0]), PART, |part, result| {
            let mut done = 0;
            while done < result.len() {
                let place = part * PART + done;
                let run = (inner.size - place % inner.size).min(result.len() - done);
                let begin = self.place(&axes, place);
                let run = &mut result[done..done + run];
                match inner.step {
                    1 => run.copy_from_slice(&values[begin..][..run.len()]),
                    step => {
                        for (number, value) in run.iter_mut().enumerate() {
                            *value = values[begin.wrapping_add_signed(number as isize * step)];
                        }
                    }
                }
                done += run.len();
            }
        });
    }

    /// By the definition, dimension by dimension: none of them is taken together with others.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let values = floats(inputs[0]);
        let mut place = vec![0u32; self.sizes.len()];
        let mut result = Vec::with_capacity(self.elements());
        for _ in 0..self.elements() {
            let along = place.iter().zip(&self.steps);
            let at = along.fold(i64::from(self.begin), |at, (place, step)| {
                at + i64::from(*place) * i64::from(*step)
            });
            result.push(f64::from(values[at as usize]));
            // The next place: the last dimension goes on, and those before it where it is through.
            for (place, size) in place.iter_mut().zip(&self.sizes).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
        }
        vec![Expected::plain(result)]
    }

    /// A copy: nothing is computed, and it is exact.
    fn tolerance(&self) -> f64 {
        0.0
    }

    fn operations(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn of(length: u32, begin: u32, axes: &[(u32, i32)]) -> Rearrange {
        Rearrange {
            length,
            begin,
            sizes: axes.iter().map(|(size, _)| *size).collect(),
            steps: axes.iter().map(|(_, step)| *step).collect(),
        }
    }

    #[test]
    fn dimensions_that_go_on_alike_are_taken_together() {
        let axis = |size, step| Axis { size, step };
        assert_eq!(of(24, 0, &[(2, 12), (3, 4), (4, 1)]).axes(), [axis(24, 1)]);
        assert_eq!(
            of(24, 0, &[(4, 1), (1, 7), (6, 4)]).axes(),
            [axis(6, 4), axis(4, 1)]
        );
        assert_eq!(
            of(3, 0, &[(2, 0), (5, 0), (3, 1)]).axes(),
            [axis(3, 1), axis(10, 0)]
        );
        assert!(of(1, 0, &[]).axes().is_empty());
    }

    #[test]
    fn what_would_lie_outside_of_the_array_is_refused() {
        let arguments = |kernel: Rearrange| Kernel::Rearrange(kernel).arguments();
        assert!(arguments(of(12, 11, &[(3, -4), (4, -1)])).is_ok());
        for (kernel, says) in [
            (of(12, 10, &[(3, -4), (4, -1)]), "from -1 to 10"),
            (of(12, 1, &[(12, 1)]), "from 1 to 12"),
            (of(12, 0, &[(0, 1)]), "sizes is 0"),
            (of(12, 0, &[(1, 1); 9]), "8 sizes are the most"),
            (of(1, 0, &[(1 << 28, 0), (2, 0)]), "result"),
        ] {
            let refused = arguments(kernel).unwrap_err().to_string();
            assert!(refused.contains(says), "{refused}");
        }
    }
}
