use crate::cli;
use crate::error;
use bytes::Bytes;
use clap::Args;
use karman_types::{ByteSize, Limits, TaskError, parse_duration};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::time::Duration;

/// The longest file that describes a workflow, a run or a scenario.
const MOST_TEXT: ByteSize = ByteSize::mib(16);

/// How a call goes: for `run`, `dev` and `call`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CallArgs {
    /// Media type of the input [default: by its extension or content]
    #[arg(long, value_name = "TYPE")]
    pub(crate) content_type: Option<String>,
    /// Metadata of the request; may be given again
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = cli::pair)]
    pub(crate) metadata: Vec<(String, String)>,
    /// The time it may take, such as 200ms; its own limit binds besides
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) within: Option<Duration>,
}

/// What goes into a task.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) body: Bytes,
    pub(crate) content_type: String,
}

impl Input {
    /// Reads a file, or standard input for `-`; nothing gives an empty input.
    ///
    /// # Errors
    /// `invalid` when the file is not there, `limit` when it has more than `most`.
    pub(crate) fn read(
        source: Option<&str>,
        content_type: Option<&str>,
        most: ByteSize,
    ) -> Result<Self, TaskError> {
        let body = match source {
            None => Bytes::new(),
            Some("-") => whole("standard input", std::io::stdin().lock(), most)?,
            Some(path) => {
                let path = Path::new(path);
                whole(&path.display().to_string(), open(path)?, most)?
            }
        };
        let guessed = || type_of(source.filter(|source| *source != "-").map(Path::new), &body);
        Ok(Self {
            content_type: content_type.map_or_else(|| guessed().to_owned(), str::to_owned),
            body,
        })
    }
}

/// The text of a file that describes something, or of standard input for `-`.
///
/// # Errors
/// Those of the file; `limit`, with the file, for one that is no description by its length.
pub(crate) fn text(file: &Path) -> Result<String, TaskError> {
    let read = match is_standard(file) {
        true => described(std::io::stdin().lock()),
        false => File::open(file).and_then(described),
    };
    let bytes = read.map_err(|failed| error::file(file, &failed))?;
    let name = file.display().to_string();
    if bytes.len() as u64 > MOST_TEXT.0 {
        let error = TaskError::limit(format!(
            "{name} has more than the {MOST_TEXT} that a description has"
        ));
        let hint = "name the file that describes it; data have files of their own";
        return Err(error.with_field(name).with_hint(hint));
    }
    let text = String::from_utf8(bytes);
    text.map_err(|failed| error::file(file, &io::Error::new(ErrorKind::InvalidData, failed)))
}

/// One byte more than a description has tells that it is none.
fn described(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MOST_TEXT.0 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether a file is standard input, or output.
pub(crate) fn is_standard(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// Standard input is read once.
///
/// # Errors
/// `invalid` when both are it.
pub(crate) fn not_both_standard(file: &Path, other: Option<&str>) -> Result<(), TaskError> {
    match is_standard(file) && other == Some("-") {
        true => Err(
            TaskError::invalid("two files are `-`, and standard input is only one")
                .with_field("input")
                .with_hint("name a file for one of them"),
        ),
        false => Ok(()),
    }
}

/// What a file in TOML describes, read as `from_toml` reads it.
///
/// # Errors
/// Those of the file; `invalid`, with the file and what is wrong with it, when it does not read.
pub(crate) fn toml<T, E: Display>(
    file: &Path,
    from_toml: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, TaskError> {
    let text = text(file)?;
    let name = file.display().to_string();
    from_toml(&text).map_err(|wrong| TaskError::invalid(format!("{name}: {wrong}")).with_field(name))
}

/// Opens an input file.
///
/// # Errors
/// `invalid` when it is not there.
pub(crate) fn open(path: &Path) -> Result<File, TaskError> {
    let opened = File::open(path).map_err(|error| error::file(path, &error).with_field("input"))?;
    match opened.metadata() {
        Ok(data) if data.is_dir() => Err(TaskError::invalid(format!("{} is a folder", path.display()))
            .with_hint("name a file, or - for standard input")),
        _ => Ok(opened),
    }
}

fn whole(name: &str, from: impl Read, most: ByteSize) -> Result<Bytes, TaskError> {
    let mut bytes = Vec::new();
    let read = from.take(most.0.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| TaskError::unavailable(format!("{name} cannot be read: {error}")))?;
    if bytes.len() as u64 > most.0 {
        return Err(too_long(name, most));
    }
    Ok(bytes.into())
}

fn too_long(name: &str, most: ByteSize) -> TaskError {
    let (whose, hint) = match most >= Limits::ceiling().input {
        true => (
            "any task",
            "split the input, or give it to a plugin of streams (`karman:task/task-stream`), by `karman run` or over HTTP",
        ),
        false => (
            "the plugin",
            "split the input, or raise `limits.input` in the manifest",
        ),
    };
    TaskError::limit(format!("{name} has more than the {most} that {whose} takes"))
        .with_field("body")
        .with_hint(hint)
}

/// The media type of an input, by its file's extension, else by its content; empty where neither says.
pub(crate) fn type_of(path: Option<&Path>, body: &[u8]) -> &'static str {
    let extension = path
        .and_then(Path::extension)
        .and_then(|text| text.to_str())
        .unwrap_or_default();
    match extension.to_ascii_lowercase().as_str() {
        "cbor" => "application/cbor",
        "csv" => "text/csv",
        "gif" => "image/gif",
        "htm" | "html" => "text/html",
        "jpeg" | "jpg" => "image/jpeg",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "log" | "txt" => "text/plain",
        "md" => "text/markdown",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "npy" => "application/x-npy",
        "pdf" => "application/pdf",
        "pgm" => "image/x-portable-graymap",
        "png" => "image/png",
        "ppm" => "image/x-portable-pixmap",
        "svg" => "image/svg+xml",
        "tif" | "tiff" => "image/tiff",
        "toml" => "application/toml",
        "wav" => "audio/wav",
        "webp" => "image/webp",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        _ if body.starts_with(b"\x89PNG\r\n\x1a\n") => "image/png",
        _ if body.starts_with(b"\xff\xd8\xff") => "image/jpeg",
        _ if is_json(body) => "application/json",
        _ => "",
    }
}

/// An object or a list: a bare number or word may be anything.
fn is_json(body: &[u8]) -> bool {
    begins_as_json(body) && serde_json::from_slice::<serde::de::IgnoredAny>(body).is_ok()
}

/// Whether it begins like an object or a list.
pub(crate) fn begins_as_json(body: &[u8]) -> bool {
    let start = body.iter().find(|byte| !byte.is_ascii_whitespace());
    matches!(start, Some(b'{' | b'['))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::from_toml;
    use std::collections::BTreeMap;

    type Table = BTreeMap<String, u32>;

    #[test]
    fn the_type_is_guessed() {
        assert_eq!(type_of(Some(Path::new("a/Seven.PNG")), b""), "image/png");
        assert_eq!(type_of(None, b" {\"name\": \"Ada\"}\n"), "application/json");
        assert_eq!(type_of(None, b"{ not json"), "");
        assert_eq!(type_of(Some(Path::new("data")), b"[1]"), "application/json");
        assert_eq!(type_of(None, b"7"), "");
    }

    #[test]
    fn a_description_that_does_not_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("flow.toml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            toml(&file, from_toml::<Table>)
        };
        assert_eq!(read("a = 1").unwrap().len(), 1);
        let wrong = read("a = ").unwrap_err();
        assert_eq!(wrong.field.as_deref(), file.to_str());
        assert!(wrong.message.starts_with(file.to_str().unwrap()), "{wrong}");
        let missing = toml(&folder.path().join("no"), from_toml::<Table>).unwrap_err();
        assert_eq!(missing.kind, karman_types::ErrorKind::Invalid);
    }

    #[test]
    fn what_is_far_too_long_for_a_description_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.toml");
        let file = File::create(&path).unwrap();
        file.set_len(MOST_TEXT.0).unwrap();
        assert_eq!(text(&path).unwrap().len() as u64, MOST_TEXT.0);
        file.set_len(64 * MOST_TEXT.0).unwrap();
        let error = text(&path).unwrap_err();
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (karman_types::ErrorKind::Limit, path.to_str())
        );
        std::fs::write(&path, b"name = \"\xff\"").unwrap();
        assert!(text(&path).unwrap_err().message.contains("utf-8"));
    }

    #[test]
    fn a_long_input_is_refused() {
        let error = whole("it", &[0; 5][..], ByteSize(4)).unwrap_err();
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (karman_types::ErrorKind::Limit, Some("body"))
        );
        assert!(error.hint.unwrap().contains("`limits.input`"));
        assert_eq!(whole("it", &[0; 4][..], ByteSize(4)).unwrap().len(), 4);
        // No manifest may raise this one.
        let most = too_long("it", Limits::ceiling().input);
        assert!(most.hint.unwrap().contains("a plugin of streams"));
    }
}
