//! A predicate as it stands in a file.

use super::{Comparison, FieldPath, Predicate, Scalar};
use serde::{Deserialize, Serialize};

/// How a predicate stands in a file: one key that compares beside `field`, or one of `all`, `any` and `not`.
#[derive(Clone, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub(super) struct Table {
    /// Where what is compared lies in the output.
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<FieldPath>,
    /// It is this.
    #[serde(skip_serializing_if = "Option::is_none")]
    equals: Option<Scalar>,
    /// It is another value of the same type.
    #[serde(skip_serializing_if = "Option::is_none")]
    differs: Option<Scalar>,
    /// It is less than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    less_than: Option<f64>,
    /// It is this or less.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_most: Option<f64>,
    /// It is more than this.
    #[serde(skip_serializing_if = "Option::is_none")]
    more_than: Option<f64>,
    /// It is this or more.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_least: Option<f64>,
    /// It is one of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    one_of: Option<Vec<Scalar>>,
    /// Whether it is there and not null.
    #[serde(skip_serializing_if = "Option::is_none")]
    exists: Option<bool>,
    /// Each of these holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    all: Option<Vec<Predicate>>,
    /// One of these holds at least.
    #[serde(skip_serializing_if = "Option::is_none")]
    any: Option<Vec<Predicate>>,
    /// This does not hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    not: Option<Box<Predicate>>,
}

impl TryFrom<Table> for Predicate {
    type Error = String;

    fn try_from(table: Table) -> Result<Self, String> {
        let comparisons = [
            table.equals.map(Comparison::Equals),
            table.differs.map(Comparison::Differs),
            table.less_than.map(Comparison::LessThan),
            table.at_most.map(Comparison::AtMost),
            table.more_than.map(Comparison::MoreThan),
            table.at_least.map(Comparison::AtLeast),
            table.one_of.map(Comparison::OneOf),
            table.exists.map(Comparison::Exists),
        ];
        let mut comparisons: Vec<_> = comparisons.into_iter().flatten().collect();
        let mut junctions: Vec<_> = [
            table.all.map(Self::All),
            table.any.map(Self::Any),
            table.not.map(Self::Not),
        ]
        .into_iter()
        .flatten()
        .collect();
        let predicate = match (table.field, comparisons.len(), junctions.len()) {
            (Some(field), 1, 0) => Self::Field {
                field,
                is: comparisons.remove(0),
            },
            (None, 0, 1) => junctions.remove(0),
            (Some(field), 0, _) => {
                return Err(format!(
                    "`field = \"{field}\"` needs one comparison: `at-least`, `equals`, …"
                ));
            }
            _ => {
                return Err(
                    "a predicate is a `field` with one comparison, or one of `all`, `any` and `not`".into(),
                );
            }
        };
        match predicate.has_a_number_that_is_none() {
            true => Err("a predicate compares with finite numbers only".into()),
            false => Ok(predicate),
        }
    }
}

impl Predicate {
    fn has_a_number_that_is_none(&self) -> bool {
        let Self::Field { is, .. } = self else {
            return false; // What is below was checked when it was read.
        };
        let odd = |scalar: &Scalar| matches!(scalar, Scalar::Number(number) if !number.is_finite());
        match is {
            Comparison::Equals(scalar) | Comparison::Differs(scalar) => odd(scalar),
            Comparison::OneOf(scalars) => scalars.iter().any(odd),
            Comparison::LessThan(bound)
            | Comparison::AtMost(bound)
            | Comparison::MoreThan(bound)
            | Comparison::AtLeast(bound) => !bound.is_finite(),
            Comparison::Exists(_) => false,
        }
    }
}

impl From<Predicate> for Table {
    fn from(predicate: Predicate) -> Self {
        let none = Self::default();
        match predicate {
            Predicate::All(all) => Self {
                all: Some(all),
                ..none
            },
            Predicate::Any(any) => Self {
                any: Some(any),
                ..none
            },
            Predicate::Not(not) => Self {
                not: Some(not),
                ..none
            },
            Predicate::Field { field, is } => {
                let mut table = Self {
                    field: Some(field),
                    ..none
                };
                match is {
                    Comparison::Equals(scalar) => table.equals = Some(scalar),
                    Comparison::Differs(scalar) => table.differs = Some(scalar),
                    Comparison::LessThan(bound) => table.less_than = Some(bound),
                    Comparison::AtMost(bound) => table.at_most = Some(bound),
                    Comparison::MoreThan(bound) => table.more_than = Some(bound),
                    Comparison::AtLeast(bound) => table.at_least = Some(bound),
                    Comparison::OneOf(scalars) => table.one_of = Some(scalars),
                    Comparison::Exists(exists) => table.exists = Some(exists),
                }
                table
            }
        }
    }
}
