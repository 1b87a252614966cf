//! `docs/configuration.md` is what the code says of the files that users write: `cargo xtask docs` writes it, and the test holds that it
//! is up to date. Keys, types and meanings come from the sources; so do defaults, except those that the running code tells.

mod files;
mod source;
mod words;

use files::{Document, Section};
use karman_types::parse_duration;
use serde_json::Value;
use source::Key;
use std::path::Path;
use std::time::Duration;

const INTRO: &str = "# Configuration reference

Every key of every file that you write. This page is made from the code by `cargo xtask docs`; change the code, not the page.

A key that is not here is an error that names the nearest known one. *required* stands where a key may not be left out, and – where there is
nothing if it is. How values are written:

| type | written |
|---|---|
| text, path | `\"…\"` |
| size | `\"64 MiB\"`: a whole number of `B`, `KiB`, `MiB` or `GiB` |
| duration | `\"200 ms\"`: a whole number of `us`, `ms`, `s`, `min`, `h` or `d` |
| rate | `\"2 Mbit/s\"`: a whole number of `bit/s`, `kbit/s`, `Mbit/s` or `Gbit/s`, multiples of 1000 |
| moment | `\"2026-11-21T10:21:04Z\"` (RFC 3339) |
| address | `\"127.0.0.1:8080\"`: of this machine, with a port |
| node | `\"9c01d2e7a0b1c2d3\"`: a node's whole id |
| public key | `\"ed25519:…\"` |
| multiaddr | `\"/ip4/192.0.2.7/udp/7117/quic-v1\"`, as libp2p writes addresses |
| grant | `\"nn:digits-*\"`: see [Grants](plugins.md#grants) |
| right | `\"infer:*\"`: see [The gateway](gateway.md) |
| value | a text, a number, `true` or `false` |
| … by name | a table: `{ NAME = … }` |
";

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_reference_of_configuration_says_what_the_code_does() {
    let path = root().join("docs/configuration.md");
    let says = reference();
    if std::env::var_os("KARMAN_WRITE_DOCS").is_some() {
        std::fs::write(&path, says).unwrap();
        return;
    }
    let stands = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = |(at, line): (usize, &str)| {
        (stands.lines().nth(at) != Some(line)).then_some((at + 1, line.to_owned()))
    };
    let first = says.lines().enumerate().find_map(differs);
    assert!(
        stands == says,
        "docs/configuration.md is not what the code says; `cargo xtask docs` writes it. The first line that differs: {first:?}"
    );
}

/// All of the page.
fn reference() -> String {
    let mut page = INTRO.to_owned();
    for document in files::documents() {
        page += &format!("\n## {}\n\n{}\n", document.title, document.about);
        for section in &document.sections {
            page += &whole(&document, section);
        }
    }
    page
}

/// One table of a file.
fn whole(document: &Document, section: &Section) -> String {
    let mut text = String::new();
    if !section.heading.is_empty() {
        let choice = section.choice.as_ref().map(|choice| format!(" with `{choice}`"));
        text += &format!(
            "\n### `{}`{}\n\n{}\n",
            section.heading,
            choice.unwrap_or_default(),
            section.table.about
        );
    }
    let keys = &section.table.keys;
    if keys.is_empty() {
        return text + "\nNo further keys.\n";
    }
    for known in section.defaults.as_object().into_iter().flatten() {
        let named = keys.iter().any(|key| key.name == *known.0) || section.tag.as_ref() == Some(known.0);
        assert!(
            named,
            "`{}` of {} is read, but its source does not show it",
            known.0, document.title
        );
    }
    text += "\n| key | type | default | meaning |\n|---|---|---|---|\n";
    for key in keys {
        text += &row(document, section, key);
    }
    text
}

fn row(document: &Document, section: &Section, key: &Key) -> String {
    let place = format!("`{}` of {}", key.name, document.title);
    assert!(!key.doc.is_empty(), "{place} has no doc comment");
    let path = match section.path() {
        "" => key.name.clone(),
        path => format!("{path}.{}", key.name),
    };
    let table = document
        .sections
        .iter()
        .find(|section| section.path().trim_end_matches(".NAME") == path);
    let kind = match table {
        Some(table) => format!("`{}`", table.heading),
        None => source::kind(&section.file, &key.ty),
    };
    let read = shown(&section.defaults[&key.name], &kind).filter(|_| !key.required);
    let (default, meaning) = match (read, Said::of(&key.doc)) {
        (Some(read), Some(said)) if said.bare => (read, said.rest),
        (Some(read), _) => (read, key.doc.clone()),
        (None, Some(said)) => (said.default, said.rest),
        (None, None) if key.required => ("*required*".into(), key.doc.clone()),
        (None, None) => ("–".into(), key.doc.clone()),
    };
    let cells = [format!("`{}`", key.name), kind, default, meaning].map(|cell| cell.replace('|', "\\|"));
    format!("| {} |\n", cells.join(" | "))
}

/// What a doc comment says of a default, and what it says besides.
struct Said {
    default: String,
    rest: String,
    /// It says the value and nothing more.
    bare: bool,
}

impl Said {
    fn of(doc: &str) -> Option<Self> {
        let (before, after) = match doc.strip_prefix("Default") {
            Some(after) => ("", after),
            None => doc.split_once(" Default")?,
        };
        let end = after.find(". ").map_or(after.len(), |at| at + 1);
        let default = after[..end].trim_start_matches(':').trim();
        let default = default.strip_suffix('.').unwrap_or(default);
        let value = default.starts_with(|c: char| c.is_ascii_digit() || c == '`')
            || ["true", "false"].contains(&default);
        let rest = format!("{} {}", before.trim_end(), after[end..].trim_start());
        Some(Self {
            default: default.to_owned(),
            rest: rest.trim().to_owned(),
            bare: value && ![", ", ": ", "; "].iter().any(|more| default.contains(more)),
        })
    }
}

/// A default as it would be written; none for what is empty, or a table of its own.
fn shown(value: &Value, kind: &str) -> Option<String> {
    match value {
        Value::Bool(_) | Value::Number(_) => Some(format!("`{value}`")),
        Value::String(text) if !text.is_empty() => {
            let time = parse_duration(text).ok().filter(|_| kind == "duration");
            Some(format!("`\"{}\"`", time.map_or_else(|| text.clone(), units)))
        }
        Value::Array(items) if !items.is_empty() => Some(format!("`{value}`")),
        _ => None,
    }
}

/// In the largest unit of which it is a whole number.
fn units(time: Duration) -> String {
    let scales = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
    ];
    let micros = time.as_micros();
    match scales
        .into_iter()
        .find(|(scale, _)| micros > 0 && micros.is_multiple_of(*scale))
    {
        Some((scale, unit)) => format!("{} {unit}", micros / scale),
        None => format!("{micros} us"),
    }
}

#[test]
fn a_default_is_told_from_what_else_a_comment_says() {
    let said = |doc| Said::of(doc).map(|said| (said.default, said.rest, said.bare));
    assert_eq!(
        said("Bytes of one key. Default 1 KiB."),
        Some(("1 KiB".into(), "Bytes of one key.".into(), true))
    );
    assert_eq!(
        said("How long. Default 20,000. It counts."),
        Some(("20,000".into(), "How long. It counts.".into(), true))
    );
    assert_eq!(
        said("Who. Default: the first one, if any."),
        Some(("the first one, if any".into(), "Who.".into(), false))
    );
    assert_eq!(said("Without one."), None);
    assert_eq!(units(Duration::from_secs(604_800)), "7 d");
    assert_eq!(units(Duration::from_secs(90)), "90 s");
}
