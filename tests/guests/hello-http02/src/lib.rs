//! A `wasi:http/proxy` component of WASI 0.2 that knows nothing of Karman: answers every request with one line, except that
//! it fails in the middle of its answer to `/breaks`.

use wasi::http::types::{Fields, IncomingRequest, OutgoingBody, OutgoingResponse, ResponseOutparam};

struct Hello;

impl wasi::exports::http::incoming_handler::Guest for Hello {
    fn handle(request: IncomingRequest, out: ResponseOutparam) {
        let headers =
            Fields::from_list(&[("content-type".into(), b"text/plain".to_vec())]).expect("a valid header");
        let response = OutgoingResponse::new(headers);
        let body = response.body().expect("the body is taken once");
        ResponseOutparam::set(out, Ok(response));
        let stream = body.write().expect("the stream is taken once");
        stream
            .blocking_write_and_flush(b"Hello, world!\n")
            .expect("the caller reads");
        if request.path_with_query().as_deref() == Some("/breaks") {
            core::arch::wasm32::unreachable();
        }
        drop(stream);
        OutgoingBody::finish(body, None).expect("the body is whole");
    }
}

wasi::http::proxy::export!(Hello);
