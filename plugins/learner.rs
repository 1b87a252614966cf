//! What clients of federated learning share: what is set for them, and models as arrays with names. Plugins take this file in by its
//! path.

use crate::exports::karman::federated::learner::{Array, Error, Setting};
use crate::karman::task::types::InvalidInput;

/// What a setting says of this name.
pub(crate) fn property<'a>(setting: &'a Setting, name: &str) -> Option<&'a str> {
    let found = setting.properties.iter().find(|(key, _)| key == name);
    found.map(|(_, value)| value.as_str())
}

/// A field that is refused, and why.
pub(crate) fn refused(field: &str, why: &str) -> Error {
    Error::Invalid(InvalidInput {
        message: format!("`{field}`: {why}"),
        field: Some(field.into()),
    })
}

/// The numbers of all arrays in one row, if they are those that are wanted, by name and shape.
pub(crate) fn numbers<S: AsRef<str>>(
    field: &str,
    given: &[Array],
    wanted: &[(S, Vec<u32>)],
) -> Result<Vec<f32>, Error> {
    let fits =
        |array: &Array, (name, shape): &(S, Vec<u32>)| array.name == name.as_ref() && array.shape == *shape;
    if given.len() != wanted.len() || !given.iter().zip(wanted).all(|(one, other)| fits(one, other)) {
        let names: Vec<String> = wanted
            .iter()
            .map(|(name, shape)| format!("{} {shape:?}", name.as_ref()))
            .collect();
        return Err(refused(
            field,
            &format!("its arrays are not {}", names.join(", ")),
        ));
    }
    match given
        .iter()
        .all(|array| array.values.len() == length(&array.shape))
    {
        true => Ok(given
            .iter()
            .flat_map(|array| array.values.iter().copied())
            .collect()),
        false => Err(refused(
            field,
            "an array has not as many numbers as its shape says",
        )),
    }
}

/// The arrays of these names and shapes, from their numbers in one row.
pub(crate) fn arrays<S: Into<String>>(wanted: Vec<(S, Vec<u32>)>, numbers: &[f32]) -> Vec<Array> {
    let mut rest = numbers;
    let named = wanted.into_iter().map(|(name, shape)| {
        let (values, more) = rest.split_at(length(&shape));
        rest = more;
        Array {
            name: name.into(),
            shape,
            values: values.to_vec(),
        }
    });
    named.collect()
}

fn length(shape: &[u32]) -> usize {
    shape.iter().product::<u32>() as usize
}

/// What is set for one of so many clients of a test.
#[cfg(test)]
pub(crate) fn setting(index: u32, count: u32, properties: &[(&str, &str)]) -> Setting {
    let share = crate::karman::federated::types::Share { index, count };
    let properties = properties.iter();
    Setting {
        run: "test".into(),
        share: Some(share),
        properties: properties
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    }
}
