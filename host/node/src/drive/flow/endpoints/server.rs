//! HTTP to a server of others: its certificate is judged, the operator's token sent, its answers bounded.

use crate::config::{EndpointConfig, EndpointUrl};
use crate::inference::binary::{HEADER_LENGTH, WireBody, part};
use crate::roots::trusted_roots;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode, request};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use karman_types::TaskError;
use rustls::ClientConfig;
use rustls::crypto::ring;
use serde::Deserialize;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// How long an address of the server is tried before the next one.
const CONNECT: Duration = Duration::from_secs(5);
/// Connections that stay open without a request.
const MOST_IDLE: usize = 16;
/// The longest description of itself or of a model that is read.
const MOST_DESCRIPTION: usize = 1 << 20;
/// The most of its own words that an error has.
const MOST_WORDS: usize = 300;

/// A server, with the connections to it.
pub(super) struct Server {
    url: EndpointUrl,
    token: Option<PathBuf>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// How servers say what was wrong.
#[derive(Deserialize)]
struct Refused {
    error: String,
}

impl Server {
    /// Reads what its certificate is judged by; it is not asked anything yet.
    ///
    /// # Errors
    /// `invalid` when the certificates do not read, or a token would go there for everybody to read.
    pub(super) fn new(name: &str, config: &EndpointConfig) -> Result<Self, TaskError> {
        let wrong =
            |key: &str, why: String| TaskError::invalid(why).with_field(format!("endpoints.{name}.{key}"));
        if config.token.is_some() && !config.url.keeps_secrets() {
            let says = format!("a token for {} would go there for everybody to read", config.url);
            return Err(wrong("token", says).with_hint("name the server by `https`, or send no token"));
        }
        let roots = trusted_roots(config.ca.as_deref()).map_err(|why| wrong("ca", why))?;
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| TaskError::internal(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut tcp = HttpConnector::new();
        // TLS goes over it, too.
        tcp.enforce_http(false);
        tcp.set_connect_timeout(Some(CONNECT));
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
        Ok(Self {
            url: config.url.clone(),
            token: config.token.clone(),
            client: Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_max_idle_per_host(MOST_IDLE)
                .build(connector.enable_http1().wrap_connector(tcp)),
        })
    }

    /// What it says at a path.
    ///
    /// # Errors
    /// Those of [`Self::post`].
    pub(super) async fn get(&self, path: &str) -> Result<Bytes, TaskError> {
        let asked = self.ask(path, Request::builder(), Bytes::new(), MOST_DESCRIPTION);
        Ok(asked.await?.0)
    }

    /// What it answers to a request: JSON, and what is behind it, of so many bytes at most.
    ///
    /// # Errors
    /// `unavailable` when it cannot be reached, is busy, or lets this node not in; `invalid` when the request is wrong; `limit` when
    /// the answer is longer; `internal` for what it says is its own fault, `failed` for what else goes wrong there.
    pub(super) async fn post(
        &self,
        path: &str,
        body: WireBody,
        most: usize,
    ) -> Result<(Bytes, Bytes), TaskError> {
        let mut request = Request::builder().method(Method::POST);
        request = request.header(CONTENT_TYPE, body.content_type);
        if let Some(length) = body.header_length {
            request = request.header(HEADER_LENGTH, length);
        }
        self.ask(path, request, body.bytes, most).await
    }

    async fn ask(
        &self,
        path: &str,
        mut request: request::Builder,
        body: Bytes,
        most: usize,
    ) -> Result<(Bytes, Bytes), TaskError> {
        let url = format!("{}{path}", self.url);
        if let Some(file) = &self.token {
            request = request.header(AUTHORIZATION, bearer(file).await?);
        }
        let request = request
            .uri(&url)
            .body(Full::new(body))
            .map_err(|error| TaskError::invalid(format!("{url}: {error}")))?;
        let out_of_reach = |error: &dyn Error| {
            TaskError::unavailable(format!("{} cannot be reached: {}", self.url, with_causes(error)))
        };
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| out_of_reach(&error))?;
        let status = answer.status();
        let length = answer.headers().get(HEADER_LENGTH).cloned();
        let read = Limited::new(answer.into_body(), most).collect().await;
        let body = read.map_err(|error| match error.is::<LengthLimitError>() {
            true => TaskError::limit(format!("{url} answers more than {most} bytes"))
                .with_hint("`answer` of its table in node.toml says how long it may be"),
            false => out_of_reach(&*error),
        })?;
        let body = body.to_bytes();
        if !status.is_success() {
            return Err(refused(&url, status, &body));
        }
        let length = length.map(|length| String::from_utf8_lossy(length.as_bytes()).into_owned());
        part(body, length.as_deref())
            .map_err(|error| TaskError::failed(format!("{url} answers wrongly: {error}")))
    }
}

/// The error that a server's answer is.
fn refused(url: &str, status: StatusCode, body: &[u8]) -> TaskError {
    let words = match serde_json::from_slice::<Refused>(body) {
        Ok(refused) => refused.error,
        Err(_) => String::from_utf8_lossy(body).into_owned(),
    };
    let words: String = words
        .chars()
        .filter(|c| !c.is_control())
        .take(MOST_WORDS)
        .collect();
    let says = format!("{url} answers {status}: {words}");
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => TaskError::unavailable(says)
            .with_hint("`token` of its table in node.toml names a file with a token that it takes"),
        StatusCode::NOT_FOUND
        | StatusCode::REQUEST_TIMEOUT
        | StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => TaskError::unavailable(says),
        _ if status.is_client_error() => TaskError::invalid(says),
        _ if status.is_server_error() => TaskError::internal(says),
        _ => TaskError::failed(says),
    }
}

/// The header that shows the token in this file, which may be renewed at any time.
async fn bearer(file: &Path) -> Result<HeaderValue, TaskError> {
    let wrong = |why: &str| {
        TaskError::unavailable(format!("{}: {why}", file.display()))
            .with_hint("`token` of a table below `[endpoints]` in node.toml names this file")
    };
    let text = tokio::fs::read_to_string(file).await;
    let text = text.map_err(|error| wrong(&error.to_string()))?;
    let mut value = HeaderValue::try_from(format!("Bearer {}", text.trim()))
        .map_err(|_| wrong("it holds no token, which is one line"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// An error and what it comes from: a client's own words say little.
fn with_causes(error: &dyn Error) -> String {
    let mut says = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        says += &format!(": {error}");
        cause = error.source();
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{ErrorKind, from_toml};

    fn config(url: &str, more: &str) -> EndpointConfig {
        from_toml(&format!(
            "url = \"{url}\"\nmodel = \"a\"\ncapability = \"b\"\n{more}"
        ))
        .unwrap()
    }

    #[test]
    fn a_token_is_not_sent_for_everybody_to_read() {
        let token = "token = \"/etc/karman/token\"";
        let error = Server::new("far", &config("http://a.example", token))
            .err()
            .unwrap();
        assert_eq!(error.field.as_deref(), Some("endpoints.far.token"));
        assert!(Server::new("far", &config("https://a.example", token)).is_ok());
        assert!(Server::new("far", &config("http://127.0.0.1:1", token)).is_ok());
    }

    #[test]
    fn certificates_that_do_not_read_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        let ca = format!("ca = {file:?}");
        for text in [None, Some("nothing")] {
            if let Some(text) = text {
                std::fs::write(&file, text).unwrap();
            }
            let error = Server::new("far", &config("https://a.example", &ca))
                .err()
                .unwrap();
            assert_eq!(error.field.as_deref(), Some("endpoints.far.ca"));
            assert!(error.message.contains("ca.pem"), "{error}");
        }
    }

    #[test]
    fn who_may_be_asked_again_elsewhere_is_told_from_who_asked_wrongly() {
        let kind = |status: u16| {
            refused(
                "http://a",
                StatusCode::from_u16(status).unwrap(),
                b"{\"error\":\"no\"}",
            )
            .kind
        };
        for status in [401, 403, 404, 408, 429, 502, 503, 504] {
            assert_eq!(kind(status), ErrorKind::Unavailable, "{status}");
        }
        assert_eq!((kind(400), kind(422)), (ErrorKind::Invalid, ErrorKind::Invalid));
        // Who fails within itself is passed over for a while.
        assert_eq!((kind(500), kind(501)), (ErrorKind::Internal, ErrorKind::Internal));
        assert_eq!(kind(302), ErrorKind::Failed);
        let long = refused(
            "http://a",
            StatusCode::BAD_REQUEST,
            "a\u{7}".repeat(4096).as_bytes(),
        );
        assert!(
            long.message.len() < 400 && !long.message.contains('\u{7}'),
            "{long}"
        );
    }
}
