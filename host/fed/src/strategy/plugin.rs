use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A rule that a plugin brings.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Plugin {
    /// The plugin: the name under which the node has it that drives the run; for simulated clients a file, a project's folder or a
    /// reference.
    pub plugin: String,
    /// What the plugin is told besides, by name.
    #[serde(default)]
    pub properties: BTreeMap<String, String>,
}
