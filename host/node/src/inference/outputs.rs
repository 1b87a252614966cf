//! The outputs that a caller wants, of those that there are.

use karman_types::TaskError;
use std::collections::HashSet;

/// Whether each is named once.
///
/// # Errors
/// `invalid` (field `outputs`) when one is named again: a short request would have a long answer written any number of times.
pub fn each_once<'a>(wanted: impl IntoIterator<Item = &'a String>) -> Result<(), TaskError> {
    let mut named = HashSet::new();
    match wanted.into_iter().find(|name| !named.insert(name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let error = TaskError::invalid(format!("the output `{name}` is wanted more than once"));
            Err(error.with_field("outputs").with_hint("name each output once"))
        }
    }
}

/// Those that are wanted, in the order in which they are; all where none is named.
///
/// # Errors
/// `invalid` (field `outputs`) when there is none of that name.
pub fn chosen<'a, T: Clone>(
    outputs: Vec<(String, T)>,
    wanted: impl IntoIterator<Item = &'a String>,
) -> Result<Vec<(String, T)>, TaskError> {
    let pick = |name: &String| {
        let found = outputs.iter().find(|(given, _)| given == name);
        found.cloned().ok_or_else(|| {
            let there: Vec<&str> = outputs.iter().map(|(name, _)| name.as_str()).collect();
            let there = there.join(", ");
            TaskError::invalid(format!("there is no output `{name}`; there are {there}"))
                .with_field("outputs")
        })
    };
    let mut wanted = wanted.into_iter().peekable();
    match wanted.peek() {
        None => Ok(outputs),
        Some(_) => wanted.map(pick).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn each_output_is_wanted_once() {
        let once = |wanted: &[&str]| each_once(&names(wanted));
        assert_eq!(once(&[]), Ok(()));
        assert_eq!(once(&["a", "b"]), Ok(()));
        let refused = once(&["a", "b", "a"]).unwrap_err();
        assert!(refused.message.contains("`a`"), "{refused}");
        assert_eq!(refused.field.as_deref(), Some("outputs"));
    }

    #[test]
    fn those_that_are_wanted_come_in_their_order() {
        let outputs = || vec![("a".to_owned(), 1), ("b".to_owned(), 2)];
        let of = |wanted: &[&str]| chosen(outputs(), &names(wanted));
        assert_eq!(of(&[]), Ok(outputs()));
        assert_eq!(of(&["b"]), Ok(vec![("b".to_owned(), 2)]));
        let refused = of(&["b", "c"]).unwrap_err();
        assert!(refused.message.contains("no output `c`"), "{refused}");
    }
}
