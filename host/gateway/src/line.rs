//! What the log says of a request.

use crate::access::Caller;
use crate::headers;
use crate::hosts::asked_host;
use crate::proxies::Peer;
use crate::sites::Asked;
use crate::span;
use crate::target::Target;
use axum::response::Response;
use http::{HeaderName, HeaderValue, Method, Request};
use karman_mesh::trace::SPANS;
use std::sync::Arc;
use std::time::Instant;
use tracing::Level;

/// Where the name of a request stands.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// How a call of gRPC ended.
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// Under which lines are logged.
const ACCESS: &str = "access";
/// The longest name of a request that a caller may give.
const MOST_ID: usize = 128;

/// What an access line says of a request.
pub(crate) struct Line {
    pub(crate) id: HeaderValue,
    method: Method,
    host: Option<String>,
    path: String,
    /// The HTTP plugin that it leads to.
    plugin: Option<Arc<str>>,
    peer: Peer,
    pub(crate) started: Instant,
}

impl Line {
    /// Of one that has just come from there, and what it asks for. What stands nowhere else is not copied where nobody logs it.
    pub(crate) fn of<B>(request: &Request<B>, asked: &Asked, peer: Peer) -> Self {
        let (host, path) = match tracing::enabled!(target: ACCESS, Level::INFO) {
            true => (asked_host(request), span::cut(request.uri().path()).to_owned()),
            false => (None, String::new()),
        };
        Self {
            id: request_id(request),
            method: request.method().clone(),
            host,
            path,
            plugin: asked.led.as_ref().map(|led| led.plugin.clone()),
            peer,
            started: Instant::now(),
        }
    }

    /// Writes it.
    pub(crate) fn log(&self, target: Target, response: &Response, caller: Option<&Caller>) {
        let header = |name: HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok());
        tracing::info!(
            target: ACCESS,
            request = self.id.to_str().unwrap_or_default(),
            method = span::method(&self.method),
            host = self.host.as_deref().map(span::cut),
            path = self.path,
            route = target.name(),
            plugin = self.plugin.as_deref(),
            status = response.status().as_u16(),
            grpc_status = header(GRPC_STATUS),
            took_us = self.started.elapsed().as_micros() as u64,
            caller = caller.map_or("-", Caller::name),
            peer = %self.peer,
            proxy = self.peer.proxy().map(display),
            model = header(headers::MODEL),
            node = header(headers::NODE),
            "answered"
        );
        // For collectors: without the path, which may open what it names, and without who asked.
        tracing::info!(
            target: SPANS,
            request = self.id.to_str().unwrap_or_default(),
            route = target.name(),
            plugin = self.plugin.as_deref(),
            status = response.status().as_u16(),
            took_us = self.started.elapsed().as_micros() as u64,
            model = header(headers::MODEL),
            node = header(headers::NODE),
            "answered"
        );
    }
}

/// The caller's name for the request, or a new one.
fn request_id<B>(request: &Request<B>) -> HeaderValue {
    let plain = |value: &&HeaderValue| {
        let fits = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:/+=".contains(c);
        !value.is_empty() && value.len() <= MOST_ID && value.as_bytes().iter().all(fits)
    };
    let given = request.headers().get(REQUEST_ID).filter(plain).cloned();
    given.unwrap_or_else(|| {
        HeaderValue::try_from(format!("{:032x}", fastrand::u128(..))).expect("hexadecimal")
    })
}
