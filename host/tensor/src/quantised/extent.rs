use super::QuantisedError;
use super::error::size;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;

/// The size of an activation: channels, rows, columns.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Extent {
    /// Features at each position.
    pub channels: usize,
    /// Rows.
    pub height: usize,
    /// Columns.
    pub width: usize,
}

impl Extent {
    /// The most along one dimension: 65,535, which two bytes hold.
    pub const MOST: usize = u16::MAX as usize;

    /// A checked extent.
    ///
    /// # Errors
    /// [`QuantisedError::Size`] when a dimension is 0 or past [`Extent::MOST`].
    pub fn new(channels: usize, height: usize, width: usize) -> Result<Self, QuantisedError> {
        size("channels", channels, 1, Self::MOST)?;
        size("height", height, 1, Self::MOST)?;
        size("width", width, 1, Self::MOST)?;
        Ok(Self {
            channels,
            height,
            width,
        })
    }

    /// The number of values, and of bytes.
    pub const fn elements(&self) -> usize {
        self.channels * self.height * self.width
    }

    /// All of it.
    pub const fn whole(&self) -> Part {
        Part {
            rows: 0..self.height,
            channels: 0..self.channels,
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.channels, self.height, self.width)
    }
}

/// Some rows and some channels of an activation, with all columns. Parts without elements are equal to [`Part::NONE`].
#[derive(Clone, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
pub struct Part {
    /// Which rows.
    pub rows: Range<usize>,
    /// Which channels.
    pub channels: Range<usize>,
}

impl Part {
    /// Nothing.
    pub const NONE: Self = Self {
        rows: 0..0,
        channels: 0..0,
    };

    /// These rows and channels.
    pub fn new(rows: Range<usize>, channels: Range<usize>) -> Self {
        match rows.is_empty() || channels.is_empty() {
            true => Self::NONE,
            false => Self { rows, channels },
        }
    }

    /// Some channels of whichever row: where only the channels matter.
    pub(super) fn of_row(channels: &Range<usize>) -> Self {
        Self::new(0..1, channels.clone())
    }

    /// What both hold.
    pub fn and(&self, other: &Self) -> Self {
        let both = |a: &Range<usize>, b: &Range<usize>| a.start.max(b.start)..a.end.min(b.end);
        Self::new(
            both(&self.rows, &other.rows),
            both(&self.channels, &other.channels),
        )
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() || self.channels.is_empty()
    }

    /// Rows times channels: multiplied by the width, the number of values.
    pub fn cells(&self) -> usize {
        self.rows.len() * self.channels.len()
    }
}
