//! What may differ between the rows and the columns of an image.

use serde::{Deserialize, Serialize};
use std::iter::StepBy;
use std::ops::Range;

/// A number along the rows of an image and one along its columns. As text one number for both, or `[rows, columns]`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "SidesText", into = "SidesText")]
pub struct Sides {
    /// From row to row.
    pub rows: u32,
    /// From column to column.
    pub columns: u32,
}

/// How far an image is thought to go on beyond each of its edges. As text one number for all four, or `[top, left, bottom, right]`, as
/// ONNX has them.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "PaddingText", into = "PaddingText")]
pub struct Padding {
    /// Rows above the image.
    pub top: u32,
    /// Columns before it.
    pub left: u32,
    /// Rows below it.
    pub bottom: u32,
    /// Columns after it.
    pub right: u32,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "one number, or two: [rows, columns]")]
enum SidesText {
    Same(u32),
    Each([u32; 2]),
}

#[derive(Deserialize, Serialize)]
#[serde(untagged, expecting = "one number, or four: [top, left, bottom, right]")]
enum PaddingText {
    Same(u32),
    Each([u32; 4]),
}

impl Sides {
    /// The same for both.
    pub const fn both(size: u32) -> Self {
        Self {
            rows: size,
            columns: size,
        }
    }

    /// One for both: what is left out.
    pub(super) const fn one() -> Self {
        Self::both(1)
    }
}

impl Padding {
    /// The same on all four sides.
    pub const fn all(size: u32) -> Self {
        Self {
            top: size,
            left: size,
            bottom: size,
            right: size,
        }
    }

    /// The largest of the four.
    pub(super) fn most(&self) -> u32 {
        self.top.max(self.left).max(self.bottom).max(self.right)
    }
}

impl From<SidesText> for Sides {
    fn from(text: SidesText) -> Self {
        match text {
            SidesText::Same(size) => Self::both(size),
            SidesText::Each([rows, columns]) => Self { rows, columns },
        }
    }
}

impl From<Sides> for SidesText {
    fn from(Sides { rows, columns }: Sides) -> Self {
        match rows == columns {
            true => Self::Same(rows),
            false => Self::Each([rows, columns]),
        }
    }
}

impl From<PaddingText> for Padding {
    fn from(text: PaddingText) -> Self {
        match text {
            PaddingText::Same(size) => Self::all(size),
            PaddingText::Each([top, left, bottom, right]) => Self {
                top,
                left,
                bottom,
                right,
            },
        }
    }
}

impl From<Padding> for PaddingText {
    fn from(padding: Padding) -> Self {
        match padding == Padding::all(padding.top) {
            true => Self::Same(padding.top),
            false => Self::Each([padding.top, padding.left, padding.bottom, padding.right]),
        }
    }
}

/// One side of an image under a kernel that goes along it: what convolutions and pools have in common.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    /// Pixels of the image.
    size: u32,
    /// Taps of the kernel.
    kernel: u32,
    /// Pixels from one application to the next.
    stride: u32,
    /// Pixels from one tap to the next.
    dilation: u32,
    /// Pixels that are thought to lie before the image, and after it.
    before: u32,
    after: u32,
}

/// The rows and the columns of an image of this height and width under a kernel of that.
pub(super) const fn lines(
    image: (u32, u32),
    kernel: (u32, u32),
    stride: Sides,
    dilation: Sides,
    padding: Padding,
) -> (Line, Line) {
    let rows = Line {
        size: image.0,
        kernel: kernel.0,
        stride: stride.rows,
        dilation: dilation.rows,
        before: padding.top,
        after: padding.bottom,
    };
    let columns = Line {
        size: image.1,
        kernel: kernel.1,
        stride: stride.columns,
        dilation: dilation.columns,
        before: padding.left,
        after: padding.right,
    };
    (rows, columns)
}

impl Line {
    /// Pixels from the first tap to the last, both among them.
    const fn reach(self) -> u32 {
        self.dilation
            .saturating_mul(self.kernel.saturating_sub(1))
            .saturating_add(1)
    }

    /// Applications of the kernel; none where it reaches beyond the image with its padding.
    pub(super) const fn extent(self) -> u32 {
        let size = self.size.saturating_add(self.before).saturating_add(self.after);
        match size.checked_sub(self.reach()) {
            Some(room) if self.stride > 0 => room / self.stride + 1,
            _ => 0,
        }
    }

    /// Whether a tap of every application lies on the image: the padding is smaller than the kernel, and no gap between two taps is wider
    /// than the image where one of them may lie before it.
    pub(super) const fn is_always_on_it(self) -> bool {
        let reach = self.reach();
        self.before < reach && self.after < reach && (self.before == 0 || self.dilation <= self.size)
    }

    /// The pixel under a tap; none in the padding.
    pub(super) fn pixel(self, application: usize, tap: usize) -> Option<usize> {
        let along = application * self.stride as usize + tap * self.dilation as usize;
        let at = along.checked_sub(self.before as usize)?;
        (at < self.size as usize).then_some(at)
    }

    /// All pixels under an application of the kernel, in order.
    pub(super) fn pixels(self, application: usize) -> StepBy<Range<usize>> {
        let [begin, before, dilation] = [
            application * self.stride as usize,
            self.before as usize,
            self.dilation as usize,
        ];
        let skipped = before.saturating_sub(begin).div_ceil(dilation);
        let first = (begin + skipped * dilation).saturating_sub(before);
        let end = (begin + self.reach() as usize).saturating_sub(before);
        (first..end.min(self.size as usize)).step_by(dilation)
    }

    /// The pixel under a tap by the definition, with places that may be negative: worked out another way than what it is held against.
    pub(super) fn by_definition(self, application: usize, tap: usize) -> Option<usize> {
        let [stride, dilation, before] = [self.stride, self.dilation, self.before].map(i64::from);
        let at = application as i64 * stride + tap as i64 * dilation - before;
        usize::try_from(at).ok().filter(|at| *at < self.size as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;
    use proptest::prelude::*;

    fn padding(text: &str) -> Result<Padding, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn one_number_stands_for_all_sides() {
        let uneven = Padding {
            bottom: 3,
            ..Padding::all(2)
        };
        assert_eq!(padding("2").unwrap(), Padding::all(2));
        assert_eq!(padding("[2, 2, 3, 2]").unwrap(), uneven);
        for (sides, text) in [(Sides::both(3), "3"), (Sides { rows: 1, columns: 2 }, "[1,2]")] {
            assert_eq!(serde_json::to_string(&sides).unwrap(), text);
            assert_eq!(serde_json::from_str::<Sides>(text).unwrap(), sides);
        }
        assert_eq!(serde_json::to_string(&uneven).unwrap(), "[2,2,3,2]");
        assert_eq!(serde_json::to_string(&Padding::all(1)).unwrap(), "1");
    }

    #[test]
    fn what_is_neither_says_what_it_may_be() {
        let error = padding("[1, 2]").unwrap_err().to_string();
        assert!(error.contains("[top, left, bottom, right]"), "{error}");
        let error = serde_json::from_str::<Sides>("-1").unwrap_err().to_string();
        assert!(error.contains("[rows, columns]"), "{error}");
    }

    proptest! {
        /// The three ways to say which pixels lie under a kernel say the same, and where it says so one of them always does.
        #[test]
        fn a_kernel_covers_the_pixels_under_its_taps(
            (size, kernel, stride, dilation, before, after) in (1u32..12, 1u32..5, 1u32..4, 1u32..4, 0u32..9, 0u32..9)
        ) {
            let line = Line { size, kernel, stride, dilation, before, after };
            for application in 0..line.extent() as usize {
                let taps = 0..kernel as usize;
                let under: Vec<usize> = taps.clone().filter_map(|tap| line.pixel(application, tap)).collect();
                let defined: Vec<usize> = taps.filter_map(|tap| line.by_definition(application, tap)).collect();
                prop_assert_eq!(&under, &defined);
                prop_assert_eq!(&under, &line.pixels(application).collect::<Vec<_>>());
                prop_assert!(!line.is_always_on_it() || !under.is_empty());
            }
        }
    }

    /// A kernel is told apart by its name, so its fields are read a second time.
    #[test]
    fn a_kernel_has_both_forms() {
        let text = r#"{"kernel": "pool", "window": "max", "planes": 1, "height": 5, "width": 7, "kernel-height": 2,
            "kernel-width": 3, "stride": [1, 2], "padding": [0, 1, 1, 0]}"#;
        let kernel: Kernel = serde_json::from_str(text).unwrap();
        let Kernel::Pool(pool) = &kernel else {
            panic!("{kernel:?}")
        };
        assert_eq!(pool.stride, Sides { rows: 1, columns: 2 });
        assert_eq!((pool.out_height(), pool.out_width()), (5, 3));
        let again: Kernel = serde_json::from_str(&serde_json::to_string(&kernel).unwrap()).unwrap();
        assert_eq!(again, kernel);
    }
}
