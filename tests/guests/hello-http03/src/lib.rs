//! A `wasi:http/service` component of WASI 0.3 that knows nothing of Karman: answers every request with one line.

use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::{wit_bindgen, wit_future, wit_stream};

struct Hello;

impl wasip3::exports::http::handler::Guest for Hello {
    async fn handle(_request: Request) -> Result<Response, ErrorCode> {
        let headers =
            Fields::from_list(&[("content-type".into(), b"text/plain".to_vec())]).expect("a valid header");
        let (mut body, reader) = wit_stream::new();
        let (trailers, no_trailers) = wit_future::new(|| Ok(None));
        drop(trailers);
        wit_bindgen::spawn_local(async move {
            body.write_all(b"Hello, world!\n".to_vec()).await;
        });
        let (response, _sent) = Response::new(headers, Some(reader), no_trailers);
        Ok(response)
    }
}

wasip3::http::service::export!(Hello);
