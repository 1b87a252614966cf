mod table;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use table::Table;

/// A constant in a workflow. Numbers are compared as `f64`, texts byte by byte.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` or `false`.
    Bool(bool),
    /// A finite number.
    Number(f64),
    /// A text.
    Text(String),
}

impl Scalar {
    const fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "a bool",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(bool) => bool.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => write!(f, "\"{text}\""),
        }
    }
}

/// Where something lies in a task's output: names of fields and places in lists, parted by dots (`tiles.0.water`); `.` is all of
/// it.
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct FieldPath(String);

impl FieldPath {
    /// What lies there, if there is something.
    pub fn find<'v>(&self, value: &'v Value) -> Option<&'v Value> {
        let parts = self.0.split('.').filter(|part| !part.is_empty());
        parts.into_iter().try_fold(value, |value, part| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            _ => value.get(part),
        })
    }
}

impl TryFrom<String> for FieldPath {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text == "." || text.split('.').all(|part| !part.is_empty()) {
            true => Ok(Self(text)),
            false => Err(format!(
                "`{text}` is not a field: write names parted by single dots, or `.`"
            )),
        }
    }
}

impl From<FieldPath> for String {
    fn from(path: FieldPath) -> Self {
        path.0
    }
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What must hold of a task's output for an edge to be taken.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(try_from = "Table", into = "Table")]
pub enum Predicate {
    /// Of one field.
    Field {
        /// Which.
        field: FieldPath,
        /// What.
        is: Comparison,
    },
    /// All of them; of none, this holds.
    All(Vec<Self>),
    /// At least one of them; of none, this does not hold.
    Any(Vec<Self>),
    /// This does not hold.
    Not(Box<Self>),
}

/// What a field is compared with. The type of the constant is the type that the field must have.
#[derive(Clone, Debug, PartialEq)]
pub enum Comparison {
    /// It has this value.
    Equals(Scalar),
    /// It has another value of the same type.
    Differs(Scalar),
    /// It is smaller.
    LessThan(f64),
    /// It is not larger.
    AtMost(f64),
    /// It is larger.
    MoreThan(f64),
    /// It is not smaller.
    AtLeast(f64),
    /// It is one of these.
    OneOf(Vec<Scalar>),
    /// It is there and not null, or it is not.
    Exists(bool),
}

/// An output that a predicate cannot be asked of: what the task gives is not what the workflow was written for.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[non_exhaustive]
pub enum PredicateError {
    /// The field is not there.
    #[error("the output has no field `{field}`: correct the path, or ask whether it `exists` first")]
    Missing {
        /// Which.
        field: String,
    },
    /// The field has another type than what it is compared with.
    #[error("the field `{field}` of the output is {found}, but is compared with {wanted}")]
    Type {
        /// Which.
        field: String,
        /// The type of the constant.
        wanted: String,
        /// The type of the field.
        found: String,
    },
}

impl Predicate {
    /// Whether it holds of this output. `all` and `any` stop at the first that decides.
    ///
    /// # Errors
    /// When a field is missing or has another type than what it is compared with.
    pub fn holds(&self, output: &Value) -> Result<bool, PredicateError> {
        match self {
            Self::Field { field, is } => is.holds(field, field.find(output)),
            Self::All(all) => decide(all, output, false),
            Self::Any(any) => decide(any, output, true),
            Self::Not(not) => Ok(!not.holds(output)?),
        }
    }
}

/// Whether one of the predicates comes out as `stop`, which then is the answer.
fn decide(predicates: &[Predicate], output: &Value, stop: bool) -> Result<bool, PredicateError> {
    for predicate in predicates {
        if predicate.holds(output)? == stop {
            return Ok(stop);
        }
    }
    Ok(!stop)
}

impl Comparison {
    fn holds(&self, field: &FieldPath, found: Option<&Value>) -> Result<bool, PredicateError> {
        if let Self::Exists(wanted) = self {
            return Ok(found.is_some_and(|value| !value.is_null()) == *wanted);
        }
        let found = found.ok_or_else(|| PredicateError::Missing {
            field: field.to_string(),
        })?;
        let wrong = |wanted: &str| PredicateError::Type {
            field: field.to_string(),
            wanted: wanted.into(),
            found: kind(found).into(),
        };
        let number = || found.as_f64().ok_or_else(|| wrong("a number"));
        let equals = |scalar: &Scalar| match (scalar, found) {
            (Scalar::Bool(wanted), Value::Bool(found)) => Ok(wanted == found),
            (Scalar::Text(wanted), Value::String(found)) => Ok(wanted == found),
            (Scalar::Number(wanted), Value::Number(_)) => Ok(*wanted == number()?),
            _ => Err(wrong(scalar.kind())),
        };
        match self {
            Self::Equals(scalar) => equals(scalar),
            Self::Differs(scalar) => Ok(!equals(scalar)?),
            Self::LessThan(bound) => Ok(number()? < *bound),
            Self::AtMost(bound) => Ok(number()? <= *bound),
            Self::MoreThan(bound) => Ok(number()? > *bound),
            Self::AtLeast(bound) => Ok(number()? >= *bound),
            // A list may mix types: one that fits is enough.
            Self::OneOf(scalars) => match scalars.iter().any(|scalar| equals(scalar) == Ok(true)) {
                true => Ok(true),
                false if scalars.iter().any(|scalar| equals(scalar).is_ok()) => Ok(false),
                false => Err(wrong(scalars.first().map_or("nothing", Scalar::kind))),
            },
            Self::Exists(_) => unreachable!("answered above"),
        }
    }
}

const fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a bool",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

impl fmt::Display for Predicate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |f: &mut fmt::Formatter<'_>, list: &[Self], word: &str| {
            for (n, predicate) in list.iter().enumerate() {
                match predicate {
                    _ if n > 0 => write!(f, " {word} ")?,
                    _ => {}
                }
                match predicate {
                    Self::All(_) | Self::Any(_) => write!(f, "({predicate})")?,
                    _ => predicate.fmt(f)?,
                }
            }
            Ok(())
        };
        match self {
            Self::Field { field, is } => match is {
                Comparison::Equals(scalar) => write!(f, "{field} = {scalar}"),
                Comparison::Differs(scalar) => write!(f, "{field} ≠ {scalar}"),
                Comparison::LessThan(bound) => write!(f, "{field} < {bound}"),
                Comparison::AtMost(bound) => write!(f, "{field} ≤ {bound}"),
                Comparison::MoreThan(bound) => write!(f, "{field} > {bound}"),
                Comparison::AtLeast(bound) => write!(f, "{field} ≥ {bound}"),
                Comparison::OneOf(scalars) => {
                    let names: Vec<_> = scalars.iter().map(Scalar::to_string).collect();
                    write!(f, "{field} in {}", names.join(", "))
                }
                Comparison::Exists(true) => write!(f, "{field} exists"),
                Comparison::Exists(false) => write!(f, "{field} is absent"),
            },
            Self::All(all) => list(f, all, "and"),
            Self::Any(any) => list(f, any, "or"),
            Self::Not(not) => write!(f, "not ({not})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn predicate(text: &str) -> Predicate {
        #[derive(Deserialize)]
        struct File {
            when: Predicate,
        }
        crate::from_toml::<File>(&format!("when = {text}")).unwrap().when
    }

    #[test]
    fn fields_are_compared_by_their_type() {
        let output =
            json!({ "water": 0.4, "sky": "clear", "night": false, "tiles": [{ "water": 7 }], "none": null });
        let holds = |text: &str| predicate(text).holds(&output);
        assert_eq!(holds("{ field = 'water', at-least = 0.4 }"), Ok(true));
        assert_eq!(holds("{ field = 'water', more-than = 0.4 }"), Ok(false));
        assert_eq!(holds("{ field = 'tiles.0.water', equals = 7 }"), Ok(true));
        assert_eq!(holds("{ field = 'sky', one-of = ['clear', 'hazy'] }"), Ok(true));
        assert_eq!(holds("{ field = 'none', exists = true }"), Ok(false));
        assert_eq!(
            holds("{ all = [{ field = 'night', equals = false }, { field = 'sky', differs = 'hazy' }] }"),
            Ok(true)
        );
        assert_eq!(
            holds("{ not = { any = [{ field = 'night', equals = true }] } }"),
            Ok(true)
        );
        assert_eq!(
            holds("{ field = 'sky', at-least = 1 }").unwrap_err().to_string(),
            "the field `sky` of the output is a text, but is compared with a number"
        );
        let field = "tiles.1".to_owned();
        assert_eq!(
            holds("{ field = 'tiles.1', equals = 1 }"),
            Err(PredicateError::Missing { field })
        );
    }

    #[test]
    fn a_predicate_says_one_thing() {
        let wrong = |text: &str| serde_json::from_str::<Predicate>(text).unwrap_err().to_string();
        for text in [
            r#"{"field": "a"}"#,
            r#"{"equals": 1}"#,
            r#"{"field": "a", "equals": 1, "at-most": 2}"#,
            "{}",
        ] {
            assert!(wrong(text).contains('`'), "{}", wrong(text));
        }
        assert!(wrong(r#"{"field": "a..b", "equals": 1}"#).contains("`a..b` is not a field"));
    }
}
