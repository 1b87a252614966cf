use super::answer::error_response;
use super::connections::{Listener, ShutDown};
use crate::runtime::Runtime;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Incoming};
use karman_engine::{GuestBody, HttpError, Plugin};
use karman_types::{TaskError, format_bytes};
use std::sync::Arc;

/// The body of an answer: the plugin's, or ours when it has none.
pub(crate) type PluginBody = Either<GuestBody, Full<Bytes>>;

/// Answers every request on the listener with one HTTP plugin, until the shutdown.
pub async fn serve_plugin(listener: Listener, runtime: Runtime, plugin: Arc<Plugin>, shut_down: &ShutDown) {
    let service = move |request| answer(runtime.clone(), plugin.clone(), request);
    listener.serve(service, shut_down).await;
}

/// One request to an HTTP plugin.
pub(crate) async fn answer(
    runtime: Runtime,
    plugin: Arc<Plugin>,
    request: Request<Incoming>,
) -> Response<PluginBody> {
    let answered = match bounded(&plugin, request) {
        Ok(request) => plugin.serve(request, runtime.context(None)).await,
        Err(error) => Err(error),
    };
    match answered {
        Ok(response) => response.map(Either::Left),
        Err(error) => {
            tracing::warn!(plugin = plugin.manifest().name, kind = %error.kind, "{}", error.message);
            error_response(&error).map(Either::Right)
        }
    }
}

/// Refuses a body that says it is too long; cuts one that turns out to be.
fn bounded(
    plugin: &Plugin,
    request: Request<Incoming>,
) -> Result<Request<karman_engine::WasiBody>, TaskError> {
    let most = plugin.limits().input;
    let announced = request.body().size_hint().lower();
    if announced > most.0 {
        let name = &plugin.manifest().name;
        return Err(TaskError::limit(format!(
            "the body has {}; `{name}` takes at most {most}",
            format_bytes(announced)
        ))
        .with_field("body"));
    }
    // The guest wants an authority even where the client sent no `Host`.
    let (mut parts, body) = request.into_parts();
    if !parts.headers.contains_key(header::HOST) {
        parts
            .headers
            .insert(header::HOST, header::HeaderValue::from_static("localhost"));
    }
    let body = match body.is_end_stream() {
        true => body.map_err(HttpError::from).boxed_unsync(),
        false => Limited::new(body, most.as_usize())
            .map_err(|error| match error.downcast::<hyper::Error>() {
                Ok(error) => HttpError::from(*error),
                Err(_) => HttpError::HttpRequestBodySize(None),
            })
            .boxed_unsync(),
    };
    Ok(Request::from_parts(parts, body))
}
