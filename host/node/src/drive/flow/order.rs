use super::json;
use crate::drive::model_tasks::few_values;
use bytes::Bytes;
use karman_types::{TaskError, Workflow};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A run of a workflow, as it is asked for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct FlowOrder {
    /// What runs: as TOML in a text, or as the same keys in JSON.
    #[serde(deserialize_with = "workflow")]
    pub workflow: Workflow,
    /// What goes into its first tasks. Default: null.
    #[serde(default)]
    pub input: Value,
}

impl FlowOrder {
    /// Reads one.
    ///
    /// # Errors
    /// `invalid`, naming what is wrong.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, TaskError> {
        few_values(bytes, "a workflow")?;
        let order: Self = serde_json::from_slice(bytes).map_err(|error| {
            TaskError::invalid(format!("the order of a workflow: {error}")).with_field("workflow")
        })?;
        let input = json::bounded(order.input).map_err(|error| error.with_field("input"))?;
        Ok(Self { input, ..order })
    }

    pub(super) fn write(&self) -> Result<Bytes, TaskError> {
        let bytes = serde_json::to_vec(self).map_err(|error| TaskError::internal(error.to_string()))?;
        Ok(bytes.into())
    }
}

fn workflow<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Workflow, D::Error> {
    use serde::de::Error;
    match Value::deserialize(deserializer)? {
        Value::String(text) => Workflow::from_toml(&text).map_err(D::Error::custom),
        table => Workflow::deserialize(table).map_err(D::Error::custom),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_reads_what_it_writes_and_toml_besides() {
        let text =
            r#"{ "workflow": "name = 'hello'\n[task.greet]\nretries = 2", "input": { "name": "Ada" } }"#;
        let order = FlowOrder::read(text.as_bytes()).unwrap();
        assert_eq!(order.workflow.tasks()[0].retries, 2);
        assert_eq!(FlowOrder::read(&order.write().unwrap()), Ok(order));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, says) in [
            ("{", "EOF"),
            (r#"{ "workflow": "name = 'a'" }"#, "no task"),
            (
                r#"{ "workflow": { "name": "a", "task": { "b": { "retrys": 1 } } } }"#,
                "retrys",
            ),
            (r#"{ "workflow": "name = 'a'\n[task.b]", "inputs": 1 }"#, "inputs"),
        ] {
            let error = FlowOrder::read(text.as_bytes()).unwrap_err();
            assert!(error.message.contains(says), "{error}");
        }
    }
}
