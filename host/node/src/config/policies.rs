use karman_sched::select::BuiltIn;
use serde::{Deserialize, Serialize};

/// By which policies a node decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PoliciesConfig {
    /// Who serves a task whose workflow names no policy, and a request with objectives: a
    /// [built-in one](karman_sched::select::BuiltIn), or a plugin of this node that brings one (`karman:policy/select`). Default
    /// `pixie`.
    pub select: String,
}

impl Default for PoliciesConfig {
    fn default() -> Self {
        Self {
            select: BuiltIn::Pixie.name().into(),
        }
    }
}
