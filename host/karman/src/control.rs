//! Speaks to the running node on the socket in its folder.

use crate::app::App;
use crate::error::Worded;
use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use karman_node::Home;
use karman_store::StoreError;
use karman_types::{ErrorKind, TaskError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::PathBuf;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;

/// The way to the running node.
pub(crate) struct Control {
    socket: PathBuf,
    runtime: Runtime,
}

impl Control {
    /// The way to the node of this folder; whether it runs shows when it is asked.
    ///
    /// # Errors
    /// `internal` when the system has no more descriptors.
    pub(crate) fn new(app: &App) -> Result<Self, TaskError> {
        Self::at(&app.home())
    }

    /// The way to the node of another folder.
    ///
    /// # Errors
    /// Those of [`Control::new`].
    pub(crate) fn at(home: &Home) -> Result<Self, TaskError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| TaskError::internal(error.to_string()))?;
        let socket = home.control_socket();
        Ok(Self { socket, runtime })
    }

    /// The way to the node, if it runs.
    ///
    /// # Errors
    /// Those of [`Control::new`]; `denied` where another user's folder hides it.
    pub(crate) fn of_running(app: &App) -> Result<Option<Self>, TaskError> {
        let control = Self::new(app)?;
        match std::os::unix::net::UnixStream::connect(&control.socket) {
            Ok(_) => Ok(Some(control)),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(control.unreachable(error)),
            Err(_) => Ok(None),
        }
    }

    /// What it means that nobody answers on the socket.
    fn unreachable(&self, source: io::Error) -> TaskError {
        let folder = self.socket.parent().unwrap_or(&self.socket);
        if source.kind() == io::ErrorKind::PermissionDenied {
            let path = folder.into();
            return StoreError::Io { path, source }.worded();
        }
        TaskError::unavailable(format!("no node runs in {}", folder.display()))
            .with_hint("start one with `karman node up`, or name its folder with --state")
    }

    /// Asks for something.
    ///
    /// # Errors
    /// `unavailable` when no node runs, and what the node answers.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, TaskError> {
        self.order(Method::GET, path, Bytes::new())
    }

    /// Gives an order.
    ///
    /// # Errors
    /// `unavailable` when no node runs, and what the node answers.
    pub(crate) fn order<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, TaskError> {
        let answer = self.send(method, path, &[("content-type", "application/json")], body)?;
        serde_json::from_slice(answer.body())
            .map_err(|error| not_ours(&format!("its answer to {path} does not read: {error}")))
    }

    /// Sends a request and takes the whole answer.
    ///
    /// # Errors
    /// `unavailable` when no node runs, and what the node answers.
    pub(crate) fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
    ) -> Result<Response<Bytes>, TaskError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "karman");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(body))
            .map_err(|error| TaskError::invalid(format!("{path}: {error}")))?;
        self.runtime.block_on(self.exchange(request))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> Result<Response<Bytes>, TaskError> {
        let stream = UnixStream::connect(&self.socket).await;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let lost = |error: hyper::Error| {
            TaskError::unavailable(format!("the node did not answer: {error}"))
                .with_hint("see `karman node logs`")
        };
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .map_err(lost)?;
        tokio::spawn(connection);
        let (head, body) = sender.send_request(request).await.map_err(lost)?.into_parts();
        let body = body.collect().await.map_err(lost)?.to_bytes();
        match head.status.is_success() {
            true => Ok(Response::from_parts(head, body)),
            false => Err(refusal(head.status, &body)),
        }
    }
}

/// The node's errors as it writes them.
#[derive(Deserialize)]
struct Refusal {
    code: ErrorKind,
    message: String,
    hint: Option<String>,
    field: Option<String>,
}

fn refusal(status: http::StatusCode, body: &[u8]) -> TaskError {
    match serde_json::from_slice::<Refusal>(body) {
        Ok(Refusal {
            code,
            message,
            hint,
            field,
        }) => TaskError {
            hint,
            field,
            ..TaskError::new(code, message)
        },
        // The router's own words, for a path or a body that it does not take.
        Err(_) => not_ours(&format!("{status} {}", String::from_utf8_lossy(body).trim())),
    }
}

/// The error that the node answers with what this program does not read.
pub(crate) fn not_ours(what: &str) -> TaskError {
    TaskError::internal(format!("the node said: {what}"))
        .with_hint("is it of another version? restart it with this one")
}

/// A name as one part of a path or a value in a query.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped() {
        assert_eq!(escape("vision/digits m"), "vision%2Fdigits%20m");
    }

    #[test]
    fn the_nodes_errors_come_back_whole() {
        let error = refusal(
            http::StatusCode::FORBIDDEN,
            br#"{"code":"denied","message":"no","field":"asks"}"#,
        );
        assert_eq!(
            (error.kind, error.field.as_deref()),
            (ErrorKind::Denied, Some("asks"))
        );
        assert_eq!(
            refusal(http::StatusCode::NOT_FOUND, b"").kind,
            ErrorKind::Internal
        );
    }
}
