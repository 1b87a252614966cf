//! Counts in the bucket `tally`: each call adds one to the key in its body and answers the sum. With the metadata `read` it only
//! answers it; with `sleep` it takes that many milliseconds between counting and answering, so that it can be killed there.

use exports::karman::task::handler::{Error, Guest, Request, Response};
use std::time::Duration;
use wasi::keyvalue::{atomics, store};

wit_bindgen::generate!({
    inline: "
        package local:tally;

        world tally {
            include karman:task/task@0.1.0;
            import wasi:keyvalue/store@0.2.0-draft;
            import wasi:keyvalue/atomics@0.2.0-draft;
        }
    ",
    path: "../../../wit/task",
    world: "local:tally/tally",
    generate_all,
});

struct Tally;

impl Guest for Tally {
    fn handle(request: Request) -> Result<Response, Error> {
        let told = |name: &str| request.metadata.iter().find(|(key, _)| key == name);
        let key = String::from_utf8_lossy(&request.body);
        let failed = |error| Error::Failed(format!("{error:?}"));
        let bucket = store::open("tally").map_err(failed)?;
        let body = match told("read") {
            Some(_) => bucket.get(&key).map_err(failed)?.unwrap_or_else(|| b"0".to_vec()),
            None => {
                let sum = atomics::increment(&bucket, &key, 1).map_err(failed)?;
                sum.to_string().into_bytes()
            }
        };
        if let Some((_, milliseconds)) = told("sleep") {
            std::thread::sleep(Duration::from_millis(milliseconds.parse().unwrap_or(0)));
        }
        Ok(Response {
            content_type: "text/plain".into(),
            metadata: Vec::new(),
            body,
        })
    }
}

export!(Tally);
