use karman_engine::policy::DEFAULT_INSTANCES;
use karman_sched::call::Route;
use karman_sched::select::BuiltIn;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// Nodes for one task.
const DEFAULT_REPLICAS: u16 = 64;

/// By which policies a node decides.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PoliciesConfig {
    /// Who serves a task whose workflow names no policy, and a request with objectives: a
    /// [built-in one](karman_sched::select::BuiltIn), or a plugin of this node that brings one (`karman:policy/select`). Default
    /// `pixie`.
    pub select: String,
    /// Which node is asked first to run a call or an accepted task that several offer, by the name of a
    /// [policy](karman_sched::call::Route). Default `soonest`.
    pub route: Route,
    /// Instances of policies that plugins bring, at once: each has its memory, and decides for one workflow, or for requests with the
    /// same objectives. For one more, the least recently used is dropped, and made anew when it is asked again. Default 64.
    pub instances: NonZeroU16,
    /// The most nodes that this one says should offer a task (`karman_task_desired_replicas` of `/metrics` at a gateway), for an
    /// autoscaler to act on. Default 64.
    pub replicas: NonZeroU16,
}

impl Default for PoliciesConfig {
    fn default() -> Self {
        Self {
            select: BuiltIn::Pixie.name().into(),
            route: Route::default(),
            instances: NonZeroU16::new(DEFAULT_INSTANCES).unwrap_or(NonZeroU16::MIN),
            replicas: NonZeroU16::new(DEFAULT_REPLICAS).unwrap_or(NonZeroU16::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::from_toml;

    #[test]
    fn an_order_is_named_and_another_name_is_answered_with_those_there_are() {
        let read = |text: &str| from_toml::<PoliciesConfig>(text);
        assert_eq!(read("route = \"la-imr\"").unwrap().route, Route::LaImr);
        assert_eq!(read("").unwrap().route, Route::Soonest);
        let error = read("route = \"nearest\"").unwrap_err().to_string();
        assert!(
            error.contains("nearest-free") && error.contains("line 1"),
            "{error}"
        );
    }
}
