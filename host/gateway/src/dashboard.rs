//! Pages for people: a few files that are part of the program. They fetch nothing from elsewhere, and what they show they ask of
//! the admin routes, with the reader's token.

use axum::Router;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use http::{HeaderValue, header};

const PAGE: &str = include_str!("../dashboard/index.html");
const STYLE: &str = include_str!("../dashboard/style.css");
const SCRIPTS: [(&str, &str); 3] = [
    (
        "/dashboard/dashboard.js",
        include_str!("../dashboard/dashboard.js"),
    ),
    ("/dashboard/drawings.js", include_str!("../dashboard/drawings.js")),
    ("/dashboard/page.js", include_str!("../dashboard/page.js")),
];

/// Only what this gateway serves is run, shown or asked; no other page may hold it in a frame.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
);

/// The routes.
pub(crate) fn router() -> Router {
    let file = |kind: &'static str, text: &'static str| get(move || async move { served(kind, text) });
    let pages = Router::new()
        .route("/", get(|| async { Redirect::temporary("/dashboard/") }))
        .route("/dashboard", get(|| async { Redirect::temporary("/dashboard/") }))
        .route("/dashboard/", file("text/html; charset=utf-8", PAGE))
        .route("/dashboard/style.css", file("text/css; charset=utf-8", STYLE));
    SCRIPTS.into_iter().fold(pages, |pages, (path, text)| {
        pages.route(path, file("text/javascript; charset=utf-8", text))
    })
}

fn served(kind: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        ),
        (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
        // A new version of the program brings new files.
        (header::CACHE_CONTROL, HeaderValue::from_static("no-cache")),
    ];
    (headers, text).into_response()
}
