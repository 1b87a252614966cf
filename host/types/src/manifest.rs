use crate::{ByteSize, Grant, KeyError, Limits, TaskContract, from_toml, is_steering, nearest};
use semver::Version;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::str::FromStr;

/// What a plugin says of itself: written in `karman.toml`, carried as a custom section of the component.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Manifest {
    /// 1 to 64 lower-case letters, digits and hyphens, no hyphen first.
    pub name: String,
    /// By the rules of semantic versioning.
    #[serde(deserialize_with = "version")]
    pub version: Version,
    /// The interface that it exports: `karman:task/task`, `karman:task/warm-task`, `karman:task/task-stream`, `karman:federated/client`,
    /// `karman:federated/strategy`, `karman:policy/select`, `karman:policy/route`, `karman:policy/place`, `wasi:cli/command`,
    /// `wasi:http/proxy` or `wasi:http/service`.
    pub world: World,
    /// One line for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Who wrote it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub authors: Vec<String>,
    /// An SPDX expression.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub license: String,
    /// The permissions it needs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asks: Vec<Grant>,
    /// The permissions that it uses where they are allowed, and does without where not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<Grant>,
    /// Keeps instances between calls instead of a fresh one for each; one that has state (`lifecycle`) is the only one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub warm: bool,
    /// What it may use.
    #[serde(default)]
    pub limits: Limits,
    /// What it does, for those who look for a task rather than a plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskContract>,
    /// How to build it. Stands in the source tree only: the component does not carry it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<Build>,
}

/// How the source tree becomes a component.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Build {
    /// What it is written in.
    pub lang: Language,
}

/// A language with a template and a build recipe.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Rust, target `wasm32-wasip2`.
    Rust,
    /// C, by Zig's or Debian's clang.
    C,
    /// Python, by `componentize-py`.
    Python,
    /// JavaScript, by `componentize-js`.
    Js,
}

/// The interface that a plugin exports.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum World {
    /// `karman:task/task`, with or without `lifecycle`.
    Task,
    /// `karman:task/task-stream`.
    TaskStream,
    /// `karman:federated/client`: a client of federated learning.
    Client,
    /// `karman:federated/strategy`: what makes the versions of a federated run.
    Strategy,
    /// `karman:policy/select`: a policy that selects models.
    PolicySelect,
    /// `karman:policy/route`: a policy that puts the nodes that could run a call in order.
    PolicyRoute,
    /// `karman:policy/place`: a policy that places the tasks of workflows.
    PolicyPlace,
    /// `wasi:cli/command`.
    Command,
    /// `wasi:http/proxy` (0.2) or `wasi:http/service` (0.3).
    Http,
}

impl World {
    /// The name by which it is written.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Task => "karman:task/task",
            Self::TaskStream => "karman:task/task-stream",
            Self::Client => "karman:federated/client",
            Self::Strategy => "karman:federated/strategy",
            Self::PolicySelect => "karman:policy/select",
            Self::PolicyRoute => "karman:policy/route",
            Self::PolicyPlace => "karman:policy/place",
            Self::Command => "wasi:cli/command",
            Self::Http => "wasi:http/proxy",
        }
    }

    /// Whether a plugin of this world does nothing but decide what the host asks it: it reaches nothing, and is no task.
    pub const fn decides(self) -> bool {
        matches!(
            self,
            Self::Strategy | Self::PolicySelect | Self::PolicyRoute | Self::PolicyPlace
        )
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for World {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = text.split('@').next().unwrap_or_default();
        let known = WORLDS.iter().find(|(known, _)| *known == name);
        known.map(|(_, world)| *world).ok_or_else(|| no_world(text, name))
    }
}

/// Every name by which a manifest may call its world.
const WORLDS: [(&str, World); 11] = [
    ("karman:task/task", World::Task),
    ("karman:task/warm-task", World::Task),
    ("karman:task/task-stream", World::TaskStream),
    ("karman:federated/client", World::Client),
    ("karman:federated/strategy", World::Strategy),
    ("karman:policy/select", World::PolicySelect),
    ("karman:policy/route", World::PolicyRoute),
    ("karman:policy/place", World::PolicyPlace),
    ("wasi:cli/command", World::Command),
    ("wasi:http/proxy", World::Http),
    ("wasi:http/service", World::Http),
];

/// `task` is `karman:task/task`, and so is what is spelt almost so.
fn no_world(text: &str, name: &str) -> String {
    let names = || WORLDS.iter().map(|(known, _)| *known);
    let last = |known: &&str| known.rsplit('/').next() == Some(name);
    let meant = names()
        .find(last)
        .map(str::to_owned)
        .or_else(|| nearest(name, names()));
    match meant {
        Some(meant) => format!("`{text}` is not a world that a node runs; did you mean `{meant}`?"),
        None => format!(
            "`{text}` is not a world that a node runs; the worlds are {}",
            names().collect::<Vec<_>>().join(", ")
        ),
    }
}

crate::serde_as_text!(World);

/// A manifest that no node accepts.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// It does not read.
    #[error("manifest: {0}")]
    Key(#[from] KeyError),
    /// A value outside its bounds.
    #[error("manifest: `{field}` {problem}")]
    Value {
        /// The field.
        field: String,
        /// What is wrong with it, with the value and the bound.
        problem: String,
    },
    /// Too many bytes.
    #[error("manifest: {bytes} bytes are more than the {most} that a manifest may have")]
    TooLong {
        /// What it has.
        bytes: usize,
        /// What it may have.
        most: usize,
    },
}

impl ManifestError {
    /// The field in question, where it is one.
    pub fn field(&self) -> Option<&str> {
        match self {
            Self::Key(error) => error.key(),
            Self::Value { field, .. } => Some(field),
            Self::TooLong { .. } => None,
        }
    }
}

impl Manifest {
    /// The most bytes that a manifest may have as text.
    pub const MAX_BYTES: usize = 64 << 10;

    /// What it does and then its name, `vision/classification/digits/classify`: by which it is found by who looks for what it
    /// does. Nothing where it does not say.
    pub fn capability_name(&self) -> Option<String> {
        let task = self.task.as_ref()?;
        Some(format!("{}/{}", task.capability, self.name))
    }

    /// The manifest of a component that brings none: this name, no permissions, the default limits.
    pub fn foreign(name: &str, world: World) -> Self {
        Self {
            name: plain_name(name),
            version: Version::new(0, 0, 0),
            world,
            description: String::new(),
            authors: Vec::new(),
            license: String::new(),
            asks: Vec::new(),
            optional: Vec::new(),
            warm: false,
            limits: Limits::default(),
            task: None,
            build: None,
        }
    }

    /// Reads and checks a manifest.
    ///
    /// # Errors
    /// Unknown keys (with the nearest known one), missing keys, values outside their bounds, a limit over what any node
    /// grants.
    pub fn from_toml(text: &str) -> Result<Self, ManifestError> {
        if text.len() > Self::MAX_BYTES {
            return Err(ManifestError::TooLong {
                bytes: text.len(),
                most: Self::MAX_BYTES,
            });
        }
        let manifest: Self = from_toml(text)?;
        manifest.check()?;
        Ok(manifest)
    }

    /// All permissions that it has a use for, needed or not.
    pub fn permissions(&self) -> impl Iterator<Item = &Grant> {
        self.asks.iter().chain(&self.optional)
    }

    /// The same manifest as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a manifest has only string keys and finite values")
    }

    fn check(&self) -> Result<(), ManifestError> {
        if self.name.is_empty() || self.name != plain_name(&self.name) {
            return Err(value(
                "name",
                format!(
                    "`{}` is not 1 to 64 lower-case letters, digits and hyphens, no hyphen first",
                    self.name
                ),
            ));
        }
        for (field, count, most) in [
            ("asks", self.asks.len(), 256),
            ("optional", self.optional.len(), 256),
            ("authors", self.authors.len(), 64),
        ] {
            if count > most {
                return Err(value(field, format!("has {count} entries; {most} is the most")));
            }
        }
        self.check_texts()?;
        if let Some((name, asked, most)) = self.limits.over(&Limits::ceiling()) {
            return Err(value(
                &format!("limits.{name}"),
                format!("is {asked}; the most that a node grants is {most}"),
            ));
        }
        if self.limits.memory < LEAST_MEMORY {
            return Err(value(
                "limits.memory",
                format!(
                    "is {}; the least that a component can use is {LEAST_MEMORY}",
                    self.limits.memory
                ),
            ));
        }
        if self.limits.time.is_zero() {
            return Err(value(
                "limits.time",
                "is 0; a call needs some time, as in `200 ms`".into(),
            ));
        }
        if let Some(task) = &self.task {
            task.check()
                .map_err(|error| value(&format!("task.{}", error.field()), error.to_string()))?;
        }
        if self.limits.concurrency == 0 {
            return Err(value(
                "limits.concurrency",
                "is 0; at least 1 call must be possible".into(),
            ));
        }
        Ok(())
    }

    /// What people read before they trust a plugin must not hide or forge anything beside it.
    fn check_texts(&self) -> Result<(), ManifestError> {
        let texts = [("description", &self.description), ("license", &self.license)];
        for (field, text) in texts
            .into_iter()
            .chain(self.authors.iter().map(|author| ("authors", author)))
        {
            if let Some(c) = text.chars().find(|c| is_steering(*c)) {
                let c = c.escape_default();
                return Err(value(
                    field,
                    format!("contains `{c}`; it is one line of printable characters"),
                ));
            }
        }
        Ok(())
    }
}

/// One page of WebAssembly's memory.
const LEAST_MEMORY: ByteSize = ByteSize::kib(64);

fn value(field: &str, problem: String) -> ManifestError {
    ManifestError::Value {
        field: field.into(),
        problem,
    }
}

/// Reads a version, and says how one of too few numbers is written: `1` is `1.0.0`.
fn version<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Version, D::Error> {
    let text = String::deserialize(deserializer)?;
    let whole = || {
        let longer = [".0", ".0.0"].map(|rest| format!("{text}{rest}"));
        longer
            .into_iter()
            .find(|longer| longer.parse::<Version>().is_ok())
    };
    text.parse().map_err(|error: semver::Error| {
        D::Error::custom(match whole() {
            Some(whole) => format!("`{text}` is not a version of three numbers; write `{whole}`"),
            None => format!("`{text}` is not a version such as `0.1.0`: {error}"),
        })
    })
}

fn plain_name(name: &str) -> String {
    // A command line would take a name that begins with a hyphen for an option.
    name.chars()
        .filter(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '-')
        .skip_while(|c| *c == '-')
        .take(64)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        name = "event-screen"
        version = "0.1.0"
        world = "karman:task/task-stream"
        asks = ["kv:road", "call:vision/*"]

        [limits]
        memory = "2 MiB"

        [task]
        capability = "vibration/screening"
        inputs = [{ name = "acceleration", type = "f32", shape = [0], unit = "m/s2" }]
    "#;

    #[test]
    fn a_manifest_reads_what_it_writes() {
        let manifest = Manifest::from_toml(GOOD).unwrap();
        assert_eq!(Manifest::from_toml(&manifest.to_toml()), Ok(manifest));
    }

    #[test]
    fn errors_name_the_field_and_the_bound() {
        for (from, to, field, says) in [
            (
                "memory = \"2 MiB\"",
                "memry = \"2 MiB\"",
                "memry",
                "did you mean `memory`?",
            ),
            (
                "memory = \"2 MiB\"",
                "memory = \"2 GiB\"",
                "limits.memory",
                "1 GiB",
            ),
            (
                "memory = \"2 MiB\"",
                "memory = \"0 MiB\"",
                "limits.memory",
                "64 KiB",
            ),
            (
                "memory = \"2 MiB\"",
                "memory = \"100000\"",
                "limits.memory",
                "a size such as `64 MiB`",
            ),
            (
                "memory = \"2 MiB\"",
                "time = \"0 s\"",
                "limits.time",
                "needs some time",
            ),
            ("\"0.1.0\"", "\"1\"", "version", "write `1.0.0`"),
            ("\"0.1.0\"", "\"1.2\"", "version", "write `1.2.0`"),
            ("\"0.1.0\"", "\"new\"", "version", "such as `0.1.0`"),
            (
                "karman:task/task-stream",
                "task",
                "world",
                "did you mean `karman:task/task`?",
            ),
            (
                "karman:task/task-stream",
                "karman:task/warm_task",
                "world",
                "did you mean `karman:task/warm-task`?",
            ),
            ("event-screen", "Event Screen", "name", "lower-case"),
            ("event-screen", "-x", "name", "no hyphen first"),
            ("kv:road", "vk:road", "asks[0]", "did you mean `kv`?"),
            (
                "karman:task/task-stream",
                "wasi:cli/imports",
                "world",
                "wasi:cli/command",
            ),
        ] {
            let error = Manifest::from_toml(&GOOD.replace(from, to)).unwrap_err();
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!(error.field(), Some(field), "{error}");
        }
    }

    #[test]
    fn no_text_hides_or_forges_what_stands_beside_it() {
        for (line, field) in [
            ("description = \"Counts words\\nasks nothing\"", "description"),
            ("description = \"Counts words\\u001b[8m\"", "description"),
            ("authors = [\"Ada\", \"\\u202eadA\"]", "authors"),
            ("license = \"MIT\\u0007\"", "license"),
        ] {
            let error = Manifest::from_toml(&format!("{line}\n{GOOD}")).unwrap_err();
            assert_eq!(error.field(), Some(field), "{error}");
            assert!(
                error.to_string().contains("one line of printable characters"),
                "{error}"
            );
        }
        let plain = format!("description = \"Zählt Wörter — 数える\"\n{GOOD}");
        assert!(Manifest::from_toml(&plain).is_ok());
    }

    #[test]
    fn a_long_manifest_is_refused_before_it_is_read() {
        let long = " ".repeat(Manifest::MAX_BYTES + 1);
        assert!(matches!(
            Manifest::from_toml(&long),
            Err(ManifestError::TooLong { .. })
        ));
    }
}
