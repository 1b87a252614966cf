use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Who trains: a plugin, and the nodes that run it, or one process that plays many.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Clients {
    /// The plugin: the name under which nodes have it; for simulated clients a file, a project's folder or a reference.
    pub plugin: String,
    /// The nodes that take part: `all`, `tier=edge`, or the beginning of an id. Default `all`.
    pub on: String,
    /// So many clients that one process plays, in place of nodes. Default 0.
    pub simulated: u32,
    /// In how many shares data are dealt that lie at every node: the first node to come trains on the first share. Default 0: each
    /// node has data of its own. Simulated clients share what there is.
    pub shares: u32,
    /// What the plugin is told besides, by name.
    pub properties: BTreeMap<String, String>,
}

impl Default for Clients {
    fn default() -> Self {
        Self {
            plugin: String::new(),
            on: "all".into(),
            simulated: 0,
            shares: 0,
            properties: BTreeMap::new(),
        }
    }
}
