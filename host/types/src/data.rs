use crate::{ContractError, is_steering};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

/// What goes into a task or comes out of it, field by field. One without fields says nothing, and anything keeps it.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(transparent)]
pub struct DataContract(Vec<DataField>);

/// One field of a data contract.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DataField {
    /// Its name.
    pub name: String,
    /// Its type: a media type (`image/png`), an element type (`f32`) or `text`, `bool`.
    pub r#type: DataType,
    /// Its shape, where it is an array; 0 is any length.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shape: Vec<u32>,
    /// Its unit, as in `m/s2`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// Whether it may be left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// The type of a data field.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum DataType {
    /// Characters.
    Text,
    /// True or false.
    Bool,
    /// A number, or an array of them.
    Number(NumberType),
    /// Bytes of this media type: `image/png`.
    Media(String),
}

/// The type of a number.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[expect(missing_docs, reason = "their names say it")]
pub enum NumberType {
    F16,
    Bf16,
    F32,
    F64,
    I8,
    U8,
    I32,
    I64,
}

impl NumberType {
    const ALL: [(&str, Self); 8] = [
        ("f16", Self::F16),
        ("bf16", Self::Bf16),
        ("f32", Self::F32),
        ("f64", Self::F64),
        ("i8", Self::I8),
        ("u8", Self::U8),
        ("i32", Self::I32),
        ("i64", Self::I64),
    ];

    /// Whether a whole number fits. Every one fits a floating type, if not exactly.
    pub fn holds(self, number: i64) -> bool {
        match self {
            Self::I8 => i8::try_from(number).is_ok(),
            Self::U8 => u8::try_from(number).is_ok(),
            Self::I32 => i32::try_from(number).is_ok(),
            _ => true,
        }
    }

    /// Whether it has a fraction.
    pub const fn is_floating(self) -> bool {
        matches!(self, Self::F16 | Self::Bf16 | Self::F32 | Self::F64)
    }

    /// Bytes of one: 1, 2, 4 or 8.
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::F64 | Self::I64 => 8,
        }
    }
}

impl fmt::Display for NumberType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::ALL.iter().find(|(_, number)| number == self);
        f.write_str(name.map_or("", |(name, _)| name))
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("text"),
            Self::Bool => f.write_str("bool"),
            Self::Number(number) => number.fmt(f),
            Self::Media(media_type) => f.write_str(media_type),
        }
    }
}

impl FromStr for DataType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = NumberType::ALL.iter().find(|(name, _)| *name == text);
        let media = |text: &str| {
            let (general, special) = text.split_once('/')?;
            let prints = text.is_ascii() && !text.contains(is_steering);
            (!general.is_empty() && !special.is_empty() && prints).then(|| Self::Media(text.into()))
        };
        match (text, number) {
            ("text", _) => Ok(Self::Text),
            ("bool", _) => Ok(Self::Bool),
            (_, Some((_, number))) => Ok(Self::Number(*number)),
            _ => media(text).ok_or_else(|| {
                format!(
                    "`{text}` is not a type of data: text, bool, f16, bf16, f32, f64, i8, u8, i32, i64 or a media type such \
                     as image/png"
                )
            }),
        }
    }
}

crate::serde_as_text!(DataType);

impl DataContract {
    /// A contract of these fields.
    pub const fn new(fields: Vec<DataField>) -> Self {
        Self(fields)
    }

    /// Whether it says nothing.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn check_names(&self, side: &'static str) -> Result<(), ContractError> {
        for field in &self.0 {
            let times = self.0.iter().filter(|other| other.name == field.name).count();
            if field.name.is_empty() || times > 1 {
                return Err(ContractError::FieldName {
                    side,
                    name: field.name.clone(),
                    times,
                });
            }
            if let Some(text) = [&field.name, &field.unit]
                .into_iter()
                .find(|text| text.contains(is_steering))
            {
                return Err(ContractError::FieldText {
                    side,
                    text: text.clone(),
                });
            }
        }
        Ok(())
    }
}

impl Deref for DataContract {
    type Target = [DataField];

    fn deref(&self) -> &[DataField] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_read_what_they_write() {
        for text in [
            "text",
            "bool",
            "bf16",
            "u8",
            "i64",
            "image/png",
            "application/geo+json",
        ] {
            assert_eq!(text.parse::<DataType>().unwrap().to_string(), text);
        }
        for text in ["", "float", "u64", "image/", "/png", "image/\u{1b}[8m"] {
            assert!(text.parse::<DataType>().unwrap_err().contains("image/png"));
        }
    }
}
