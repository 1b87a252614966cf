//! Pages of other origins: none may call, but those that the operator names.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};

/// How long a browser may remember what it may, in seconds.
const REMEMBER: HeaderValue = HeaderValue::from_static("600");
/// What a page may send, besides what every page may.
const TAKEN: HeaderValue = HeaderValue::from_static(
    "authorization, content-type, inference-header-content-length, karman-accept, karman-accuracy, karman-cost, \
     karman-idempotency-key, karman-p95, karman-within, x-request-id",
);
/// What a page may read, besides what every page may.
const SHOWN: HeaderValue = HeaderValue::from_static(
    "inference-header-content-length, karman-cut, karman-decision, karman-model, karman-node, karman-ran-on, karman-tier, karman-why, \
     location, retry-after, x-request-id",
);
const METHODS: HeaderValue = HeaderValue::from_static("DELETE, GET, POST");

/// Whose pages may call.
#[derive(Clone, Debug)]
pub(crate) struct Cors(Vec<HeaderValue>);

impl Cors {
    pub(crate) fn new(origins: &[String]) -> Self {
        Self(origins.iter().filter_map(|origin| origin.parse().ok()).collect())
    }

    /// The origin of the page that asks, if it may.
    pub(crate) fn origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(header::ORIGIN)?;
        self.0.contains(origin).then(|| origin.clone())
    }

    /// The answer to a browser that asks whether a page may ask.
    pub(crate) fn preflight<B>(
        &self,
        request: &Request<B>,
        origin: Option<&HeaderValue>,
    ) -> Option<Response> {
        let asks = request
            .headers()
            .contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
        if request.method() != Method::OPTIONS || !asks || origin.is_none() {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, METHODS);
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, TAKEN);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBER);
        Some(response)
    }

    /// Lets the page read the response.
    pub(crate) fn allow(&self, response: &mut Response, origin: Option<HeaderValue>) {
        if self.0.is_empty() {
            return;
        }
        let headers = response.headers_mut();
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, SHOWN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(origin: &'static str) -> Request<()> {
        let request = Request::builder()
            .method(Method::OPTIONS)
            .header(header::ORIGIN, origin);
        request
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "POST")
            .body(())
            .unwrap()
    }

    #[test]
    fn only_named_origins_may() {
        let cors = Cors::new(&["https://app.example".into()]);
        let (ours, other) = (from("https://app.example"), from("https://evil.example"));
        let origin = cors.origin(ours.headers());
        assert!(cors.preflight(&ours, origin.as_ref()).is_some());
        assert!(cors.origin(other.headers()).is_none() && cors.preflight(&other, None).is_none());
        let mut response = Response::new(Body::empty());
        cors.allow(&mut response, origin);
        assert_eq!(
            response.headers()[header::ACCESS_CONTROL_ALLOW_ORIGIN],
            "https://app.example"
        );

        let off = Cors::new(&[]);
        let mut response = Response::new(Body::empty());
        off.allow(&mut response, off.origin(ours.headers()));
        assert!(response.headers().is_empty());
    }
}
