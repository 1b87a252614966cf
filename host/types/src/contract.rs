use crate::DataContract;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The most settings of one configuration.
pub const MAX_CONFIGURATION: usize = 64;

/// What a task does, takes and gives, apart from what runs it: implementations are bound to it at run time, and to change
/// one for another changes nothing here.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct TaskContract {
    /// What it does, as a path from the general to the special: `vision/classification/digits`.
    pub capability: String,
    /// How it does it: a prompt with named holes, a temperature, labels, thresholds. Every implementation gets the same.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub configuration: BTreeMap<String, Setting>,
    /// What it takes.
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub inputs: DataContract,
    /// What it gives.
    #[serde(default, skip_serializing_if = "DataContract::is_empty")]
    pub outputs: DataContract,
}

/// One setting of a task's configuration.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Setting {
    /// On or off.
    Switch(bool),
    /// A whole number.
    Integer(i64),
    /// A temperature, a threshold.
    Number(f64),
    /// A prompt.
    Text(String),
    /// Labels.
    List(Vec<String>),
}

/// A contract that no implementation could keep.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ContractError {
    /// A path with an empty step, or with other letters than `a-z0-9-_./`.
    #[error("`{capability}` is no path like `vision/classification`")]
    Capability {
        /// What was given.
        capability: String,
    },
    /// A number that is none.
    #[error("the setting `{setting}` is {value}; it must be finite")]
    Setting {
        /// Its name.
        setting: String,
        /// What was given.
        value: f64,
    },
    /// More settings than are kept.
    #[error("the configuration has {settings} settings; {MAX_CONFIGURATION} is the most")]
    Configuration {
        /// How many there are.
        settings: usize,
    },
    /// A name or a unit that cannot be shown as it stands.
    #[error("{text:?} does not print; names and units of fields are printable characters")]
    FieldText {
        /// On which side: `inputs` or `outputs`.
        side: &'static str,
        /// The name or unit.
        text: String,
    },
    /// A data field without a name, or one of two with the same.
    #[error("the name `{name}` stands at {times} fields; a field needs one that no other has")]
    FieldName {
        /// On which side: `inputs` or `outputs`.
        side: &'static str,
        /// The name.
        name: String,
        /// How many have it.
        times: usize,
    },
}

impl ContractError {
    /// The field of the contract in question.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Capability { .. } => "capability",
            Self::Setting { .. } | Self::Configuration { .. } => "configuration",
            Self::FieldText { side, .. } | Self::FieldName { side, .. } => side,
        }
    }
}

impl TaskContract {
    /// Whether it can be kept at all.
    ///
    /// # Errors
    /// A capability that is no path, settings that are not finite or too many, fields without a name of their own, names and units that do
    /// not print.
    pub fn check(&self) -> Result<(), ContractError> {
        let step = |step: &str| {
            !step.is_empty()
                && step
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_.".contains(&byte))
        };
        if !self.capability.split('/').all(step) {
            return Err(ContractError::Capability {
                capability: self.capability.clone(),
            });
        }
        if self.configuration.len() > MAX_CONFIGURATION {
            return Err(ContractError::Configuration {
                settings: self.configuration.len(),
            });
        }
        for (setting, value) in &self.configuration {
            match value {
                Setting::Number(value) if !value.is_finite() => {
                    return Err(ContractError::Setting {
                        setting: setting.clone(),
                        value: *value,
                    });
                }
                _ => {}
            }
        }
        self.inputs.check_names("inputs")?;
        self.outputs.check_names("outputs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contract(text: &str) -> TaskContract {
        crate::from_toml(text).unwrap()
    }

    #[test]
    fn a_contract_reads_what_it_writes() {
        let contract = contract(
            r#"
            capability = "llm/answer"
            configuration = { prompt = "Answer {question}", temperature = 0.2, labels = ["A", "B"], votes = 3 }
            inputs = [{ name = "question", type = "text" }]
            outputs = [{ name = "answer", type = "text" }, { name = "confidence", type = "f32", optional = true }]
            "#,
        );
        assert_eq!(contract.check(), Ok(()));
        assert_eq!(contract.configuration["votes"], Setting::Integer(3));
        let written = toml::to_string(&contract).unwrap();
        assert_eq!(crate::from_toml(&written), Ok(contract));
    }

    #[test]
    fn errors_name_the_field() {
        for (text, field) in [
            ("capability = \"vision//digits\"", "capability"),
            ("capability = \"Vision\"", "capability"),
            ("capability = \"a\"\nconfiguration = { t = nan }", "configuration"),
            (
                "capability = \"a\"\ninputs = [{ name = \"\", type = \"f32\" }]",
                "inputs",
            ),
            (
                "capability = \"a\"\ninputs = [{ name = \"a\\u202e\", type = \"f32\" }]",
                "inputs",
            ),
            (
                "capability = \"a\"\noutputs = [{ name = \"a\", type = \"f32\", unit = \"m\\u001b[8m\" }]",
                "outputs",
            ),
            (
                "capability = \"a\"\noutputs = [{ name = \"x\", type = \"f32\" }, { name = \"x\", type = \"text\" }]",
                "outputs",
            ),
        ] {
            assert_eq!(contract(text).check().unwrap_err().field(), field, "{text}");
        }
    }
}
