mod check;

use crate::{DataType, NumberType};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What goes into one call or comes out of it, by the names of its data contract. A JSON object reads as one.
pub type Record = BTreeMap<String, Value>;

/// The value of one field.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Integer(i64),
    /// Any other number.
    Number(f64),
    /// Characters.
    Text(String),
    /// An array, one dimension in another.
    List(Vec<Self>),
    /// A value with its unit: `{"value": 9.81, "unit": "m/s2"}`. Without one it is in the unit of the contract.
    Quantity {
        /// The value.
        value: Box<Self>,
        /// Its unit.
        unit: String,
    },
    /// An array as little-endian bytes.
    Array {
        /// The type of its elements, as contracts write it.
        element: DataType,
        /// Its shape.
        shape: Vec<u32>,
        /// Its elements, the last index running fastest.
        bytes: Bytes,
    },
    /// Bytes of some kind.
    Media {
        /// Which kind: `image/png`.
        media_type: String,
        /// The bytes.
        bytes: Bytes,
    },
}

/// Which side of a call a record is on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Side {
    /// What goes in.
    Input,
    /// What comes out.
    Output,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// A record that does not keep its contract.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{side} `{field}` {problem}")]
pub struct RecordError {
    /// On which side of the call.
    pub side: Side,
    /// The field.
    pub field: String,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// It is required.
    #[error("is missing")]
    Missing,
    /// The contract has no such field: another implementation would not know it.
    #[error("is not in the contract")]
    Unknown,
    /// Something else is there.
    #[error("is {found}, not {wanted}")]
    Type {
        /// The type of the contract.
        wanted: DataType,
        /// What was found.
        found: String,
    },
    /// A number that its type does not hold.
    #[error("holds {number}, which is no {wanted}")]
    Range {
        /// The type of the contract.
        wanted: NumberType,
        /// The number.
        number: String,
    },
    /// Its type says nothing of what is there: null, or a table.
    #[error("is {found}, which no contract has")]
    Kind {
        /// What is there.
        found: &'static str,
    },
    /// An array of another shape.
    #[error("has the shape {found:?}, not {wanted:?} (0 is any length)")]
    Shape {
        /// The shape of the contract.
        wanted: Vec<u32>,
        /// The shape as far as it is the same throughout.
        found: Vec<u32>,
    },
    /// An array whose bytes do not fill its shape.
    #[error("has {found} bytes, where its shape takes {wanted}")]
    Length {
        /// What the shape takes.
        wanted: usize,
        /// What is there.
        found: usize,
    },
    /// Measured in something else.
    #[error("is in `{found}`, not in `{wanted}`")]
    Unit {
        /// The unit of the contract.
        wanted: String,
        /// The unit of the value.
        found: String,
    },
}
