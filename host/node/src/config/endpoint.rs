use http::Uri;
use http::uri::Authority;
use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A model on a server of others that speaks the Open Inference Protocol v2 (KServe, NVIDIA Triton, the gateway of another mesh). Tasks
/// that name what it does may be done there: their inputs leave this mesh.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct EndpointConfig {
    /// Where the server listens, without the paths of the protocol: `https://inference.example:8000`.
    pub url: EndpointUrl,
    /// The model there, as it stands in a path: `/` is written `%2F`.
    pub model: String,
    /// What it does: `vision/classification/digits`.
    pub capability: String,
    /// A file with the token that is sent as `authorization: Bearer`, read for each call. It goes over `https` only, or to this machine.
    /// Default: none is sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<PathBuf>,
    /// A file with the certificates (PEM) by which that of the server is judged. Default: those that browsers trust.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The longest that a call takes, also where its caller has more time. Default 60 s.
    #[serde(default = "usual_time", with = "serde_duration")]
    pub time: Duration,
    /// The longest answer that is read. Default 16 MiB.
    #[serde(default = "usual_answer")]
    pub answer: ByteSize,
}

const fn usual_time() -> Duration {
    Duration::from_secs(60)
}

const fn usual_answer() -> ByteSize {
    ByteSize::mib(16)
}

/// Where a server of others listens: `https://inference.example:8000`, with a path where its own paths begin behind one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EndpointUrl(String);

/// A text that is no address of a server.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` is no address of a server; it is written `https://inference.example:8000`, without user, query and fragment"
)]
pub struct EndpointUrlError(String);

impl EndpointUrl {
    /// As it was written, without a slash at its end.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Its host and port.
    pub(crate) fn authority(&self) -> &str {
        let rest = self.0.split_once("://").map_or(self.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or(rest)
    }

    /// Whether nobody on the way reads along: over TLS, or on this machine.
    pub(crate) fn keeps_secrets(&self) -> bool {
        let is_here = |authority: Authority| {
            let host = authority.host().trim_matches(['[', ']']);
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        };
        self.0.starts_with("https://") || self.authority().parse::<Authority>().is_ok_and(is_here)
    }
}

impl fmt::Display for EndpointUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for EndpointUrl {
    type Err = EndpointUrlError;

    fn from_str(text: &str) -> Result<Self, EndpointUrlError> {
        let error = || EndpointUrlError(text.to_owned());
        let url: Uri = text.parse().map_err(|_| error())?;
        let is_http = matches!(url.scheme_str(), Some("http" | "https"));
        let is_plain =
            |authority: &Authority| !authority.host().is_empty() && !authority.as_str().contains('@');
        let fits = is_http && url.authority().is_some_and(is_plain) && !text.contains(['?', '#']);
        match fits {
            true => Ok(Self(text.trim_end_matches('/').to_owned())),
            false => Err(error()),
        }
    }
}

karman_types::serde_as_text!(EndpointUrl);

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::from_toml;

    #[test]
    fn an_endpoint_needs_a_url_a_model_and_what_it_does() {
        let least =
            "url = \"https://a.example/models/\"\nmodel = \"digits-l\"\ncapability = \"vision/digits\"";
        let read: EndpointConfig = from_toml(least).unwrap();
        assert_eq!(read.url.as_str(), "https://a.example/models");
        assert_eq!((read.time, read.answer), (usual_time(), usual_answer()));
        for line in least.lines() {
            assert!(
                from_toml::<EndpointConfig>(&least.replace(line, "")).is_err(),
                "{line}"
            );
        }
    }

    #[test]
    fn what_is_no_address_of_a_server_is_refused() {
        for wrong in [
            "",
            "a.example",
            "ftp://a",
            "http://",
            "http://u:p@a",
            "http://a/?q=1",
            "http://a/#b",
        ] {
            let error = wrong.parse::<EndpointUrl>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{wrong}`")), "{error}");
        }
    }

    #[test]
    fn secrets_are_kept_over_tls_and_on_this_machine() {
        let keeps = |text: &str| text.parse::<EndpointUrl>().unwrap().keeps_secrets();
        for private in [
            "https://a.example",
            "http://127.0.0.1:8000",
            "http://[::1]:8000/a",
            "http://localhost",
        ] {
            assert!(keeps(private), "{private}");
        }
        for open in [
            "http://a.example",
            "http://10.0.0.7:8000",
            "http://localhost.example",
        ] {
            assert!(!keeps(open), "{open}");
        }
    }
}
