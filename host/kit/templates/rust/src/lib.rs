//! Answers `{"name":"Ada"}` with `{"greeting":"hello Ada"}`.

use exports::karman::task::handler::{Error, Guest, Request, Response};
use karman::task::types::InvalidInput;
use serde::{Deserialize, Serialize};

wit_bindgen::generate!({ path: "wit", generate_all });

#[derive(Deserialize)]
struct Input {
    name: String,
}

#[derive(Serialize)]
struct Output {
    greeting: String,
}

struct Plugin;

impl Guest for Plugin {
    fn handle(request: Request) -> Result<Response, Error> {
        let input: Input = serde_json::from_slice(&request.body).map_err(|error| {
            Error::Invalid(InvalidInput {
                message: format!("the body is not like {{\"name\":\"Ada\"}}: {error}"),
                field: Some(if error.is_data() { "name" } else { "body" }.into()),
            })
        })?;
        let output = Output {
            greeting: format!("hello {}", input.name),
        };
        Ok(Response {
            content_type: "application/json".into(),
            metadata: Vec::new(),
            body: serde_json::to_vec(&output).map_err(|error| Error::Internal(error.to_string()))?,
        })
    }
}

export!(Plugin);
