//! Between the JSON of workflows and the bytes of tasks. A text travels as `text/plain`, bytes of another media type stand in JSON
//! as `{"media-type": "image/png", "base64": "…"}`, everything else is `application/json`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karman_types::{Scalar, TaskError, TaskRequest, TaskResponse};
use serde_json::{Value, json};
use std::collections::BTreeMap;

pub(super) const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// What a task gets. Constants of the workflow are its metadata.
pub(super) fn request(input: &Value, with: &BTreeMap<String, Scalar>) -> Result<TaskRequest, TaskError> {
    let (content_type, body) = match input {
        Value::Null => (String::new(), Vec::new()),
        Value::String(text) => (TEXT.to_owned(), text.clone().into_bytes()),
        other => match media(other)? {
            Some(media) => media,
            None => (JSON.to_owned(), other.to_string().into_bytes()),
        },
    };
    let constant = |(name, value): (&String, &Scalar)| {
        let value = match value {
            Scalar::Text(text) => text.clone(),
            other => other.to_string(),
        };
        (name.clone(), value)
    };
    Ok(TaskRequest {
        content_type,
        metadata: with.iter().map(constant).collect(),
        body: body.into(),
    })
}

fn media(value: &Value) -> Result<Option<(String, Vec<u8>)>, TaskError> {
    let (Some(media_type), Some(base64)) = (value["media-type"].as_str(), value["base64"].as_str()) else {
        return Ok(None);
    };
    let bytes = STANDARD
        .decode(base64)
        .map_err(|error| TaskError::invalid(format!("`base64`: {error}")).with_field("base64"))?;
    Ok(Some((media_type.to_owned(), bytes)))
}

/// How deep what goes through a workflow may be nested: what is written down of a run has to be read again, and that recurses deeper.
const MOST_DEPTH: usize = 64;

/// What goes through a workflow, unless it is nested too deep.
pub(super) fn bounded(value: Value) -> Result<Value, TaskError> {
    fn depth(value: &Value) -> usize {
        let inner = match value {
            Value::Array(items) => items.iter().map(depth).max(),
            Value::Object(fields) => fields.values().map(depth).max(),
            _ => return 0,
        };
        1 + inner.unwrap_or_default()
    }
    match depth(&value) {
        depth if depth > MOST_DEPTH => Err(TaskError::limit(format!(
            "it is nested {depth} deep; {MOST_DEPTH} is the most"
        ))),
        _ => Ok(value),
    }
}

/// What a task answered.
pub(super) fn output(response: &TaskResponse) -> Result<Value, TaskError> {
    bounded(read(response)?)
}

fn read(response: &TaskResponse) -> Result<Value, TaskError> {
    let media_type = response.content_type.split(';').next().unwrap_or_default().trim();
    let text = || std::str::from_utf8(&response.body).ok();
    if media_type == JSON || media_type.ends_with("+json") {
        return serde_json::from_slice(&response.body)
            .map_err(|error| TaskError::failed(format!("its answer is no JSON: {error}")));
    }
    if response.body.is_empty() {
        return Ok(Value::Null);
    }
    match text() {
        Some(text) if media_type.is_empty() => Ok(serde_json::from_str(text).unwrap_or_else(|_| text.into())),
        Some(text) if media_type.starts_with("text/") => Ok(text.into()),
        _ => Ok(json!({ "media-type": media_type, "base64": STANDARD.encode(&response.body) })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_task_sends_back_is_what_it_got() {
        for value in [
            Value::Null,
            json!("seven"),
            json!({ "digit": 7, "p": 0.5 }),
            json!([1, 2, 3]),
            json!({ "media-type": "image/png", "base64": "iVBORw==" }),
        ] {
            let request = request(&value, &BTreeMap::new()).unwrap();
            let response = TaskResponse {
                content_type: request.content_type,
                metadata: Vec::new(),
                body: request.body,
            };
            assert_eq!(output(&response), Ok(value));
        }
    }

    #[test]
    fn constants_are_metadata_and_bad_bytes_are_refused() {
        let with = BTreeMap::from([
            ("model".to_owned(), Scalar::Text("digits-m".into())),
            ("sleep".to_owned(), Scalar::Number(20.0)),
        ]);
        let request_ = request(&Value::Null, &with).unwrap();
        assert_eq!(request_.metadata[0], ("model".into(), "digits-m".into()));
        assert_eq!(request_.metadata[1], ("sleep".into(), "20".into()));
        let bad = json!({ "media-type": "image/png", "base64": "%" });
        assert_eq!(request(&bad, &with).unwrap_err().field.as_deref(), Some("base64"));
        let no_json = TaskResponse {
            content_type: "application/json; charset=utf-8".into(),
            metadata: Vec::new(),
            body: "{".into(),
        };
        assert!(output(&no_json).is_err());
    }

    #[test]
    fn what_is_nested_too_deep_to_be_written_down_is_refused() {
        let nested = |depth: usize| TaskResponse {
            content_type: JSON.into(),
            metadata: Vec::new(),
            body: format!("{}{}", "[".repeat(depth), "]".repeat(depth)).into(),
        };
        assert!(output(&nested(MOST_DEPTH)).is_ok());
        let refused = output(&nested(MOST_DEPTH + 1)).unwrap_err();
        assert!(refused.message.contains("65 deep"), "{refused}");
    }
}
