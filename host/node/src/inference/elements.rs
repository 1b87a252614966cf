//! The elements of a tensor as JSON has them.

use half::{bf16, f16};
use karman_tensor::{Element, ElementType, Tensor};
use serde::de::{DeserializeSeed, Error, SeqAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;

/// Elements as JSON has them.
#[derive(Clone, Debug)]
pub enum TensorData {
    /// As they were read.
    Read(Vec<Scalar>),
    /// As they will be written.
    Held(Tensor),
}

/// One element as JSON has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Scalar {
    /// A whole number that is not negative.
    Unsigned(u64),
    /// A negative whole number.
    Signed(i64),
    /// Any other number.
    Float(f64),
    /// True or false.
    Bool(bool),
    /// A text.
    Text(Box<str>),
}

impl Scalar {
    pub(super) const fn float(&self) -> Option<f64> {
        match self {
            Self::Unsigned(value) => Some(*value as f64),
            Self::Signed(value) => Some(*value as f64),
            Self::Float(value) => Some(*value),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }

    pub(super) fn whole(&self) -> Option<i64> {
        match self {
            Self::Unsigned(value) => i64::try_from(*value).ok(),
            Self::Signed(value) => Some(*value),
            Self::Float(_) | Self::Bool(_) | Self::Text(_) => None,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned(value) => write!(f, "{value}"),
            Self::Signed(value) => write!(f, "{value}"),
            Self::Float(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value:?}"),
        }
    }
}

impl TensorData {
    /// The first elements in words, so many at most, and whether there are more.
    pub fn words(&self, most: usize) -> (Vec<String>, bool) {
        fn first<T: Element + Copy, V: fmt::Display>(
            tensor: &Tensor,
            most: usize,
            read: impl Fn(T) -> V,
        ) -> (Vec<String>, bool) {
            let all = tensor.view::<T>().unwrap_or_default();
            let words = all.iter().take(most).map(|element| read(*element).to_string());
            (words.collect(), all.len() > most)
        }
        let tensor = match self {
            Self::Read(all) => {
                let words = all.iter().take(most).map(Scalar::to_string);
                return (words.collect(), all.len() > most);
            }
            Self::Held(tensor) => tensor,
        };
        match tensor.element() {
            ElementType::F16 => first(tensor, most, |value: f16| value),
            ElementType::Bf16 => first(tensor, most, |value: bf16| value),
            ElementType::F32 => first(tensor, most, |value: f32| value),
            ElementType::F64 => first(tensor, most, |value: f64| value),
            ElementType::I8 => first(tensor, most, |value: i8| value),
            ElementType::U8 => first(tensor, most, |value: u8| value),
            ElementType::I32 => first(tensor, most, |value: i32| value),
            ElementType::I64 => first(tensor, most, |value: i64| value),
            ElementType::Bool => first(tensor, most, |value: bool| value),
        }
    }
}

impl<'de> Deserialize<'de> for TensorData {
    /// Lists in lists become one list: only their order counts. How deep they may nest, the reader of JSON bounds.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        flattened(deserializer, false)
    }
}

/// The elements of an answer: JSON has no NaN and no infinity, which it writes as `null`. They are read as NaN here; a request that holds
/// one is refused.
#[derive(Deserialize)]
#[serde(transparent)]
pub(super) struct AnsweredData(#[serde(deserialize_with = "with_null")] pub(super) TensorData);

fn with_null<'de, D: Deserializer<'de>>(deserializer: D) -> Result<TensorData, D::Error> {
    flattened(deserializer, true)
}

fn flattened<'de, D: Deserializer<'de>>(deserializer: D, takes_null: bool) -> Result<TensorData, D::Error> {
    let mut elements = Vec::new();
    Flatten {
        into: &mut elements,
        takes_null,
    }
    .deserialize(deserializer)?;
    Ok(TensorData::Read(elements))
}

struct Flatten<'a> {
    into: &'a mut Vec<Scalar>,
    takes_null: bool,
}

impl<'de> DeserializeSeed<'de> for Flatten<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Flatten<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("numbers, booleans, texts, or lists of them")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        match self.takes_null {
            true => self.into.push(Scalar::Float(f64::NAN)),
            false => return Err(E::invalid_type(Unexpected::Unit, &self)),
        }
        Ok(())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<(), E> {
        self.into.push(Scalar::Unsigned(value));
        Ok(())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<(), E> {
        self.into.push(Scalar::Signed(value));
        Ok(())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<(), E> {
        self.into.push(Scalar::Float(value));
        Ok(())
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<(), E> {
        self.into.push(Scalar::Bool(value));
        Ok(())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<(), E> {
        self.into.push(Scalar::Text(value.into()));
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let takes_null = self.takes_null;
        while list
            .next_element_seed(Flatten {
                into: &mut *self.into,
                takes_null,
            })?
            .is_some()
        {}
        Ok(())
    }
}

impl Serialize for Scalar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Unsigned(value) => serializer.serialize_u64(*value),
            Self::Signed(value) => serializer.serialize_i64(*value),
            Self::Float(value) => serializer.serialize_f64(*value),
            Self::Bool(value) => serializer.serialize_bool(*value),
            Self::Text(value) => serializer.serialize_str(value),
        }
    }
}

impl Serialize for TensorData {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tensor = match self {
            Self::Read(elements) => return serializer.collect_seq(elements),
            Self::Held(tensor) => tensor,
        };
        match tensor.element() {
            ElementType::F16 => listed(tensor, serializer, |value: f16| value.to_f32()),
            ElementType::Bf16 => listed(tensor, serializer, |value: bf16| value.to_f32()),
            ElementType::F32 => listed(tensor, serializer, |value: f32| value),
            ElementType::F64 => listed(tensor, serializer, |value: f64| value),
            ElementType::I8 => listed(tensor, serializer, |value: i8| value),
            ElementType::U8 => listed(tensor, serializer, |value: u8| value),
            ElementType::I32 => listed(tensor, serializer, |value: i32| value),
            ElementType::I64 => listed(tensor, serializer, |value: i64| value),
            ElementType::Bool => listed(tensor, serializer, |value: bool| value),
        }
    }
}

fn listed<T: Element + Copy, V: Serialize, S: Serializer>(
    tensor: &Tensor,
    serializer: S,
    write: impl Fn(T) -> V,
) -> Result<S::Ok, S::Error> {
    let elements = tensor.view::<T>().map_err(serde::ser::Error::custom)?;
    serializer.collect_seq(elements.iter().copied().map(write))
}
