//! The outputs that a caller wants, of those that there are.

use super::Value;
use crate::refusal::Refusal;
use karman_types::TaskError;
use std::collections::HashSet;

/// Whether each is named once.
///
/// # Errors
/// `invalid` (field `outputs`) when one is named again: a short request would have a long answer written any number of times.
pub(super) fn each_once(wanted: &[String]) -> Result<(), TaskError> {
    let mut named = HashSet::with_capacity(wanted.len());
    match wanted.iter().find(|name| !named.insert(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let error = TaskError::invalid(format!("the output `{name}` is wanted more than once"));
            Err(error.with_field("outputs").with_hint("name each output once"))
        }
    }
}

/// Those that are wanted, in the order in which they are.
///
/// # Errors
/// `invalid` (field `outputs`) when there is none of that name.
pub(super) fn chosen(
    outputs: Vec<(String, Value)>,
    wanted: &[String],
) -> Result<Vec<(String, Value)>, Refusal> {
    let pick = |name: &String| {
        let found = outputs.iter().find(|(given, _)| given == name);
        found.cloned().ok_or_else(|| {
            let error = TaskError::invalid(format!("there is no output `{name}`"));
            Refusal::from(error.with_field("outputs"))
        })
    };
    wanted.iter().map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_output_is_wanted_once() {
        let once = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            each_once(&names)
        };
        assert_eq!(once(&[]), Ok(()));
        assert_eq!(once(&["a", "b"]), Ok(()));
        let refused = once(&["a", "b", "a"]).unwrap_err();
        assert!(refused.message.contains("`a`"), "{refused}");
        assert_eq!(refused.field.as_deref(), Some("outputs"));
    }
}
