//! The orders that reach out of the sandbox. Each says what the host answered.

use crate::exports::karman::task::handler::{Error, Request};
use crate::karman::task::{context, invoke};
use crate::orders::invalid;
use crate::wasi::keyvalue::store;
use crate::wasi::nn::graph;
use wasi::http::outgoing_handler;
use wasi::http::types::{Fields, OutgoingRequest, Scheme};

/// What the host refused is a failure of the task, told in the host's own words.
fn refused(what: &str, why: impl std::fmt::Debug) -> Error {
    Error::Failed(format!("{what}: {why:?}"))
}

/// Fills the host's table of this instance's handles: each timer takes a place in it.
pub(crate) fn table() -> String {
    let mut handles = Vec::new();
    loop {
        handles.push(wasi::clocks::monotonic_clock::subscribe_duration(u64::MAX));
    }
}

/// The call that is being served, as the host tells it.
pub(crate) fn context() -> String {
    format!("{:?} time-left: {:?}", context::current(), context::time_left())
}

/// Lists a folder or reads a file.
pub(crate) fn read(path: &str) -> Result<String, Error> {
    if let Ok(entries) = std::fs::read_dir(path) {
        return Ok(entries
            .flatten()
            .map(|entry| format!("{}\n", entry.path().display()))
            .collect());
    }
    let bytes = std::fs::read(path).map_err(|error| refused(path, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes the request's body to a file.
pub(crate) fn write(path: &str, body: &[u8]) -> Result<String, Error> {
    std::fs::write(path, body).map_err(|error| refused(path, error))?;
    Ok(format!("wrote {} bytes to {path}", body.len()))
}

/// Gets a URL and gives the status and the body's first part.
pub(crate) fn http(url: &str) -> Result<String, Error> {
    let (scheme, rest) = url
        .split_once("://")
        .ok_or_else(|| invalid(format!("`{url}` is not a URL")))?;
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let scheme = if scheme == "https" {
        Scheme::Https
    } else {
        Scheme::Http
    };
    let request = OutgoingRequest::new(Fields::new());
    let well_formed = request.set_scheme(Some(&scheme)).is_ok()
        && request.set_authority(Some(authority)).is_ok()
        && request
            .set_path_with_query(Some(if path.is_empty() { "/" } else { path }))
            .is_ok();
    if !well_formed {
        return Err(invalid(format!("`{url}` is not a URL")));
    }
    let response = outgoing_handler::handle(request, None).map_err(|error| refused(url, error))?;
    response.subscribe().block();
    match response.get() {
        Some(Ok(Ok(response))) => {
            let body = response.consume().map_err(|()| refused(url, "no body"))?;
            let stream = body.stream().map_err(|()| refused(url, "no body"))?;
            let first = stream.blocking_read(64 << 10).unwrap_or_default();
            Ok(format!(
                "{} {}",
                response.status(),
                String::from_utf8_lossy(&first)
            ))
        }
        other => Err(refused(url, other)),
    }
}

/// Opens a bucket, counts up the key `visits` in it and gives the new count.
pub(crate) fn bucket(name: &str) -> Result<String, Error> {
    let bucket = store::open(name).map_err(|error| refused(name, error))?;
    let before = bucket.get("visits").map_err(|error| refused(name, error))?;
    let visits = before
        .and_then(|bytes| String::from_utf8(bytes).ok()?.parse::<u64>().ok())
        .unwrap_or(0)
        + 1;
    bucket
        .set("visits", visits.to_string().as_bytes())
        .map_err(|error| refused(name, error))?;
    Ok(visits.to_string())
}

/// Loads a model by name.
pub(crate) fn model(name: &str) -> Result<String, Error> {
    match graph::load_by_name(name) {
        Ok(_) => Ok(format!("loaded {name}")),
        Err(error) => Err(refused(name, format!("{:?} {}", error.code(), error.data()))),
    }
}

/// Calls another task with the request's body.
pub(crate) fn call(task: &str, body: &[u8]) -> Result<String, Error> {
    let request = Request {
        content_type: String::new(),
        metadata: Vec::new(),
        body: body.to_vec(),
    };
    // Its error is passed on as it is: it already says who refused.
    let response = invoke::call(task, &request)?;
    Ok(String::from_utf8_lossy(&response.body).into_owned())
}
