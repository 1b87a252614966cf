use crate::output::Output;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use karman_types::{ErrorKind, TaskError, format_duration};
use serde_json::{Value, json};
use std::time::Duration;

/// What a task answered, and how it went.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answer<'a> {
    pub(crate) content_type: &'a str,
    pub(crate) body: &'a [u8],
    pub(crate) took: Duration,
    pub(crate) memory_peak: u64,
    /// The model and back-end, where it used one: `digits-m (onnxruntime, cpu)`.
    pub(crate) ran_on: Option<&'a str>,
    /// Who ran it, where a node did.
    pub(crate) there: Option<There<'a>>,
}

/// The node that ran a task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct There<'a> {
    pub(crate) node: &'a str,
    pub(crate) tier: &'a str,
    /// Why it was that one, where that is known.
    pub(crate) why: Option<&'a str>,
    /// Under which `karman why` tells of it, where that was written down.
    pub(crate) decision: Option<&'a str>,
}

impl Answer<'_> {
    /// Prints it: a recognition (`label` and `probability`) as one line that people read, any other body as it is.
    ///
    /// # Errors
    /// When standard output cannot be written.
    pub(crate) fn print(&self, output: &Output) -> Result<(), TaskError> {
        if output.json {
            return output.line(self.object());
        }
        if let Some(line) = self.recognition() {
            return output.line(line);
        }
        output.bytes(self.body)?;
        match self.is_text() && !self.body.is_empty() && !self.body.ends_with(b"\n") {
            true => output.bytes(b"\n"),
            false => Ok(()),
        }
    }

    /// `7   p=0.998   3.1 ms   model digits-m (onnxruntime, cpu)`.
    fn recognition(&self) -> Option<String> {
        if !self.is_json() {
            return None;
        }
        let body: Value = serde_json::from_slice(self.body).ok()?;
        let label = match body.get("label")? {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            _ => return None,
        };
        let probability = body.get("probability")?.as_f64()?;
        let model = self
            .ran_on
            .map(|model| format!("   model {model}"))
            .unwrap_or_default();
        Some(format!(
            "{label}   p={probability:.3}   {}{model}",
            format_duration(self.took)
        ))
    }

    fn object(&self) -> Value {
        let mut object = json!({
            "content_type": self.content_type,
            "took_ms": millis(self.took),
            "memory_peak_bytes": self.memory_peak,
            "ran_on": self.ran_on,
        });
        let (key, value) = body_value(self.content_type, self.body);
        object[key] = value;
        if let Some(there) = self.there {
            object["node"] = there.node.into();
            object["tier"] = there.tier.into();
            object["why"] = json!(there.why);
            object["decision"] = json!(there.decision);
        }
        object
    }

    fn is_json(&self) -> bool {
        is_json(self.content_type)
    }

    fn is_text(&self) -> bool {
        self.is_json()
            || self.content_type.starts_with("text/")
            || self.content_type.is_empty() && is_printable(self.body)
    }
}

/// A task's own error says what is wrong with its input; where to read what it takes is for us to say.
pub(crate) fn refused(error: TaskError, hint: impl FnOnce() -> String) -> TaskError {
    match (&error.hint, error.kind) {
        (None, ErrorKind::Invalid) => error.with_hint(hint()),
        _ => error,
    }
}

/// Milliseconds with their fraction, as JSON has them.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_micros() as f64 / 1e3
}

/// A body within an object: itself where it is JSON, else its text, else base64 under a name that says so.
pub(crate) fn body_value(content_type: &str, body: &[u8]) -> (&'static str, Value) {
    let parsed = is_json(content_type)
        .then(|| serde_json::from_slice(body).ok())
        .flatten();
    match (parsed, std::str::from_utf8(body)) {
        (Some(value), _) => ("output", value),
        (None, Ok(text)) => ("output", text.into()),
        (None, Err(_)) => ("output_base64", STANDARD.encode(body).into()),
    }
}

/// Whether bytes of this media type are JSON.
pub(crate) fn is_json(content_type: &str) -> bool {
    let media_type = content_type.split(';').next().unwrap_or_default().trim();
    media_type == "application/json" || media_type.ends_with("+json")
}

fn is_printable(body: &[u8]) -> bool {
    std::str::from_utf8(body).is_ok_and(|text| !text.contains(|c: char| c.is_control() && !c.is_whitespace()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEVEN: Answer<'_> = Answer {
        content_type: "application/json",
        body: br#"{"label":"7","probability":0.99812}"#,
        took: Duration::from_micros(3_120),
        memory_peak: 65_536,
        ran_on: Some("digits-m (onnxruntime, cpu)"),
        there: None,
    };

    #[test]
    fn a_recognition_is_one_line() {
        let line = SEVEN.recognition().unwrap();
        assert_eq!(line, "7   p=0.998   3.1 ms   model digits-m (onnxruntime, cpu)");
        assert!(
            Answer {
                body: br#"{"label":"7"}"#,
                ..SEVEN
            }
            .recognition()
            .is_none()
        );
        assert!(
            Answer {
                content_type: "text/plain",
                ..SEVEN
            }
            .recognition()
            .is_none()
        );
    }

    #[test]
    fn a_program_gets_everything() {
        let object = SEVEN.object();
        assert_eq!(object["output"]["label"], "7");
        assert_eq!(
            (object["took_ms"].as_f64(), object["memory_peak_bytes"].as_u64()),
            (Some(3.12), Some(65_536))
        );
        assert!(object.get("node").is_none());
        let there = There {
            node: "9c01d2e7",
            tier: "edge",
            why: Some("it is the nearest"),
            decision: None,
        };
        let elsewhere = Answer {
            there: Some(there),
            ..SEVEN
        }
        .object();
        assert_eq!(
            (&elsewhere["node"], &elsewhere["why"], &elsewhere["decision"]),
            (&json!("9c01d2e7"), &json!("it is the nearest"), &Value::Null)
        );
        let binary = Answer {
            content_type: "image/png",
            body: b"\xff\x00",
            ..SEVEN
        }
        .object();
        assert_eq!(binary["output_base64"], "/wA=");
    }
}
