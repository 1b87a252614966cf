use crate::is_steering;
use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A permission that a plugin asks for or holds, written `kind:pattern`. `*` in a pattern stands for any run of
/// characters.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[non_exhaustive]
pub enum Grant {
    /// `call:PATTERN`: call other tasks by name.
    Call(String),
    /// `clock:fine`: a monotonic clock finer than a millisecond.
    FineClock,
    /// `config:PATTERN`: read these configuration keys.
    Config(String),
    /// `env:NAME`: see this variable of the host's environment.
    Env(String),
    /// `fs:PATH` or `fs:PATH:rw`: see this folder of the host, read-only unless `rw`.
    Folder(String, Access),
    /// `gpu:kernels`: run the host's kernels on its devices.
    GpuKernels,
    /// `gpu:shaders`: run shaders of its own on a GPU, and the host's kernels.
    GpuShaders,
    /// `http:HOST` or `http:HOST:PORT`: reach this host. Private and metadata addresses stay refused, and those of the node.
    Http(String),
    /// `http-private:HOST`: reach this host even where its name resolves to a private address.
    HttpPrivate(String),
    /// `kv:BUCKET`: open this bucket.
    KeyValue(String),
    /// `nn:MODEL`: load this model by name.
    Model(String),
    /// `nn-raw:tract`: load model bytes of its own, in the built-in back-end with its limits.
    RawModel,
    /// `nn-raw:native`: load model bytes of its own in a native runtime.
    RawModelNative,
    /// `secret:NAME`: read this secret through `wasi:config`.
    Secret(String),
}

/// What may be done in a folder.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and write.
    ReadWrite,
}

/// A text that is no grant.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not a grant: {why}")]
pub struct GrantError {
    text: String,
    why: String,
}

const KINDS: [&str; 12] = [
    "call",
    "clock",
    "config",
    "env",
    "fs",
    "gpu",
    "http",
    "http-private",
    "kv",
    "nn",
    "nn-raw",
    "secret",
];

impl Grant {
    /// Whether holding `self` allows what `asked` names.
    pub fn covers(&self, asked: &Self) -> bool {
        match (self, asked) {
            (Self::Call(held), Self::Call(name))
            | (Self::Config(held), Self::Config(name))
            | (Self::Env(held), Self::Env(name))
            | (Self::KeyValue(held), Self::KeyValue(name))
            | (Self::Model(held), Self::Model(name))
            | (Self::Secret(held), Self::Secret(name)) => pattern_matches(held, name),
            (Self::Http(held), Self::Http(host)) | (Self::HttpPrivate(held), Self::HttpPrivate(host)) => {
                host_matches(held, host)
            }
            (Self::Folder(held, access), Self::Folder(path, wanted)) => {
                wanted <= access && folder_contains(held, path)
            }
            (Self::GpuShaders, Self::GpuKernels) => true,
            _ => self == asked,
        }
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(name) => write!(f, "call:{name}"),
            Self::FineClock => f.write_str("clock:fine"),
            Self::Config(key) => write!(f, "config:{key}"),
            Self::Env(name) => write!(f, "env:{name}"),
            Self::Folder(path, Access::Read) => write!(f, "fs:{path}"),
            Self::Folder(path, Access::ReadWrite) => write!(f, "fs:{path}:rw"),
            Self::GpuKernels => f.write_str("gpu:kernels"),
            Self::GpuShaders => f.write_str("gpu:shaders"),
            Self::Http(host) => write!(f, "http:{host}"),
            Self::HttpPrivate(host) => write!(f, "http-private:{host}"),
            Self::KeyValue(bucket) => write!(f, "kv:{bucket}"),
            Self::Model(name) => write!(f, "nn:{name}"),
            Self::RawModel => f.write_str("nn-raw:tract"),
            Self::RawModelNative => f.write_str("nn-raw:native"),
            Self::Secret(name) => write!(f, "secret:{name}"),
        }
    }
}

impl FromStr for Grant {
    type Err = GrantError;

    fn from_str(text: &str) -> Result<Self, GrantError> {
        let error = |why: String| GrantError {
            text: text.into(),
            why,
        };
        let (kind, rest) = text
            .split_once(':')
            .ok_or_else(|| error("it is written `kind:pattern`, as in `http:example.org`".into()))?;
        if rest.is_empty() || rest.len() > 1024 || rest.contains(is_steering) {
            return Err(error(format!(
                "what follows `{kind}:` has 1 to 1024 printable characters"
            )));
        }
        Ok(match kind {
            "call" => Self::Call(rest.into()),
            "config" => Self::Config(rest.into()),
            "env" => Self::Env(rest.into()),
            "fs" => folder(rest).map_err(error)?,
            "http" => Self::Http(host(kind, rest).map_err(error)?),
            "http-private" => Self::HttpPrivate(host(kind, rest).map_err(error)?),
            "https" => return Err(error(no_host("http", rest))),
            "kv" => Self::KeyValue(rest.into()),
            "nn" => Self::Model(rest.into()),
            "secret" => Self::Secret(rest.into()),
            "clock" if rest == "fine" => Self::FineClock,
            "gpu" if rest == "kernels" => Self::GpuKernels,
            "gpu" if rest == "shaders" => Self::GpuShaders,
            "nn-raw" if rest == "tract" => Self::RawModel,
            "nn-raw" if rest == "native" => Self::RawModelNative,
            "clock" => return Err(error("the only clock to ask for is `clock:fine`".into())),
            "gpu" => return Err(error("ask for `gpu:kernels` or `gpu:shaders`".into())),
            "nn-raw" => return Err(error("ask for `nn-raw:tract` or `nn-raw:native`".into())),
            _ => return Err(error(unknown_kind(kind))),
        })
    }
}

/// A host, with its port where only one is meant. What has more to it, as a URL does, would match nothing.
fn host(kind: &str, rest: &str) -> Result<String, String> {
    let host = rest.to_ascii_lowercase();
    match is_host(&host) {
        true => Ok(host),
        false => Err(no_host(kind, rest)),
    }
}

/// What is wrong, and how it is written: `http://example.org/tiles` is `http:example.org`.
fn no_host(kind: &str, rest: &str) -> String {
    let bare = rest.trim_start_matches('/').split(['/', '?', '#']).next();
    let bare = bare.and_then(|bare| bare.rsplit('@').next());
    let bare = bare.unwrap_or_default().trim().to_ascii_lowercase();
    let name = bare.split(':').next().unwrap_or_default();
    let meant = [&*bare, name].into_iter().find(|meant| is_host(meant));
    format!(
        "a host stands alone or with its port, a number up to 65535; write `{kind}:{}`",
        meant.unwrap_or("example.org")
    )
}

fn is_host(text: &str) -> bool {
    let plain =
        |name: &str| !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || "/?#@:[]".contains(c));
    let is_port =
        |port: &str| port == "*" || port.parse::<u16>().is_ok_and(|number| number.to_string() == port);
    match text.rsplit_once(':') {
        None => plain(text),
        Some((name, port)) => is_ipv6(text) || (plain(name) || is_ipv6(name)) && is_port(port),
    }
}

/// With or without brackets; a star stands for a group, and at the end for all that follow.
fn is_ipv6(text: &str) -> bool {
    let address = text.trim_matches(['[', ']']);
    let reads = |address: &str| address.replace('*', "0").parse::<Ipv6Addr>().is_ok();
    let network = address.strip_suffix(":*").map(|start| format!("{start}::"));
    reads(address) || network.is_some_and(|network| reads(&network))
}

fn folder(rest: &str) -> Result<Grant, String> {
    let (path, access) = match rest.strip_suffix(":rw") {
        Some(path) => (path, Access::ReadWrite),
        None => (rest, Access::Read),
    };
    if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err("a folder is an absolute path without `..`".into());
    }
    // One folder is written in one way only: by another it would not be seen to lie in the same folder.
    let parts: Vec<&str> = path
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    Ok(Grant::Folder(format!("/{}", parts.join("/")), access))
}

fn unknown_kind(kind: &str) -> String {
    match KINDS
        .iter()
        .map(|known| (strsim::damerau_levenshtein(kind, known), known))
        .min()
    {
        Some((distance, known)) if distance <= 2 => format!("unknown kind `{kind}`; did you mean `{known}`?"),
        _ => format!("unknown kind `{kind}`; the kinds are {}", KINDS.join(", ")),
    }
}

/// Whether `text` matches `pattern`, in which `*` stands for any run of characters. Linear in both lengths.
pub fn pattern_matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    // Where to go on when what follows the last `*` does not match: the star may swallow one more byte.
    let mut retry = None;
    while t < text.len() {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p + 1, t));
            p += 1;
        } else if pattern.get(p) == Some(&text[t]) {
            p += 1;
            t += 1;
        } else if let Some((after_star, swallowed)) = retry {
            p = after_star;
            t = swallowed + 1;
            retry = Some((after_star, t));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|byte| *byte == b'*')
}

/// Whether this byte may stand in a name that a right covers: an ASCII letter or digit, or one of `-_./:@#+~`.
pub fn is_of_a_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-_./:@#+~".contains(&byte)
}

/// `example.org` covers any port of it; `example.org:8443` only that one; `*.example.org` every name below.
fn host_matches(held: &str, asked: &str) -> bool {
    let (held_host, held_port) = split_port(held);
    let (host, port) = split_port(asked);
    pattern_matches(held_host, host) && (held_port.is_none() || held_port == port)
}

fn split_port(host: &str) -> (&str, Option<&str>) {
    let (name, port) = match host.rsplit_once(':').filter(|(name, _)| !name.ends_with(':')) {
        // At the end of a bare IPv6 address a star is no port.
        Some((name, "*")) if !name.contains(':') || name.ends_with(']') => (name, None),
        Some((name, port)) if port.bytes().all(|b| b.is_ascii_digit()) => (name, Some(port)),
        _ => (host, None),
    };
    (name.trim_matches(['[', ']']), port)
}

fn folder_contains(held: &str, path: &str) -> bool {
    let held = held.trim_end_matches('/');
    path.strip_prefix(held)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

crate::serde_as_text!(Grant);

/// The permissions that one plugin holds: what it asked for and the operator allowed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[serde(transparent)]
pub struct GrantSet(Vec<Grant>);

impl GrantSet {
    /// These permissions, sorted and each once.
    pub fn new(grants: impl IntoIterator<Item = Grant>) -> Self {
        let mut grants: Vec<_> = grants.into_iter().collect();
        grants.sort();
        grants.dedup();
        Self(grants)
    }

    /// Whether one of them allows what `asked` names.
    pub fn allows(&self, asked: &Grant) -> bool {
        self.0.iter().any(|held| held.covers(asked))
    }

    /// The outermost of the folders that allow what `asked` names. Whatever lies below it, a link as well, may have been put there by
    /// whoever may write there.
    pub fn root_of(&self, asked: &Grant) -> Option<&str> {
        let folders = self.0.iter().filter(|held| held.covers(asked));
        let paths = folders.filter_map(|held| match held {
            Grant::Folder(path, _) => Some(path.as_str()),
            _ => None,
        });
        paths.min_by_key(|path| path.len())
    }

    /// What both allow: of each pair that overlaps, the narrower one.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let narrower = |one: &Self, two: &Self| -> Vec<Grant> {
            one.0.iter().filter(|grant| two.allows(grant)).cloned().collect()
        };
        Self::new(narrower(self, other).into_iter().chain(narrower(other, self)))
    }

    /// Those of `self` that `other` does not allow.
    pub fn beyond<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Grant> {
        self.0.iter().filter(|grant| !other.allows(grant))
    }

    /// One after the other, sorted.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'de> Deserialize<'de> for GrantSet {
    /// Passes over what is no grant to this version: it allows nothing here.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let texts = Vec::<String>::deserialize(deserializer)?;
        Ok(texts.iter().filter_map(|text| text.parse().ok()).collect())
    }
}

impl FromIterator<Grant> for GrantSet {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Self {
        Self::new(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grant(text: &str) -> Grant {
        text.parse().unwrap()
    }

    #[test]
    fn grants_read_what_they_write() {
        for text in [
            "call:vision/*",
            "clock:fine",
            "config:units",
            "env:LANG",
            "fs:/data",
            "fs:/data:rw",
            "gpu:kernels",
            "gpu:shaders",
            "http:*.example.org:8443",
            "http-private:10.0.0.7",
            "kv:road",
            "nn:digits-*",
            "nn-raw:tract",
            "nn-raw:native",
            "secret:token",
        ] {
            assert_eq!(grant(text).to_string(), text);
        }
    }

    #[test]
    fn folders_cover_what_lies_below_and_nothing_beside() {
        assert!(grant("fs:/data:rw").covers(&grant("fs:/data/road")));
        assert!(!grant("fs:/data").covers(&grant("fs:/data:rw")));
        assert!(!grant("fs:/data").covers(&grant("fs:/database")));
        assert!("fs:data".parse::<Grant>().is_err());
        assert!("fs:/data/../etc".parse::<Grant>().is_err());
        assert!("fs:/data\u{202e}".parse::<Grant>().is_err());
        assert_eq!(grant("fs://data/./road/:rw"), grant("fs:/data/road:rw"));
        assert_eq!(grant("fs:/").to_string(), "fs:/");
    }

    #[test]
    fn a_folder_lies_in_the_outermost_one_that_allows_it() {
        let held = |texts: &[&str]| GrantSet::new(texts.iter().map(|text| grant(text)));
        let root = |held: &GrantSet, asked| held.root_of(&grant(asked)).map(str::to_owned);
        let both = held(&["fs:/data:rw", "fs:/data/road:rw", "fs:/database:rw", "kv:*"]);
        assert_eq!(root(&both, "fs:/data/road:rw").as_deref(), Some("/data"));
        assert_eq!(root(&both, "fs:/database").as_deref(), Some("/database"));
        assert_eq!(root(&both, "fs:/"), None);
        // Where nothing may be written, no link was put.
        let read = held(&["fs:/data", "fs:/data/road:rw"]);
        assert_eq!(root(&read, "fs:/data/road:rw").as_deref(), Some("/data/road"));
    }

    #[test]
    fn shaders_of_ones_own_cover_the_hosts_kernels() {
        assert!(grant("gpu:shaders").covers(&grant("gpu:kernels")));
        assert!(!grant("gpu:kernels").covers(&grant("gpu:shaders")));
        assert!("gpu:all".parse::<Grant>().is_err());
    }

    #[test]
    fn hosts_cover_names_and_ports() {
        assert!(grant("http:example.org").covers(&grant("http:example.org:8443")));
        assert!(!grant("http:example.org:443").covers(&grant("http:example.org:8443")));
        assert!(grant("http:*.example.org").covers(&grant("http:a.example.org")));
        assert!(!grant("http:*.example.org").covers(&grant("http:example.org.evil")));
        assert!(!grant("http:*").covers(&grant("http-private:10.0.0.7")));
        assert!(grant("http:example.org:*").covers(&grant("http:example.org:8443")));
        assert!(!grant("http:example.org:443").covers(&grant("http:example.org:*")));
        for network in ["2001:db8:*", "2001:db8::*", "[2001:db8::*]", "[2001:db8::*]:443"] {
            let asked = Grant::HttpPrivate("2001:db8::7:443".into());
            assert!(
                grant(&format!("http-private:{network}")).covers(&asked),
                "{network}"
            );
        }
        let eight = grant("http-private:2001:db8:0:1:0:0:0:*");
        assert!(eight.covers(&Grant::HttpPrivate("2001:db8:0:1:0:0:0:7:443".into())));
        assert!(grant("http:[2606:4700::1]:443").covers(&Grant::Http("2606:4700::1:443".into())));
    }

    #[test]
    fn what_would_match_no_host_is_refused_with_what_is_meant() {
        for (text, meant) in [
            ("http://example.org", "http:example.org"),
            ("https://example.org:8443/tiles?z=3", "http:example.org:8443"),
            ("http:example.org/tiles", "http:example.org"),
            ("http:example.org:abc", "http:example.org"),
            ("http:example.org:", "http:example.org"),
            ("http:example.org:99999", "http:example.org"),
            ("http:ada@example.org", "http:example.org"),
            ("http-private:10.0.0.7:080", "http-private:10.0.0.7"),
            ("http: tiles.example", "http:tiles.example"),
        ] {
            let error = text.parse::<Grant>().unwrap_err().to_string();
            assert!(error.ends_with(&format!("write `{meant}`")), "{error}");
        }
    }

    #[test]
    fn a_set_reads_without_what_only_a_later_version_knows() {
        let set: GrantSet = serde_json::from_str(r#"["camera:front", "kv:road"]"#).unwrap();
        assert_eq!(set, GrantSet::new([grant("kv:road")]));
    }

    #[test]
    fn an_unknown_kind_is_answered_with_the_nearest() {
        let error = "htpp:example.org".parse::<Grant>().unwrap_err().to_string();
        assert!(error.contains("did you mean `http`?"), "{error}");
    }

    proptest! {
        #[test]
        fn an_intersection_allows_nothing_that_one_side_does_not(
            names in proptest::collection::vec("[ab*]{1,4}", 0..4),
            others in proptest::collection::vec("[ab*]{1,4}", 0..4),
            asked in "[ab]{1,4}",
        ) {
            let set = |names: Vec<String>| GrantSet::new(names.into_iter().map(Grant::Model));
            let (one, two, asked) = (set(names), set(others), Grant::Model(asked));
            let both = one.intersection(&two);
            prop_assert!(!both.allows(&asked) || (one.allows(&asked) && two.allows(&asked)));
        }

        #[test]
        fn no_text_panics(text in ".{0,60}") {
            let _ = text.parse::<Grant>();
            let _ = pattern_matches(&text, &text);
        }
    }
}
