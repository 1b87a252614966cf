//! The span of a request, for those who collect traces.

use crate::headers;
use crate::target::Target;
use http::{HeaderMap, Method, Request, Response};
use karman_mesh::trace::{Carried, HEADERS, SPANS, follow};
use tracing::field::Empty;
use tracing::{Span, info_span};

/// The longest header of a trace that is taken, and the most of a path that is told.
const MOST_BYTES: usize = 512;

/// The span of a request: part of the trace that its headers name, where this gateway knows who sends it, or the first of one. Whose
/// trace it is decides whether it is recorded, and that is not for just anybody.
pub(crate) fn of<B>(request: &Request<B>, target: Target, is_known: impl FnOnce() -> bool) -> Span {
    // What only asks whether the gateway is there would be most of all traces.
    if target.is_probe() {
        return Span::none();
    }
    let span = info_span!(
        target: SPANS,
        "request",
        otel.name = format!("{} {}", method(request.method()), target.name()),
        otel.kind = "server",
        otel.status_code = Empty,
        http.request.method = method(request.method()),
        http.response.status_code = Empty,
        url.path = shown(target, request.uri().path()),
        karman.model = Empty,
        karman.node = Empty,
    );
    if !span.is_disabled() && is_known() {
        follow(&span, carried(request.headers()));
    }
    span
}

/// The path as collectors get it. Those of accepted tasks open them, and those of plugins may be secrets.
fn shown(target: Target, path: &str) -> &str {
    match target {
        Target::Models | Target::Infer | Target::Grpc | Target::GrpcInfer => cut(path),
        _ => "",
    }
}

/// A path that is no longer than what is told of one: anybody may send one of many KiB.
pub(crate) fn cut(path: &str) -> &str {
    &path[..path.floor_char_boundary(MOST_BYTES)]
}

/// The method as logs and collectors get it. Anybody may make one up, so those that are none have one name (OpenTelemetry's).
pub(crate) fn method(method: &Method) -> &str {
    match method.as_str() {
        known @ ("GET" | "HEAD" | "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH") => {
            known
        }
        _ => "_OTHER",
    }
}

/// What was answered, and by whom.
pub(crate) fn ends<B>(span: &Span, response: &Response<B>) {
    if span.is_disabled() {
        return;
    }
    let status = response.status();
    span.record("http.response.status_code", status.as_u16());
    if status.is_server_error() {
        span.record("otel.status_code", "ERROR");
    }
    for (field, header) in [("karman.model", headers::MODEL), ("karman.node", headers::NODE)] {
        if let Some(value) = response
            .headers()
            .get(header)
            .and_then(|value| value.to_str().ok())
        {
            span.record(field, value);
        }
    }
}

/// The headers of the W3C Trace Context, where each is there once and not too long.
fn carried(headers: &HeaderMap) -> Carried {
    let of = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let (value, None) = (values.next()?, values.next()) else {
            return None;
        };
        let text = value.to_str().ok().filter(|text| text.len() <= MOST_BYTES)?;
        Some((name.to_owned(), text.to_owned()))
    };
    HEADERS.into_iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_anybody_may_make_up_is_told_shortly() {
        assert_eq!(
            (method(&Method::PATCH), method(&"BREW".parse().unwrap())),
            ("PATCH", "_OTHER")
        );
        let long = format!("/v2/models/{}", "é".repeat(MOST_BYTES));
        assert!(cut(&long).len() <= MOST_BYTES && long.starts_with(cut(&long)));
        assert_eq!(cut("/v2"), "/v2");
    }

    #[test]
    fn only_headers_that_name_one_trace_are_taken() {
        let mut headers = HeaderMap::new();
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        headers.append("traceparent", parent.parse().unwrap());
        headers.append("tracestate", "a=1".repeat(200).parse().unwrap());
        assert_eq!(carried(&headers), [("traceparent".to_owned(), parent.to_owned())]);
        headers.append("traceparent", parent.parse().unwrap());
        assert!(carried(&headers).is_empty());
    }
}
