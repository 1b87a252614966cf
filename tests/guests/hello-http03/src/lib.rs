//! A `wasi:http/service` component of WASI 0.3 that knows nothing of Karman: answers every request with one line, except that
//! it fails in the middle of its answer to `/breaks`.

use wasip3::http::types::{ErrorCode, Fields, Request, Response};
use wasip3::{wit_bindgen, wit_future, wit_stream};

struct Hello;

impl wasip3::exports::http::handler::Guest for Hello {
    async fn handle(request: Request) -> Result<Response, ErrorCode> {
        let breaks = request.get_path_with_query().as_deref() == Some("/breaks");
        let headers =
            Fields::from_list(&[("content-type".into(), b"text/plain".to_vec())]).expect("a valid header");
        let (mut body, reader) = wit_stream::new();
        let (trailers, no_trailers) = wit_future::new(|| Ok(None));
        drop(trailers);
        wit_bindgen::spawn_local(async move {
            body.write_all(b"Hello, world!\n".to_vec()).await;
            if breaks {
                core::arch::wasm32::unreachable();
            }
        });
        let (response, _sent) = Response::new(headers, Some(reader), no_trailers);
        Ok(response)
    }
}

wasip3::http::service::export!(Hello);
