use super::answer::error_response;
use super::connections::{Listener, ShutDown};
use super::pages::Pages;
use crate::runtime::Runtime;
use axum::BoxError;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Either, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use karman_engine::{GuestBody, HttpError, Plugin};
use karman_types::{TaskError, format_bytes};
use std::sync::Arc;

/// The body of an answer: the plugin's, or ours when it has none.
pub(crate) type PluginBody = Either<GuestBody, Full<Bytes>>;

/// Answers every request on the listener with one HTTP plugin, until the shutdown. On a loopback address, and where the configuration
/// names hosts, those who ask for another one are refused.
pub async fn serve_plugin(listener: Listener, runtime: Runtime, plugin: Arc<Plugin>, shut_down: &ShutDown) {
    let pages = Pages::of(runtime.config(), &listener);
    let service = move |request: Request<Incoming>| {
        let (runtime, plugin, known) = (runtime.clone(), plugin.clone(), pages.must_know(&request));
        async move {
            match known {
                Ok(()) => answer(runtime, plugin, request).await,
                Err(error) => error_response(&error).map(Either::Right),
            }
        }
    };
    listener.serve(service, shut_down).await;
}

/// One request to an HTTP plugin.
pub(crate) async fn answer<B>(
    runtime: Runtime,
    plugin: Arc<Plugin>,
    request: Request<B>,
) -> Response<PluginBody>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
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
fn bounded<B>(plugin: &Plugin, request: Request<B>) -> Result<Request<karman_engine::WasiBody>, TaskError>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
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
        true => body.map_err(|error| body_error(error.into())).boxed_unsync(),
        false => Limited::new(body, most.as_usize())
            .map_err(body_error)
            .boxed_unsync(),
    };
    Ok(Request::from_parts(parts, body))
}

fn body_error(error: BoxError) -> HttpError {
    match error.downcast::<hyper::Error>() {
        Ok(error) => HttpError::from(*error),
        Err(error) if error.is::<LengthLimitError>() => HttpError::HttpRequestBodySize(None),
        Err(error) => HttpError::InternalError(Some(error.to_string())),
    }
}
