//! Stands for a siren in the valley: says when it was sounded, and on which node.

#[path = "../../answer.rs"]
mod answer;

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::context;
use serde::Serialize;
use std::time::{SystemTime, UNIX_EPOCH};

wit_bindgen::generate!({ path: "wit", generate_all });

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Sounded {
    /// Milliseconds since 1970.
    sounded_ms: u64,
    node: String,
}

struct Siren;

impl Guest for Siren {
    fn handle(request: Request) -> Result<Response, Error> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let sounded = Sounded {
            sounded_ms: now.as_millis() as u64,
            node: context::current().node_id,
        };
        eprintln!("{}", String::from_utf8_lossy(&request.body));
        answer::json(&sounded)
    }
}

export!(Siren);
