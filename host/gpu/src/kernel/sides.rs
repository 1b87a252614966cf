//! What may differ between the rows and the columns of an image.

use serde::{Deserialize, Serialize};

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

/// Applications of a kernel along one side of an image, with so much before it and after it; none where the kernel reaches beyond.
pub(super) const fn extent(
    size: u32,
    kernel: u32,
    stride: u32,
    (before, after): (u32, u32),
    dilation: u32,
) -> u32 {
    let reach = dilation
        .saturating_mul(kernel.saturating_sub(1))
        .saturating_add(1);
    let size = size.saturating_add(before).saturating_add(after);
    match size.checked_sub(reach) {
        Some(room) if stride > 0 => room / stride + 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

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
