use std::fmt;
use std::str::FromStr;

/// Where a plugin lies: `REGISTRY/REPOSITORY[:TAG][@sha256:DIGEST]`. The registry is always named; the tag is `latest`
/// where neither it nor a digest is given.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Reference(oci_client::Reference);

/// A text that is no reference.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{text}` is not a reference: its {field} {problem}")]
pub struct ReferenceError {
    /// The text.
    pub text: String,
    /// The part that is wrong: `registry`, `repository`, `tag` or `digest`; `package`, `registry` or `version` of a
    /// package name.
    pub field: &'static str,
    /// What is wrong with it, and how it is written.
    pub problem: String,
}

impl ReferenceError {
    pub(crate) fn new(text: &str, field: &'static str, problem: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            field,
            problem: problem.into(),
        }
    }
}

impl Reference {
    /// The registry's host, with its port if one was given.
    pub fn registry(&self) -> &str {
        self.0.registry()
    }

    /// The path below the registry.
    pub fn repository(&self) -> &str {
        self.0.repository()
    }

    /// Whether the registry is this machine, so that plain HTTP is safe.
    pub fn is_local(&self) -> bool {
        let host = match self.registry().rsplit_once(':') {
            Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) => host,
            _ => self.registry(),
        };
        matches!(host, "localhost" | "127.0.0.1" | "[::1]")
    }

    pub(crate) fn oci(&self) -> &oci_client::Reference {
        &self.0
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let error = |field, problem: &str| ReferenceError::new(text, field, problem);
        let (named, digest) = match text.split_once('@') {
            Some((named, digest)) => (named, Some(digest)),
            None => (text, None),
        };
        let (registry, path) = named
            .split_once('/')
            .filter(|(registry, _)| registry.contains(['.', ':']) || *registry == "localhost")
            .ok_or_else(|| {
                error(
                    "registry",
                    "is missing; write it out, as in `ghcr.io/acme/classify:0.1.0`",
                )
            })?;
        if !is_host(registry) {
            return Err(error(
                "registry",
                "is not a host with an optional port, as in `localhost:5000`",
            ));
        }
        let (repository, tag) = match path.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (path, None),
        };
        if repository.len() > 255 || !repository.split('/').all(is_path_component) {
            return Err(error(
                "repository",
                "is not lower-case letters and digits, joined by `.`, `_`, `-` and `/`, 255 at most",
            ));
        }
        if tag.is_some_and(|tag| !is_tag(tag)) {
            return Err(error("tag", "is not 1 to 128 letters, digits, `_`, `.` and `-`"));
        }
        if digest.is_some_and(|digest| !is_digest(digest)) {
            return Err(error(
                "digest",
                "is not `sha256:` and 64 lower-case hexadecimal characters",
            ));
        }
        let (registry, repository) = (registry.to_owned(), repository.to_owned());
        Ok(Self(match (tag, digest) {
            (Some(tag), Some(digest)) => {
                oci_client::Reference::with_tag_and_digest(registry, repository, tag.into(), digest.into())
            }
            (None, Some(digest)) => oci_client::Reference::with_digest(registry, repository, digest.into()),
            (tag, None) => {
                oci_client::Reference::with_tag(registry, repository, tag.unwrap_or("latest").into())
            }
        }))
    }
}

fn is_host(text: &str) -> bool {
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') => (host, Some(port)),
        _ => (text, None),
    };
    let name = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            host.split('.').all(|label| {
                !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            }) && host.len() <= 253
        }
    };
    name && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

fn is_path_component(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    text.bytes().all(|b| plain(b) || matches!(b, b'.' | b'_' | b'-'))
        && text.bytes().next().is_some_and(plain)
        && text.bytes().last().is_some_and(plain)
        && !text.contains("..")
}

fn is_tag(text: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    text.len() <= 128
        && text.bytes().next().is_some_and(word)
        && text.bytes().all(|b| word(b) || matches!(b, b'.' | b'-'))
}

/// The only kind of digest that is taken, here and in manifests.
pub(crate) fn is_digest(text: &str) -> bool {
    text.strip_prefix("sha256:").is_some_and(|hex| {
        hex.len() == 64
            && hex
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_reads_what_it_writes() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        for text in [
            "ghcr.io/acme/classify:0.1.0".to_owned(),
            "localhost:5000/a:b_c.d-1".to_owned(),
            "[::1]:5000/a/b/c:latest".to_owned(),
            format!("ghcr.io/acme/classify@{digest}"),
        ] {
            assert_eq!(text.parse::<Reference>().unwrap().to_string(), text);
        }
        let untagged: Reference = "ghcr.io/acme/classify".parse().unwrap();
        assert_eq!(untagged.to_string(), "ghcr.io/acme/classify:latest");
    }

    #[test]
    fn errors_name_the_field() {
        for (text, field) in [
            ("", "registry"),
            ("classify:0.1.0", "registry"),
            ("acme/classify", "registry"),
            ("https://ghcr.io/acme", "registry"),
            ("ghcr..io/acme/classify", "registry"),
            ("localhost:99999/classify", "registry"),
            ("ghcr.io/", "repository"),
            ("ghcr.io/Acme/classify", "repository"),
            ("ghcr.io/acme/../classify", "repository"),
            ("ghcr.io/acme/classify:", "tag"),
            ("ghcr.io/acme/classify:a/b", "tag"),
            ("ghcr.io/acme/classify@sha512:00", "digest"),
            ("ghcr.io/acme/classify@sha256:00", "digest"),
        ] {
            let error = text.parse::<Reference>().unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn only_this_machine_is_local() {
        let is_local = |text: &str| text.parse::<Reference>().unwrap().is_local();
        assert!(is_local("localhost/a"));
        assert!(is_local("127.0.0.1:5000/a"));
        assert!(is_local("[::1]:5000/a"));
        assert!(!is_local("localhost.example.org/a"));
        assert!(!is_local("10.0.0.7:5000/a"));
    }
}
