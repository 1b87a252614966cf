use super::answer::{Refusal, other_method};
use super::connections::{Listener, ShutDown};
use super::extract::InPath;
use super::pages::{Pages, set_apart};
use super::{flows, metrics, plugin, stream, tasks};
use crate::drive::Ran;
use crate::node::Node;
use axum::BoxError;
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Request, Response, StatusCode, Uri, header};
use axum::response::{IntoResponse, Json};
use axum::routing::{get, post};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use karman_engine::Plugin;
use karman_tasks::{Guarantee, Submission};
use karman_types::{
    Limits, Metadata, TaskError, TaskRequest, TaskResponse, World, format_duration, parse_duration,
};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tower_service::Service;

/// Headers of this prefix are the metadata of a request or response.
const METADATA: &str = "karman-meta-";
/// What a caller that does not wait wants promised: `local`.
const ACCEPT: &str = "karman-accept";
/// Equal for requests that ask for the same effect.
const KEY: &str = "karman-idempotency-key";
/// Bytes of such a key at most: it is remembered for days.
const MOST_KEY: usize = 256;
/// After this time without an answer a second node is asked as well: `50 ms`.
const HEDGE: &str = "karman-hedge";
/// The time that the caller gives: `200 ms`.
const WITHIN: &str = "karman-within";

/// Answers on the node's address: `/http/NAME/…` goes to HTTP plugins, the rest is ours.
pub(crate) async fn serve_public(listener: Listener, node: Node, shut_down: &ShutDown) {
    let router = work()
        .route("/healthz", get(live))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics::show))
        .fallback(|| async {
            Refusal(TaskError::invalid("no such path").with_hint("POST /tasks/NAME, or /http/NAME/…"))
        })
        .method_not_allowed_fallback(other_method)
        .with_state(node.clone());
    let pages = Pages::of(node.runtime().config(), &listener);
    let service = move |request| answer(node.clone(), router.clone(), pages.clone(), request);
    listener.serve(service, shut_down).await;
}

/// What a node does for callers: tasks, direct and accepted, and workflows.
fn work() -> Router<Node> {
    Router::new()
        .route("/tasks/{*name}", post(call))
        .merge(tasks::router())
        .merge(flows::router())
}

impl Node {
    /// The routes by which callers have work done, for a door of another kind: tasks, direct and accepted, and workflows.
    pub fn work_routes(&self) -> Router {
        work().with_state(self.clone())
    }

    /// Lets the HTTP plugin of this name answer; the request's path is what it sees.
    ///
    /// # Errors
    /// `unavailable` when this node has no plugin of this name.
    pub async fn serve_http<B>(&self, plugin: &str, request: Request<B>) -> Result<Response<Body>, TaskError>
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let slot = self.plugins().find(plugin)?;
        let answer = plugin::answer(self.runtime().clone(), slot.current(), request);
        Ok(answer.await.map(Body::new))
    }
}

async fn answer(
    node: Node,
    mut router: Router,
    pages: Pages,
    mut request: Request<Incoming>,
) -> Response<Body> {
    if let Some((name, rest)) = plugin_path(request.uri()) {
        if let Err(error) = pages.must_know(&request) {
            return Refusal(error).into_response();
        }
        *request.uri_mut() = rest;
        let answer = node.serve_http(&name, request).await;
        let mut answer = answer.unwrap_or_else(|error| Refusal(error).into_response());
        set_apart(answer.headers_mut());
        return answer;
    }
    // Whoever only watches is told by whatever name.
    let is_watched = matches!(request.uri().path(), "/healthz" | "/readyz");
    if !is_watched && let Err(error) = pages.must_take(&request) {
        return Refusal(error).into_response();
    }
    router
        .call(request.map(Body::new))
        .await
        .unwrap_or_else(|never| match never {})
}

/// `/http/NAME/rest?query` is `/rest?query` of that plugin.
pub fn plugin_path(uri: &Uri) -> Option<(String, Uri)> {
    let path = uri.path_and_query()?.as_str().strip_prefix("/http/")?;
    let end = path.find(['/', '?']).unwrap_or(path.len());
    let rest = match &path[end..] {
        rest if rest.starts_with('/') => rest.to_owned(),
        rest => format!("/{rest}"),
    };
    Some((path[..end].to_owned(), rest.parse().ok()?))
}

async fn live(State(node): State<Node>) -> (StatusCode, String) {
    health("ok", node.not_live())
}

async fn ready(State(node): State<Node>) -> (StatusCode, String) {
    health("ready", node.not_ready())
}

/// What a watcher is told: that all is well, or with status 503 what is not.
pub fn health(well: &str, trouble: Option<String>) -> (StatusCode, String) {
    match trouble {
        None => (StatusCode::OK, format!("{well}\n")),
        Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// `POST /tasks/NAME`: the body is the task's input, the answer's body its output. A direct call: nothing is written down. With
/// the header `karman-accept` the task is accepted instead, and the answer is its id.
pub(crate) async fn call(
    State(node): State<Node>,
    InPath(name): InPath<String>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response<Body>, Refusal> {
    let (accepting, drained) = (headers.contains_key(ACCEPT), node.is_drained());
    // A task of another node has its own limit there, and an accepted one may wait for a node that has it: here the most that
    // any may take.
    let most = match node.plugins().find(&name) {
        Ok(_) if drained => Limits::ceiling().input,
        Ok(slot) if !accepting && streams(&slot.current(), &body) => {
            let context = node.runtime().context(within(&headers)?);
            return stream::call(slot.current(), &headers, body, context).await;
        }
        Ok(slot) => slot.current().limits().input,
        Err(error) if node.mesh().is_none() && !accepting && !node.runs(&name) => return Err(error.into()),
        Err(_) => Limits::ceiling().input,
    };
    let body = Limited::new(body, most.as_usize())
        .collect()
        .await
        .map_err(|error| match error.is::<LengthLimitError>() {
            true => TaskError::limit(format!("the body is longer than {most}")).with_field("body"),
            false => TaskError::invalid(format!("the body does not read: {error}")).with_field("body"),
        })?;
    let (content_type, metadata) = request_head(&headers)?;
    let request = TaskRequest {
        content_type,
        metadata,
        body: body.to_bytes(),
    };
    if accepting {
        return accept(&node, name, &headers, request).await;
    }
    let context = node.runtime().context(within(&headers)?);
    let (response, ran) = match time(&headers, HEDGE)? {
        Some(hedge_after) => node.call_hedged(&name, request, context, hedge_after).await?,
        None => node.call(&name, request, context).await?,
    };
    Ok(response_of(response, &placed(ran, &node)))
}

/// Says of a call that ran here where that is, as is said of others.
fn placed(ran: Ran, node: &Node) -> Ran {
    match ran.node {
        Some(_) => ran,
        None => Ran {
            node: Some((node.runtime().id(), node.runtime().tier())),
            why: Some("this node has the task".into()),
            ..ran
        },
    }
}

/// Whether the bodies go through as streams: what says that it fits in memory is answered whole, so that an error has its status.
fn streams(plugin: &Plugin, body: &Body) -> bool {
    let fits = body
        .size_hint()
        .exact()
        .is_some_and(|length| length <= plugin.limits().input.0);
    plugin.package().world == World::TaskStream && !fits
}

async fn accept(
    node: &Node,
    name: String,
    headers: &HeaderMap,
    request: TaskRequest,
) -> Result<Response<Body>, Refusal> {
    let (guarantee, key) = accepting(headers)?;
    let within = within(headers)?;
    let lifetime = node.runtime().config().tasks.lifetime;
    if within.is_some_and(|within| within > lifetime) {
        let most = format_duration(lifetime);
        let error = TaskError::limit(format!("an accepted task has {most} at most"));
        let error = error
            .with_field(WITHIN)
            .with_hint("see `lifetime` under [tasks] in node.toml");
        return Err(error.into());
    }
    let submission = Submission {
        guarantee: guarantee.unwrap_or(Guarantee::Local),
        key,
        within,
        hedge_after: time(headers, HEDGE)?,
        ..Submission::new(name, request)
    };
    let task = node.tasks().submit(submission).await?;
    let place = [(header::LOCATION, format!("/accepted/{task}"))];
    Ok((StatusCode::ACCEPTED, place, Json(json!({ "task": task }))).into_response())
}

/// What is to be promised, where the caller says so, and under which key.
pub(super) fn accepting(headers: &HeaderMap) -> Result<(Option<Guarantee>, Option<Arc<str>>), TaskError> {
    let promise = match text(headers, ACCEPT)? {
        None => None,
        Some("local") => Some(Guarantee::Local),
        Some("kept") => Some(Guarantee::Kept),
        Some(other) => {
            let error = TaskError::invalid(format!("`{other}` is no promise: local or kept"));
            return Err(error.with_field(ACCEPT));
        }
    };
    let key = text(headers, KEY)?.map(key).transpose()?;
    Ok((promise, key))
}

/// A key that tells efforts apart, and that a node can afford to remember.
fn key(key: &str) -> Result<Arc<str>, TaskError> {
    let error = match key.len() {
        0 => TaskError::invalid("an idempotency key is empty")
            .with_hint("leave it out, or give one of your own"),
        1..=MOST_KEY => return Ok(key.into()),
        bytes => TaskError::limit(format!(
            "an idempotency key may have {MOST_KEY} bytes at most, and this has {bytes}"
        )),
    };
    Err(error.with_field(KEY))
}

/// What this header says, where it is there.
fn text<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, TaskError> {
    headers.get(name).map(|value| readable(name, value)).transpose()
}

/// A header's value as a text. RFC 9110 leaves it to whom it is for which one its bytes make: ours are UTF-8.
fn readable<'a>(name: &str, value: &'a HeaderValue) -> Result<&'a str, TaskError> {
    std::str::from_utf8(value.as_bytes()).map_err(|error| {
        TaskError::invalid(format!("the header `{name}` is not UTF-8: {error}")).with_field(name)
    })
}

/// What the headers say of a body: its type, and its metadata.
pub(super) fn request_head(headers: &HeaderMap) -> Result<(String, Metadata), TaskError> {
    let content_type = text(headers, header::CONTENT_TYPE.as_str())?;
    let metadata = headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), name.as_str().strip_prefix(METADATA)?, value)));
    let metadata = metadata.map(|(header, name, value)| Ok((name.into(), readable(header, value)?.into())));
    Ok((
        content_type.unwrap_or_default().into(),
        metadata.collect::<Result<_, TaskError>>()?,
    ))
}

fn within(headers: &HeaderMap) -> Result<Option<Duration>, TaskError> {
    match time(headers, WITHIN)? {
        Some(within) if within.is_zero() => Err(TaskError::invalid("nothing is done in no time")
            .with_field(WITHIN)
            .with_hint("give it more than 0, or leave it out")),
        within => Ok(within),
    }
}

fn time(headers: &HeaderMap, name: &'static str) -> Result<Option<Duration>, TaskError> {
    let Some(value) = text(headers, name)? else {
        return Ok(None);
    };
    parse_duration(value)
        .map(Some)
        .map_err(|error| TaskError::invalid(error.to_string()).with_field(name))
}

pub(super) fn response_of(response: TaskResponse, report: &Ran) -> Response<Body> {
    let mut answer = Response::new(Body::from(response.body));
    let headers = answer.headers_mut();
    describe(headers, response.content_type, response.metadata);
    headers.insert(
        "karman-took-us",
        HeaderValue::from(report.took.as_micros() as u64),
    );
    headers.insert("karman-memory-peak", HeaderValue::from(report.memory_peak));
    if let Some(Ok(ran_on)) = report.ran_on.as_deref().map(HeaderValue::from_str) {
        headers.insert("karman-ran-on", ran_on);
    }
    if let Some((node, tier)) = &report.node {
        headers.insert(
            "karman-node",
            HeaderValue::try_from(node.to_string()).expect("hexadecimal"),
        );
        headers.insert(
            "karman-tier",
            HeaderValue::try_from(tier.to_string()).expect("a word"),
        );
    }
    if let Some(Ok(why)) = report.why.as_deref().map(HeaderValue::from_str) {
        headers.insert("karman-why", why);
    }
    if let Some(decision) = &report.decision {
        headers.insert(
            "karman-decision",
            HeaderValue::try_from(decision.to_string()).expect("letters and digits"),
        );
    }
    answer
}

/// Says of a response's body what its task says: its type, and its metadata.
pub(super) fn describe(headers: &mut HeaderMap, content_type: String, metadata: Metadata) {
    if let Ok(value) = HeaderValue::try_from(content_type) {
        headers.insert(header::CONTENT_TYPE, value);
    }
    for (name, value) in metadata {
        // What is no header (a line break, say) is left out rather than let through.
        if let (Ok(name), Ok(value)) = (
            header::HeaderName::try_from(format!("{METADATA}{name}")),
            HeaderValue::try_from(value),
        ) {
            headers.append(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::ErrorKind;

    #[test]
    fn a_plugin_sees_the_path_below_its_name() {
        for (path, name, rest) in [
            ("/http/a/b?c=d", "a", "/b?c=d"),
            ("/http/a", "a", "/"),
            ("/http/a?c", "a", "/?c"),
            ("/http/a/", "a", "/"),
        ] {
            let (found, uri) = plugin_path(&path.parse().unwrap()).unwrap();
            assert_eq!((found.as_str(), uri.to_string().as_str()), (name, rest));
        }
        assert!(plugin_path(&"/tasks/a".parse().unwrap()).is_none());
    }

    fn headers(name: &str, value: &[u8]) -> HeaderMap {
        let name: header::HeaderName = name.parse().unwrap();
        HeaderMap::from_iter([(name, HeaderValue::from_bytes(value).unwrap())])
    }

    #[test]
    fn watchers_are_told_what_is_the_matter() {
        assert_eq!(health("ok", None), (StatusCode::OK, "ok\n".to_owned()));
        let told = (StatusCode::SERVICE_UNAVAILABLE, "the disk failed\n".to_owned());
        assert_eq!(health("ok", Some("the disk failed".into())), told);
    }

    #[test]
    fn keys_and_metadata_are_read_in_any_script() {
        let (_, key) = accepting(&headers(KEY, "Brücke-1".as_bytes())).unwrap();
        assert_eq!(key.as_deref(), Some("Brücke-1"));
        let (_, metadata) = request_head(&headers("karman-meta-name", "Zoë".as_bytes())).unwrap();
        assert_eq!(metadata, [("name".to_owned(), "Zoë".to_owned())]);
    }

    #[test]
    fn a_header_that_says_nothing_is_not_taken_for_an_empty_one() {
        let latin1 = b"Br\xfccke";
        let too_long = "k".repeat(MOST_KEY + 1);
        for (value, kind) in [
            (&latin1[..], ErrorKind::Invalid),
            (b"", ErrorKind::Invalid),
            (too_long.as_bytes(), ErrorKind::Limit),
        ] {
            let error = accepting(&headers(KEY, value)).unwrap_err();
            assert_eq!((error.kind, error.field.as_deref()), (kind, Some(KEY)));
        }
        let error = request_head(&headers("karman-meta-name", latin1)).unwrap_err();
        assert_eq!(error.field.as_deref(), Some("karman-meta-name"));
    }
}
