use super::argument::floats_mut;
use super::pass::{EACH, Pass, each};
use super::{Argument, Describe, Element, Expected, Words, check_length, check_shape, floats};
use crate::device::Cpu;
use crate::error::GpuError;
use crate::tune::Tile;
use serde::{Deserialize, Serialize};

/// Arithmetic of two tensors of `f32`, element by element, as NumPy and ONNX have it: the dimensions that one of them lacks in front, and
/// those of 1, go on and on along those of the other.
///
/// Inputs `first` and `second`; output `result`, of the sizes that [`Broadcast::sizes`] tells.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Broadcast {
    /// What is done to each two elements.
    pub arithmetic: Arithmetic,
    /// The sizes of the first, the outermost in front: at most 8. A single number has none.
    pub first: Vec<u32>,
    /// The sizes of the second.
    pub second: Vec<u32>,
}

/// What becomes of an element `x` of the first and one `y` of the second.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arithmetic {
    /// `x + y`.
    Add,
    /// `x - y`.
    Subtract,
    /// `x y`.
    Multiply,
    /// `x / y`.
    Divide,
}

/// The most dimensions of a tensor.
const MOST_SIZES: usize = 8;

/// Elements that one thread computes at a time.
const PART: usize = 4096;

/// A dimension of the result, or several that follow each other in both operands alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Axis {
    size: usize,
    /// How far the first goes on along it: 0 where it is the same all along.
    first: usize,
    second: usize,
}

impl Arithmetic {
    #[inline(always)]
    fn apply(self, x: f32, y: f32) -> f32 {
        match self {
            Self::Add => x + y,
            Self::Subtract => x - y,
            Self::Multiply => x * y,
            Self::Divide => x / y,
        }
    }

    fn exactly(self, x: f64, y: f64) -> f64 {
        match self {
            Self::Add => x + y,
            Self::Subtract => x - y,
            Self::Multiply => x * y,
            Self::Divide => x / y,
        }
    }
}

impl Broadcast {
    /// The sizes of the result; none where the two do not fit each other.
    pub fn sizes(&self) -> Option<Vec<u32>> {
        let sides = self.sides().map(|sides| match sides {
            (one, other) if one == other => Some(one),
            (1, size) | (size, 1) => Some(size),
            _ => None,
        });
        sides.collect()
    }

    /// The sizes of both along each dimension of the result: 1 where one lacks it.
    fn sides(&self) -> impl DoubleEndedIterator<Item = (u32, u32)> {
        let most = self.first.len().max(self.second.len());
        let side = move |sizes: &[u32], axis: usize| {
            let own = (axis + sizes.len()).checked_sub(most);
            own.map_or(1, |axis| sizes[axis])
        };
        (0..most).map(move |axis| (side(&self.first, axis), side(&self.second, axis)))
    }

    /// The dimensions of the result as both go on along them, the innermost first, and as few as may be.
    fn axes(&self) -> Vec<Axis> {
        let mut axes: Vec<Axis> = Vec::new();
        let (mut first, mut second) = (1, 1);
        for (one, other) in self.sides().rev() {
            let axis = Axis {
                size: one.max(other) as usize,
                first: if one == 1 { 0 } else { first },
                second: if other == 1 { 0 } else { second },
            };
            first *= one as usize;
            second *= other as usize;
            match axes.last_mut() {
                _ if axis.size == 1 => {}
                Some(inner)
                    if axis.first == inner.first * inner.size && axis.second == inner.second * inner.size =>
                {
                    inner.size *= axis.size;
                }
                _ => axes.push(axis),
            }
        }
        axes
    }

    fn elements(&self) -> usize {
        let sizes = self.sizes().unwrap_or_default();
        sizes.iter().map(|size| *size as usize).product()
    }
}

/// Where the two operands of an element of the result lie.
fn operands(axes: &[Axis], element: usize) -> (usize, usize) {
    let mut outer = element;
    let (mut first, mut second) = (0, 0);
    for axis in axes {
        let at = outer % axis.size;
        outer /= axis.size;
        first += at * axis.first;
        second += at * axis.second;
    }
    (first, second)
}

impl Describe for Broadcast {
    fn check(&self) -> Result<(), GpuError> {
        for (field, sizes) in [("first", &self.first), ("second", &self.second)] {
            if sizes.len() > MOST_SIZES {
                let must = format!("{MOST_SIZES} sizes are the most");
                return Err(GpuError::kernel("broadcast", field, sizes.len(), must));
            }
            sizes
                .iter()
                .try_for_each(|size| check_length("broadcast", field, *size))?;
        }
        let Some(sizes) = self.sizes() else {
            let apart = self
                .sides()
                .find(|(one, other)| one != other && *one != 1 && *other != 1);
            let (one, other) = apart.unwrap_or_default();
            let must = format!("it is 1, or {one} as in `first`");
            return Err(GpuError::kernel("broadcast", "second", other as usize, must));
        };
        let all = sizes
            .iter()
            .fold(1u64, |all, size| all.saturating_mul(u64::from(*size)));
        check_shape("broadcast", &[], &[("result", all)])
    }

    fn arguments(&self) -> Vec<Argument> {
        let words = |sizes: &[u32]| sizes.iter().map(|size| *size as usize).product();
        vec![
            Argument::input("first", Element::F32, words(&self.first)),
            Argument::input("second", Element::F32, words(&self.second)),
            Argument::output("result", Element::F32, self.elements()),
        ]
    }

    fn passes(&self, _tile: Tile) -> Vec<Pass> {
        let axes = self.axes();
        // The axes begin at a multiple of 16 bytes.
        let mut parameters = vec![self.elements() as u32, axes.len() as u32, 0, 0];
        for axis in &axes {
            parameters.extend([axis.size as u32, axis.first as u32, axis.second as u32, 0]);
        }
        parameters.resize(4 + 4 * MOST_SIZES, 0);
        vec![Pass {
            name: "broadcast",
            source: source!("broadcast", "each"),
            constants: vec![("ARITHMETIC", self.arithmetic as u32)],
            parameters,
            bindings: vec![0, 1, 2],
            threads: EACH,
            workgroups: each(self.elements() as u64),
        }]
    }

    /// Along the innermost axis each operand goes on by a step of its own, or stays.
    fn on_cpu(&self, cpu: &Cpu, inputs: &[&[u32]], outputs: &mut [Words]) {
        let (first, second) = (floats(inputs[0]), floats(inputs[1]));
        let axes = self.axes();
        let inner = axes.first().copied().unwrap_or(Axis {
            size: 1,
            first: 0,
            second: 0,
        });
        cpu.rows(floats_mut(&mut outputs[0]), PART, |part, result| {
            let mut done = 0;
            while done < result.len() {
                let place = part * PART + done;
                let run = (inner.size - place % inner.size).min(result.len() - done);
                let (one, other) = operands(&axes, place);
                for (step, value) in result[done..done + run].iter_mut().enumerate() {
                    let (x, y) = (
                        first[one + step * inner.first],
                        second[other + step * inner.second],
                    );
                    *value = self.arithmetic.apply(x, y);
                }
                done += run;
            }
        });
    }

    /// By the definition, dimension by dimension: none of them is taken together with others.
    fn reference(&self, inputs: &[&[u32]]) -> Vec<Expected> {
        let sizes = self.sizes().unwrap_or_default();
        let at = |operand: usize, own: &[u32], place: &[u32]| {
            let lacks = place.len() - own.len();
            let within = own.iter().zip(&place[lacks..]);
            let number = within.fold(0, |number, (size, place)| {
                number * *size as usize + if *size == 1 { 0 } else { *place as usize }
            });
            f64::from(floats(inputs[operand])[number])
        };
        let mut place = vec![0u32; sizes.len()];
        let mut values = Vec::with_capacity(self.elements());
        for _ in 0..self.elements() {
            let (x, y) = (at(0, &self.first, &place), at(1, &self.second, &place));
            values.push(self.arithmetic.exactly(x, y));
            // The next place: the last dimension goes on, and those before it where it is through.
            for (place, size) in place.iter_mut().zip(&sizes).rev() {
                *place += 1;
                if *place < *size {
                    break;
                }
                *place = 0;
            }
        }
        vec![Expected::plain(values)]
    }

    fn operations(&self) -> u64 {
        self.elements() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn of(first: &[u32], second: &[u32]) -> Broadcast {
        Broadcast {
            arithmetic: Arithmetic::Add,
            first: first.to_vec(),
            second: second.to_vec(),
        }
    }

    #[test]
    fn sizes_that_are_lacking_or_one_are_those_of_the_other() {
        assert_eq!(of(&[2, 3, 4], &[]).sizes(), Some(vec![2, 3, 4]));
        assert_eq!(of(&[3, 1], &[2, 1, 4]).sizes(), Some(vec![2, 3, 4]));
        assert_eq!(of(&[1], &[1, 1]).sizes(), Some(vec![1, 1]));
        assert_eq!(of(&[2, 3], &[2]).sizes(), None);
    }

    /// What goes on alike in both is one axis, so that equal shapes are one, and a channel's factor three.
    #[test]
    fn dimensions_that_go_on_alike_are_taken_together() {
        let axis = |size, first, second| Axis { size, first, second };
        assert_eq!(of(&[2, 3, 4], &[2, 3, 4]).axes(), [axis(24, 1, 1)]);
        assert_eq!(of(&[2, 3, 4], &[]).axes(), [axis(24, 1, 0)]);
        assert!(of(&[], &[]).axes().is_empty());
        let channels = [axis(20, 1, 0), axis(3, 20, 1), axis(2, 60, 0)];
        assert_eq!(of(&[2, 3, 4, 5], &[1, 3, 1, 1]).axes(), channels);
        assert_eq!(of(&[2, 3, 4, 5], &[3, 1, 1]).axes(), channels);
        assert_eq!(of(&[7, 1], &[1, 5]).axes(), [axis(5, 0, 1), axis(7, 1, 0)]);
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let refused = |kernel: Broadcast| Kernel::Broadcast(kernel).arguments().unwrap_err().to_string();
        let apart = refused(of(&[4, 2, 3], &[5, 3]));
        assert_eq!(apart, "broadcast: second is 5, but it is 1, or 2 as in `first`");
        assert!(refused(of(&[1; 9], &[])).contains("8 sizes are the most"));
        assert!(refused(of(&[], &[3, 0])).contains("second is 0"));
        let large = refused(of(&[1 << 20, 1], &[1 << 20]));
        assert!(large.contains("result"), "{large}");
    }
}
