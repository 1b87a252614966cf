//! Where words go: results on standard output, everything else on standard error.

use crate::error::Worded;
use karman_types::{ErrorKind, NodeId, TaskError};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// The two streams and how they are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// One object per line instead of text.
    pub(crate) json: bool,
    /// Nothing but results and errors.
    pub(crate) quiet: bool,
    colours: bool,
}

impl Output {
    pub(crate) fn new(json: bool, quiet: bool) -> Self {
        let wanted = |name: &str| std::env::var_os(name).is_none_or(|value| value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self {
            json,
            quiet,
            colours: wanted("NO_COLOR") && !dumb,
        }
    }

    /// Whether standard output takes colours.
    pub(crate) fn colour_out(&self) -> bool {
        self.colours && io::stdout().is_terminal()
    }

    /// Whether standard error takes colours.
    pub(crate) fn colour_err(&self) -> bool {
        self.colours && io::stderr().is_terminal()
    }

    /// Whether a person watches standard error.
    pub(crate) fn shows_progress(&self) -> bool {
        !self.quiet && !self.json && io::stderr().is_terminal()
    }

    /// A result as it is. A reader that has gone away has seen enough: the program ends.
    ///
    /// # Errors
    /// When the stream cannot be written: a full disk, say.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> Result<(), TaskError> {
        let mut out = io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written
            .or_else(end_if_unread)
            .map_err(|error| TaskError::unavailable(format!("standard output cannot be written: {error}")))
    }

    /// One line of result.
    ///
    /// # Errors
    /// Those of [`Output::bytes`].
    pub(crate) fn line(&self, text: impl Display) -> Result<(), TaskError> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// A result: text for people, one object for programs.
    ///
    /// # Errors
    /// Those of [`Output::bytes`].
    pub(crate) fn result(
        &self,
        text: impl FnOnce() -> String,
        object: impl FnOnce() -> Value,
    ) -> Result<(), TaskError> {
        match self.json {
            true => self.line(object()),
            false => self.line(text()),
        }
    }

    /// A word besides the result, on standard error.
    pub(crate) fn note(&self, text: impl Display) {
        if !self.quiet && !self.json {
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// What failed on some of several nodes: each is said as an error, the last as that of the command.
    ///
    /// # Errors
    /// When there is one.
    pub(crate) fn failures(&self, failed: Vec<(NodeId, TaskError)>) -> Result<(), TaskError> {
        let mut failed = failed.into_iter().map(|(node, mut error)| {
            error.message = format!("node {}: {}", node.short(), error.message);
            error
        });
        let last = failed.next_back();
        failed.for_each(|error| self.error(&error));
        last.map_or(Ok(()), Err)
    }

    /// An error: two lines, or one object.
    pub(crate) fn error(&self, error: &TaskError) {
        let (error, hint) = advised(error);
        let text = match (self.json, self.colour_err()) {
            (true, _) => json!({
                "code": error.kind, "message": error.message, "hint": hint, "field": error.field,
            })
            .to_string(),
            (_, true) => format!(
                "\x1b[1;31merror:\x1b[0m {}\n  \x1b[1mhint:\x1b[0m {hint}",
                error.message
            ),
            (_, false) => format!("error: {}\n  hint: {hint}", error.message),
        };
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// Ends the program when nobody reads its output any more: there is nothing left to do or to say.
///
/// # Errors
/// Any other error, as it was.
pub(crate) fn end_if_unread<T>(error: io::Error) -> io::Result<T> {
    match error.kind() {
        io::ErrorKind::BrokenPipe => std::process::exit(0),
        _ => Err(error),
    }
}

/// An error, and what to do next: what it says of that itself, in its hint or behind its last semicolon, or else what helps with its kind.
/// The words of a task that failed are its own and stay whole.
fn advised(error: &TaskError) -> (TaskError, String) {
    let mut error = match error.kind {
        ErrorKind::Failed => error.clone(),
        _ => error.clone().worded(),
    };
    let hint = error.hint.take().unwrap_or_else(|| hint_of(error.kind).into());
    (error, hint)
}

/// What to do next where the error itself does not say.
const fn hint_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Failed => "the task itself failed: look at its input; -v shows what it wrote",
        ErrorKind::Invalid => "`karman COMMAND --help` shows what it takes",
        ErrorKind::Denied => {
            "`karman inspect PLUGIN` shows what a plugin may do, `karman doctor` what this node is a member of"
        }
        ErrorKind::Unavailable => "`karman doctor` shows what this machine lacks",
        ErrorKind::Deadline => "give it more time with --within, or with `limits.time` in its manifest",
        ErrorKind::Limit => "`karman inspect PLUGIN` shows its limits",
        ErrorKind::Cancelled => "try again",
        ErrorKind::Internal => "try again with -vv and report what it shows",
    }
}

/// Rows as a table: each column as wide as its widest cell, no spaces at the end.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..columns)
        .map(|column| width(column).unwrap_or_default())
        .collect();
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        cells.join("   ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [
            vec!["NAME".into(), "CALLS".into()],
            vec!["event-screen".into(), "3".into()],
        ];
        assert_eq!(table(&rows), "NAME           CALLS\nevent-screen   3");
    }

    #[test]
    fn an_errors_own_hint_comes_before_that_of_its_kind() {
        let said = |error: TaskError| {
            let (error, hint) = advised(&error);
            format!("{} | {hint}", error.message)
        };
        assert_eq!(
            said(TaskError::denied("no right; ask for one")),
            "no right | ask for one"
        );
        assert_eq!(said(TaskError::denied("a; b").with_hint("c")), "a; b | c");
        assert!(said(TaskError::denied("no right")).starts_with("no right | `karman inspect PLUGIN`"));
        let failed = TaskError::new(ErrorKind::Failed, "no page 7; it has 6");
        assert!(said(failed).starts_with("no page 7; it has 6 | the task itself failed"));
    }
}
