//! Whether a record keeps its contract.

use super::{Problem, Record, RecordError, Side, Value};
use crate::{DataContract, DataField, DataType, NumberType};
use bytes::Bytes;
use serde::Deserialize;

impl DataContract {
    /// Whether a record keeps the contract: before a call with [`Side::Input`], after it with [`Side::Output`].
    ///
    /// # Errors
    /// The first field, by its place in the contract, that is missing or of another type, shape or unit, that holds a number
    /// which its type does not, or that the contract does not know.
    pub fn check(&self, side: Side, record: &Record) -> Result<(), RecordError> {
        if self.is_empty() {
            return Ok(());
        }
        let error = |field: &str, problem| RecordError {
            side,
            field: field.into(),
            problem,
        };
        for field in self.iter() {
            match record.get(&field.name) {
                Some(value) => field
                    .check(value)
                    .map_err(|problem| error(&field.name, problem))?,
                None if field.optional => {}
                None => return Err(error(&field.name, Problem::Missing)),
            }
        }
        let unknown = record
            .keys()
            .find(|name| !self.iter().any(|field| field.name == **name));
        unknown.map_or(Ok(()), |name| Err(error(name, Problem::Unknown)))
    }
}

impl DataContract {
    /// The same of JSON, which has to be an object of the contract's fields. Bytes of a media type stand in it as
    /// `{"media-type": "image/png", "base64": "…"}`.
    ///
    /// # Errors
    /// Those of [`DataContract::check`]; what is no object is reported as the field `.`.
    pub fn check_json(&self, side: Side, json: &serde_json::Value) -> Result<(), RecordError> {
        if self.is_empty() {
            return Ok(());
        }
        let error = |field: &str, found| RecordError {
            side,
            field: field.into(),
            problem: Problem::Kind { found },
        };
        let fields = json.as_object().ok_or_else(|| error(".", kind_of(json)))?;
        let value = |(name, json): (&String, &serde_json::Value)| {
            let value = read_json(json).ok_or_else(|| error(name, kind_of(json)))?;
            Ok((name.clone(), value))
        };
        let record: Record = fields.iter().map(value).collect::<Result<_, RecordError>>()?;
        self.check(side, &record)
    }
}

fn read_json(json: &serde_json::Value) -> Option<Value> {
    match (json["media-type"].as_str(), json["base64"].as_str()) {
        (Some(media_type), Some(_)) => Some(Value::Media {
            media_type: media_type.into(),
            bytes: Bytes::new(),
        }),
        _ => Value::deserialize(json).ok(),
    }
}

const fn kind_of(json: &serde_json::Value) -> &'static str {
    match json {
        serde_json::Value::Null => "null",
        serde_json::Value::Bool(_) => "a bool",
        serde_json::Value::Number(_) => "a number",
        serde_json::Value::String(_) => "a text",
        serde_json::Value::Array(_) => "a list",
        serde_json::Value::Object(_) => "a table",
    }
}

impl DataField {
    fn check(&self, value: &Value) -> Result<(), Problem> {
        match value {
            Value::Quantity { unit, .. } if *unit != self.unit => Err(Problem::Unit {
                wanted: self.unit.clone(),
                found: unit.clone(),
            }),
            Value::Quantity { value, .. } if matches!(**value, Value::Quantity { .. }) => {
                Err(self.not(value))
            }
            Value::Quantity { value, .. } => self.check(value),
            Value::Array {
                element,
                shape,
                bytes,
            } => self.check_array(value, element, shape, bytes),
            Value::Media { media_type, .. } => match &self.r#type {
                DataType::Media(wanted) if wanted.eq_ignore_ascii_case(media_type) => Ok(()),
                _ => Err(self.not(value)),
            },
            _ => self.check_nested(value, &self.shape),
        }
    }

    fn check_array(
        &self,
        value: &Value,
        element: &DataType,
        shape: &[u32],
        bytes: &Bytes,
    ) -> Result<(), Problem> {
        let (true, DataType::Number(number)) = (*element == self.r#type, element) else {
            return Err(self.not(value));
        };
        let fits = shape.len() == self.shape.len()
            && shape
                .iter()
                .zip(&self.shape)
                .all(|(found, wanted)| *wanted == 0 || found == wanted);
        if !fits {
            return Err(self.shape_is(shape.to_vec()));
        }
        let wanted = shape
            .iter()
            .try_fold(number.size(), |size, length| size.checked_mul(*length as usize));
        match wanted {
            Some(wanted) if wanted == bytes.len() => Ok(()),
            wanted => Err(Problem::Length {
                wanted: wanted.unwrap_or(usize::MAX),
                found: bytes.len(),
            }),
        }
    }

    /// Goes down as many dimensions as the contract has, no further.
    fn check_nested(&self, value: &Value, shape: &[u32]) -> Result<(), Problem> {
        match (shape, value) {
            ([], _) => self.check_one(value),
            ([length, rest @ ..], Value::List(values)) => {
                let found = u32::try_from(values.len()).unwrap_or(u32::MAX);
                if *length != 0 && found != *length {
                    let outer = &self.shape[..self.shape.len() - shape.len()];
                    return Err(self.shape_is([outer, &[found]].concat()));
                }
                values.iter().try_for_each(|value| self.check_nested(value, rest))
            }
            (_, _) => Err(self.not(value)),
        }
    }

    fn check_one(&self, value: &Value) -> Result<(), Problem> {
        match (&self.r#type, value) {
            (DataType::Text, Value::Text(_)) | (DataType::Bool, Value::Bool(_)) => Ok(()),
            (DataType::Number(wanted), Value::Integer(number)) if wanted.holds(*number) => Ok(()),
            (DataType::Number(wanted), Value::Integer(number)) => Err(out_of_range(*wanted, number)),
            (DataType::Number(wanted), Value::Number(number)) if wanted.is_floating() => {
                match number.is_finite() {
                    true => Ok(()),
                    false => Err(out_of_range(*wanted, number)),
                }
            }
            _ => Err(self.not(value)),
        }
    }

    fn not(&self, value: &Value) -> Problem {
        Problem::Type {
            wanted: self.r#type.clone(),
            found: value.kind(),
        }
    }

    fn shape_is(&self, found: Vec<u32>) -> Problem {
        Problem::Shape {
            wanted: self.shape.clone(),
            found,
        }
    }
}

fn out_of_range(wanted: NumberType, number: &impl ToString) -> Problem {
    Problem::Range {
        wanted,
        number: number.to_string(),
    }
}

impl Value {
    fn kind(&self) -> String {
        match self {
            Self::Bool(_) => "bool".into(),
            Self::Integer(_) => "a whole number".into(),
            Self::Number(_) => "a number".into(),
            Self::Text(_) => "text".into(),
            Self::List(_) => "a list".into(),
            Self::Quantity { .. } => "a quantity".into(),
            Self::Array { element, .. } => format!("an array of {element}"),
            Self::Media { media_type, .. } => media_type.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn contract() -> DataContract {
        let contract: crate::TaskContract = crate::from_toml(
            r#"
            capability = "screen"
            inputs = [
                { name = "acceleration", type = "f32", shape = [0, 3], unit = "m/s2" },
                { name = "frame", type = "image/png", optional = true },
                { name = "class", type = "u8", optional = true },
                { name = "note", type = "text", optional = true },
            ]
            "#,
        )
        .unwrap();
        contract.inputs
    }

    fn check(json: &str) -> Result<(), RecordError> {
        let record: Record = serde_json::from_str(json).unwrap();
        contract().check(Side::Input, &record)
    }

    #[test]
    fn json_keeps_the_contract_or_the_error_names_its_field() {
        let check = |json: &str| {
            let json: serde_json::Value = serde_json::from_str(json).unwrap();
            contract()
                .check_json(Side::Output, &json)
                .map_err(|error| error.to_string())
        };
        let frame = r#"{"acceleration": [], "frame": {"media-type": "image/png", "base64": "iVBO"}}"#;
        assert_eq!(check(frame), Ok(()));
        for (json, says) in [
            ("[1]", "output `.` is a list, which no contract has"),
            (r#"{"acceleration": null}"#, "output `acceleration` is null"),
            (
                r#"{"acceleration": [[1, 2, null]]}"#,
                "output `acceleration` is a list",
            ),
            (
                r#"{"acceleration": [], "frame": {"media-type": "image/jpeg", "base64": ""}}"#,
                "output `frame`",
            ),
            (
                r#"{"acceleration": {"value": [], "unit": "g"}}"#,
                "is in `g`, not in `m/s2`",
            ),
            (
                r#"{"acceleration": [], "speed": 3}"#,
                "output `speed` is not in the contract",
            ),
        ] {
            let error = check(json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
    }

    #[test]
    fn a_record_keeps_the_contract_or_the_error_names_its_field() {
        assert_eq!(
            check(r#"{"acceleration": [[1, 2.5, 3], [0, 0, 0]], "class": 255, "note": "a"}"#),
            Ok(())
        );
        assert_eq!(
            check(r#"{"acceleration": {"value": [], "unit": "m/s2"}}"#),
            Ok(())
        );
        for (json, says) in [
            (r#"{}"#, "input `acceleration` is missing"),
            (
                r#"{"acceleration": 1}"#,
                "input `acceleration` is a whole number, not f32",
            ),
            (
                r#"{"acceleration": [[1, 2]]}"#,
                "input `acceleration` has the shape [0, 2], not [0, 3]",
            ),
            (
                r#"{"acceleration": [[1, 2, "3"]]}"#,
                "input `acceleration` is text, not f32",
            ),
            (
                r#"{"acceleration": {"value": [], "unit": "g"}}"#,
                "input `acceleration` is in `g`, not in `m/s2`",
            ),
            (
                r#"{"acceleration": [], "class": 256}"#,
                "input `class` holds 256, which is no u8",
            ),
            (
                r#"{"acceleration": [], "class": 1.5}"#,
                "input `class` is a number, not u8",
            ),
            (
                r#"{"acceleration": [], "note": 7}"#,
                "input `note` is a whole number, not text",
            ),
            (
                r#"{"acceleration": [], "frame": "png"}"#,
                "input `frame` is text, not image/png",
            ),
            (
                r#"{"acceleration": [], "acc": 1}"#,
                "input `acc` is not in the contract",
            ),
        ] {
            let error = check(json).unwrap_err().to_string();
            assert!(error.starts_with(says), "{error}");
        }
    }

    #[test]
    fn packed_arrays_fill_their_shape() {
        let array = |shape: Vec<u32>, bytes: usize| {
            let value = Value::Array {
                element: DataType::Number(NumberType::F32),
                shape,
                bytes: Bytes::from(vec![0; bytes]),
            };
            contract().check(Side::Output, &Record::from([("acceleration".into(), value)]))
        };
        assert_eq!(array(vec![2, 3], 24), Ok(()));
        assert!(matches!(
            array(vec![2, 3], 23).unwrap_err().problem,
            Problem::Length {
                wanted: 24,
                found: 23
            }
        ));
        assert!(matches!(
            array(vec![3, 2], 24).unwrap_err().problem,
            Problem::Shape { .. }
        ));
        assert!(matches!(
            array(vec![u32::MAX; 2], 24).unwrap_err().problem,
            Problem::Shape { .. }
        ));
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let record = Record::from([(
            "acceleration".into(),
            Value::List(vec![Value::List(vec![Value::Number(f64::NAN); 3])]),
        )]);
        let error = contract().check(Side::Output, &record).unwrap_err();
        assert!(matches!(error.problem, Problem::Range { .. }), "{error}");
    }

    proptest! {
        #[test]
        fn a_contract_without_fields_takes_anything(name in "[a-z]{1,8}", number in any::<i64>()) {
            let record = Record::from([(name, Value::Integer(number))]);
            prop_assert_eq!(DataContract::default().check(Side::Input, &record), Ok(()));
        }
    }
}
