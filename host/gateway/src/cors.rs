//! Pages of other origins: none may call, but those that the operator names.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use karman_node::is_of_another_page;

/// How long a browser may remember what it may, in seconds.
const REMEMBER: HeaderValue = HeaderValue::from_static("600");
/// What a page may read: all headers, for those of a plugin have any name. That holds as long as no cookie is taken.
const SHOWN: HeaderValue = HeaderValue::from_static("*");

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

    /// The answer to a browser that asks whether a page may ask: with the method and the headers that it wants to, for plugins take any.
    pub(crate) fn preflight<B>(
        &self,
        request: &Request<B>,
        origin: Option<&HeaderValue>,
    ) -> Option<Response> {
        let asked = request.headers();
        let method = asked.get(header::ACCESS_CONTROL_REQUEST_METHOD)?;
        if request.method() != Method::OPTIONS || origin.is_none() {
            return None;
        }
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, method.clone());
        if let Some(wanted) = asked.get(header::ACCESS_CONTROL_REQUEST_HEADERS) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, wanted.clone());
        }
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, REMEMBER);
        Some(response)
    }

    /// Whether a page of an origin that may not call wants something done: where no token is needed, such a page could drain a node on
    /// behalf of its reader.
    pub(crate) fn is_forged<B>(request: &Request<B>, allowed: Option<&HeaderValue>) -> bool {
        allowed.is_none() && is_of_another_page(request)
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
            .header(header::ACCESS_CONTROL_REQUEST_METHOD, "PATCH")
            .header(
                header::ACCESS_CONTROL_REQUEST_HEADERS,
                "if-match,karman-meta-name",
            )
            .body(())
            .unwrap()
    }

    #[test]
    fn a_page_of_elsewhere_has_nothing_done_by_the_way() {
        let request = |method: Method, origin: &'static str| {
            let request = Request::builder().method(method).header(header::ORIGIN, origin);
            request.header(header::HOST, "localhost:8080").body(()).unwrap()
        };
        let forged = |origin| Cors::is_forged(&request(Method::POST, origin), None);
        assert!(forged("https://evil.example") && forged("http://localhost:9090") && forged("null"));
        assert!(!forged("http://localhost:8080"));
        let read = request(Method::GET, "https://evil.example");
        assert!(!Cors::is_forged(&read, None));
        let named = request(Method::POST, "https://app.example");
        assert!(!Cors::is_forged(&named, named.headers().get(header::ORIGIN)));
        let tool = Request::builder().method(Method::POST).body(()).unwrap();
        assert!(!Cors::is_forged(&tool, None), "no page sends it");
        let second = Request::builder()
            .method(Method::POST)
            .uri("http://a.example:80/tasks/a");
        let second = second
            .header(header::ORIGIN, "http://a.example:80")
            .body(())
            .unwrap();
        assert!(!Cors::is_forged(&second, None), "HTTP/2 has no header `host`");
    }

    #[test]
    fn only_named_origins_may() {
        let cors = Cors::new(&["https://app.example".into()]);
        let (ours, other) = (from("https://app.example"), from("https://evil.example"));
        let origin = cors.origin(ours.headers());
        let may = cors.preflight(&ours, origin.as_ref()).unwrap();
        assert_eq!(may.headers()[header::ACCESS_CONTROL_ALLOW_METHODS], "PATCH");
        assert_eq!(
            may.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS],
            "if-match,karman-meta-name"
        );
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
