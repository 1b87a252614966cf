use super::read;
use super::status::{ended, watch};
use crate::answer::is_json;
use crate::app::App;
use crate::commands::call::Promise;
use crate::control::Control;
use crate::input::{Input, begins_as_json, not_both_standard};
use crate::slo::{Limit, limit, limited};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use clap::Args;
use http::Method;
use karman_node::FlowOrder;
use karman_types::{Limits, Slo, TaskError, TaskId};
use serde::Deserialize;
use serde_json::{Value, json};
use std::path::PathBuf;

/// `karman flow run`
#[derive(Args, Debug)]
pub(super) struct Run {
    /// The workflow; - is standard input
    file: PathBuf,
    /// A file with the input, or - for standard input [default: none]
    #[arg(long, short, value_name = "FILE")]
    input: Option<String>,
    /// A limit for the choice of implementations, in the place of that of the workflow: `accuracy=0.9`, `p95=50ms`, `cost=0.5`,
    /// `energy=20`, `requests=100`; may be given again
    #[arg(long, value_name = "LIMIT", value_parser = limit)]
    slo: Vec<Limit>,
    /// Do not wait: print the id of the run once it is on this node's disk (`local`) or with a majority of the keepers (`kept`)
    #[arg(long, value_name = "PROMISE")]
    accept: Option<Promise>,
    /// Idempotency key: a repeated run with this key does not run again, but joins the first
    #[arg(long, value_name = "KEY")]
    key: Option<String>,
}

#[derive(Deserialize)]
struct Accepted {
    flow: TaskId,
}

impl Run {
    pub(super) fn run(&self, app: &App) -> Result<(), TaskError> {
        let order = self.order()?;
        let body = serde_json::to_vec(&order).map_err(|error| TaskError::internal(error.to_string()))?;
        let promise = self.accept.unwrap_or(Promise::Local).word();
        let mut headers = vec![("content-type", "application/json"), ("karman-accept", promise)];
        headers.extend(
            self.key
                .iter()
                .map(|key| ("karman-idempotency-key", key.as_str())),
        );
        let control = Control::new(app)?;
        let answer = control.send(Method::POST, "/flows", &headers, Bytes::from(body))?;
        let Accepted { flow } = serde_json::from_slice(answer.body())
            .map_err(|error| TaskError::internal(format!("the node's answer does not read: {error}")))?;
        if self.accept.is_some() {
            return app.output.result(
                || flow.to_string(),
                || json!({ "flow": flow, "accepted": promise }),
            );
        }
        app.output.note(format!(
            "run {flow}: it goes on if this is stopped; `karman flow status` shows it"
        ));
        ended(app, &watch(app, &control, flow)?)
    }

    fn order(&self) -> Result<FlowOrder, TaskError> {
        not_both_standard(&self.file, self.input.as_deref())?;
        let mut workflow = read(&self.file)?;
        if !self.slo.is_empty() {
            let mut slo = workflow
                .slo()
                .cloned()
                .unwrap_or_else(|| Slo::over(Slo::USUAL_REQUESTS));
            limited(&mut slo, &self.slo)?;
            workflow = workflow
                .with_slo(slo)
                .map_err(|wrong| TaskError::invalid(wrong.to_string()).with_field("slo"))?;
        }
        let input = Input::read(self.input.as_deref(), None, Limits::ceiling().input)?;
        Ok(FlowOrder {
            workflow,
            input: value(&input)?,
        })
    }
}

/// An input as it stands in the JSON of workflows.
fn value(input: &Input) -> Result<Value, TaskError> {
    if input.body.is_empty() {
        return Ok(Value::Null);
    }
    // What begins like JSON and is none was cut short: nothing is begun with its half.
    if is_json(&input.content_type) || (input.content_type.is_empty() && begins_as_json(&input.body)) {
        return serde_json::from_slice(&input.body).map_err(|error| {
            TaskError::invalid(format!("the input is no JSON: {error}"))
                .with_field("input")
                .with_hint("mend it; a text that begins like JSON comes in a file that ends in `.txt`")
        });
    }
    match std::str::from_utf8(&input.body) {
        Ok(text) if input.content_type.is_empty() || input.content_type.starts_with("text/") => {
            Ok(text.into())
        }
        _ => Ok(json!({ "media-type": input.content_type, "base64": STANDARD.encode(&input.body) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_are_json_texts_or_bytes() {
        let read = |content_type: &str, body: &'static [u8]| {
            value(&Input {
                content_type: content_type.into(),
                body: Bytes::from_static(body),
            })
        };
        assert_eq!(read("application/json", b"{\"a\":1}"), Ok(json!({ "a": 1 })));
        assert_eq!(read("text/csv", b"a,b"), Ok(json!("a,b")));
        assert_eq!(read("", b""), Ok(Value::Null));
        assert_eq!(
            read("image/png", b"\x89PNG"),
            Ok(json!({ "media-type": "image/png", "base64": "iVBORw==" }))
        );
        assert!(read("application/json", b"{").is_err());
        let cut = read("", b" {\"tiles\": [1, 2").unwrap_err();
        assert!(cut.hint.unwrap().contains("`.txt`"));
        assert_eq!(read("text/plain", b"[note]"), Ok(json!("[note]")));
        assert_eq!(read("", b"note"), Ok(json!("note")));
    }
}
