//! How many words a text has, as `{"words":3}`; of JSON that names some under `words`, the sum of them.

use exports::karman::task::handler::{Error, Guest, Request, Response};

wit_bindgen::generate!({ path: "../../../wit/task", world: "task" });

/// Before each number that was counted before.
const KEY: &str = "\"words\":";

struct Words;

impl Guest for Words {
    fn handle(request: Request) -> Result<Response, Error> {
        let text = String::from_utf8_lossy(&request.body);
        let words: usize = match text.contains(KEY) {
            true => text.split(KEY).skip(1).filter_map(number).sum(),
            false => text.split_whitespace().count(),
        };
        Ok(Response {
            content_type: "application/json".into(),
            metadata: Vec::new(),
            body: format!("{{{KEY}{words}}}").into_bytes(),
        })
    }
}

/// The number that a text begins with.
fn number(text: &str) -> Option<usize> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

export!(Words);
