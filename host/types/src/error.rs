use serde::{Deserialize, Serialize};
use std::fmt;

/// How a task ends when it does not succeed: one kind for each case of `karman:task/types.error`.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorKind {
    /// The task ran and failed.
    Failed,
    /// Wrong usage or bad input.
    Invalid,
    /// A grant, token or signature is missing.
    Denied,
    /// No provider, no link, no GPU.
    Unavailable,
    /// The caller's time is over.
    Deadline,
    /// A limit on memory, output, concurrency or fuel was reached.
    Limit,
    /// The caller withdrew the task.
    Cancelled,
    /// A defect of the plugin or of the host.
    Internal,
}

impl ErrorKind {
    /// Every kind, in the order of the WIT variant.
    pub const ALL: [Self; 8] = [
        Self::Failed,
        Self::Invalid,
        Self::Denied,
        Self::Unavailable,
        Self::Deadline,
        Self::Limit,
        Self::Cancelled,
        Self::Internal,
    ];

    /// The exit code of the command line.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Failed => 1,
            Self::Invalid => 2,
            Self::Denied => 3,
            Self::Unavailable => 4,
            Self::Deadline | Self::Limit | Self::Cancelled => 5,
            Self::Internal => 6,
        }
    }

    /// The status of an HTTP answer.
    pub const fn http_status(self) -> u16 {
        match self {
            Self::Failed => 422,
            Self::Invalid => 400,
            Self::Denied => 403,
            Self::Unavailable => 503,
            Self::Deadline => 504,
            Self::Limit => 429,
            Self::Cancelled => 499,
            Self::Internal => 500,
        }
    }

    /// The name used in logs, metrics and `--json` output.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Invalid => "invalid",
            Self::Denied => "denied",
            Self::Unavailable => "unavailable",
            Self::Deadline => "deadline",
            Self::Limit => "limit",
            Self::Cancelled => "cancelled",
            Self::Internal => "internal",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A task that did not succeed: what failed with the value that did, and what to do next.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct TaskError {
    /// Which way it failed.
    pub kind: ErrorKind,
    /// What failed, with the value that did.
    pub message: String,
    /// What to do next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field of the input, manifest or configuration that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl TaskError {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            field: None,
        }
    }

    /// The same error with what to do next.
    #[must_use]
    pub fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same error with the field that is wrong.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// The task ran and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Failed, message)
    }

    /// Wrong usage or bad input.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// A grant, token or signature is missing.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Denied, message)
    }

    /// No provider, no link, no GPU.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unavailable, message)
    }

    /// The caller's time is over.
    pub fn deadline(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Deadline, message)
    }

    /// A limit was reached.
    pub fn limit(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Limit, message)
    }

    /// The caller withdrew the task.
    pub fn cancelled(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Cancelled, message)
    }

    /// A defect of the plugin or of the host.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_serialised_ones() {
        for kind in ErrorKind::ALL {
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
            assert!((1..=6).contains(&kind.exit_code()));
        }
    }
}
