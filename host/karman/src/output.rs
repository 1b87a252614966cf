//! Where words go: results on standard output, everything else on standard error.

use crate::cli;
use crate::error::Worded;
use karman_node::OnNode;
use karman_types::{ErrorKind, NodeId, TaskError, escape_steering};
use serde_json::{Value, json};
use std::borrow::Cow;
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

    /// One line of result, or several.
    ///
    /// # Errors
    /// Those of [`Output::bytes`].
    pub(crate) fn line(&self, text: impl Display) -> Result<(), TaskError> {
        let text = format!("{text}\n");
        match self.json {
            true => self.bytes(text.as_bytes()),
            false => self.bytes(printable(&text).as_bytes()),
        }
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
            say(text);
        }
    }

    /// What is wrong with a result that stands all the same: said to people whatever they left out. Programs find it in the result.
    pub(crate) fn warning(&self, text: impl Display) {
        if !self.json {
            say(format_args!("warning: {text}"));
        }
    }

    /// What came of an order on several nodes. `show` is for what was done. What failed is said after that, each as an error, the last as
    /// that of the command.
    ///
    /// # Errors
    /// When one failed; those of `show`.
    pub(crate) fn on_nodes<T>(
        &self,
        outcomes: Vec<OnNode<T>>,
        show: impl Fn(NodeId, T) -> Result<(), TaskError>,
    ) -> Result<(), TaskError> {
        let mut failed = Vec::new();
        for OnNode { node, outcome } in outcomes {
            match outcome {
                Ok(done) => show(node, done)?,
                Err(mut error) => {
                    error.message = format!("node {}: {}", node.short(), error.message);
                    failed.push(error);
                }
            }
        }
        let last = failed.pop();
        failed.iter().for_each(|error| self.error(error));
        last.map_or(Ok(()), Err)
    }

    /// An error: two lines, or one object.
    pub(crate) fn error(&self, error: &TaskError) {
        let (error, hint) = advised(error);
        let (message, advice) = (printable(&error.message), printable(&hint));
        let text = match (self.json, self.colour_err()) {
            (true, _) => json!({
                "code": error.kind, "message": error.message, "hint": hint, "field": error.field,
            })
            .to_string(),
            (_, true) => format!("\x1b[1;31merror:\x1b[0m {message}\n  \x1b[1mhint:\x1b[0m {advice}"),
            (_, false) => format!("error: {message}\n  hint: {advice}"),
        };
        let _ = writeln!(io::stderr().lock(), "{text}");
    }
}

/// A line on standard error.
fn say(text: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{}", printable(&text.to_string()));
}

/// A text as it may go to a terminal, which a plugin, a file's name or another node may have a part in.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    escape_steering(text, &['\n', '\t'])
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
    let hint = error.hint.take().unwrap_or_else(|| hint_of(error.kind));
    (error, hint)
}

/// What to do next where the error itself does not say.
fn hint_of(kind: ErrorKind) -> String {
    let hint = match kind {
        ErrorKind::Failed => "the task itself failed: look at its input; -v shows what it wrote",
        ErrorKind::Invalid => return cli::see_help(),
        ErrorKind::Denied => {
            "`karman inspect PLUGIN` shows what a plugin may do, `karman doctor` what this node is a member of"
        }
        ErrorKind::Unavailable => "`karman doctor` shows what this machine lacks",
        ErrorKind::Deadline => "give it more time with --within, or with `limits.time` in its manifest",
        ErrorKind::Limit => "`karman inspect PLUGIN` shows its limits",
        ErrorKind::Cancelled => "try again",
        ErrorKind::Internal => "try again with -vv and report what it shows",
    };
    hint.into()
}

/// Rows as a table: each column as wide as its widest cell, no spaces at the end. What a cell holds makes no rows of its own.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let cells = |row: &Vec<String>| -> Vec<String> {
        row.iter()
            .map(|cell| escape_steering(cell, &[]).into_owned())
            .collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
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
    fn nothing_that_is_printed_speaks_to_the_terminal() {
        assert_eq!(
            printable("fail \x1b[31m\x1b]0;pwn\x07\rX\n\ttwo\u{202e}"),
            "fail \\u{1b}[31m\\u{1b}]0;pwn\\u{7}\\rX\n\ttwo\\u{202e}"
        );
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
