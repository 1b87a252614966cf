//! The limit that an error is about: its name and the value that it had then, in the words of the error.
//!
//! Whoever fails a run writes both into the message, which is kept with the run; whoever tells why it failed reads them there. So
//! the value is the one that the run has met, whatever the configuration says by now.

use karman_types::{ErrorKind, TaskError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A limit that was reached.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Limit {
    /// Its name: that of a key of the configuration (`keepers.entry`), or of the workflow (`deadline`).
    pub name: String,
    /// Its value then, with its unit: `64 KiB`. Nothing where the error does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Limit {
    /// One of this value.
    pub fn new(name: &str, value: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            value: Some(value.into()),
        }
    }

    /// An error about it. The message has to have it as it is displayed.
    pub fn error(&self, kind: ErrorKind, says: impl Into<String>) -> TaskError {
        TaskError::new(kind, says).with_field(&*self.name)
    }

    /// The one that an error is about, if it is about one.
    pub fn of(error: &TaskError) -> Option<Self> {
        let says = &error.message;
        let name = match &error.field {
            Some(field) => field.as_str(),
            // What an accepted task fails with that has reached one names it in words alone.
            None if error.kind == ErrorKind::Limit => between(says, "the limit `", "`")?,
            None => return None,
        };
        let value = between(says, &format!("`{name}` ("), ")")
            .or_else(|| between(says, &format!("the limit `{name}` of "), " is reached"));
        let is_one = value.is_some() || matches!(error.kind, ErrorKind::Limit | ErrorKind::Deadline);
        is_one.then(|| Self {
            name: name.into(),
            value: value.map(Into::into),
        })
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        match &self.value {
            Some(value) => write!(f, " ({value})"),
            None => Ok(()),
        }
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_from_the_error_that_it_was_written_into() {
        for kind in [ErrorKind::Limit, ErrorKind::Deadline, ErrorKind::Failed] {
            let limit = Limit::new("keepers.entry", "64 KiB");
            let error = limit.error(kind, format!("`c` failed: {limit} is too little; look (there)"));
            assert_eq!(Limit::of(&error), Some(limit));
        }
    }

    #[test]
    fn one_of_accepted_tasks_is_read_from_its_words() {
        let words = "the limit `keepers.entry` of 65536 is reached: try again later";
        let limit = Limit::of(&TaskError::limit(words));
        assert_eq!(limit, Some(Limit::new("keepers.entry", "65536")));
    }

    #[test]
    fn what_is_about_no_limit_names_none() {
        for error in [
            TaskError::failed("it broke"),
            TaskError::invalid("`when` is none").with_field("when"),
            TaskError::deadline("the time of the task is over"),
        ] {
            assert_eq!(Limit::of(&error), None, "{error}");
        }
        let unsaid = TaskError::deadline("too late").with_field("deadline");
        assert_eq!(
            Limit::of(&unsaid).map(|limit| limit.to_string()).as_deref(),
            Some("`deadline`")
        );
    }
}
