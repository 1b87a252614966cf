use karman_engine::policy::DEFAULT_INSTANCES;
use karman_sched::call::Route;
use karman_sched::select::BuiltIn;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// The name of no policy of placement: a step goes where a call of its task goes.
pub(crate) const AS_CALLS: &str = "route";
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
    /// Which node is asked first to run a call or an accepted task that several offer: a
    /// [built-in policy](karman_sched::call::Route), or a plugin of this node that brings one (`karman:policy/route`). Default `soonest`.
    pub route: String,
    /// Where a step of a workflow runs that names no `capability`, of the nodes that hold what it takes: a
    /// [built-in policy](karman_sched::place::BuiltIn), which looks at the steps after it, too; a plugin of this node that brings one
    /// (`karman:policy/place`); or `route`: a step goes where a call of its task goes. Default `route`.
    pub place: String,
    /// Instances of policies that plugins bring, at once: each has its memory, and decides for one workflow, for requests with the
    /// same objectives, or for one call or step. For one more, the least recently used is dropped, and made anew when it is asked again. Default 64.
    pub instances: NonZeroU16,
    /// The most nodes that this one says should offer a task (`karman_task_desired_replicas` of `/metrics` at a gateway), for an
    /// autoscaler to act on. Default 64.
    pub replicas: NonZeroU16,
}

impl Default for PoliciesConfig {
    fn default() -> Self {
        Self {
            select: BuiltIn::Pixie.name().into(),
            route: Route::default().name().into(),
            place: AS_CALLS.into(),
            instances: NonZeroU16::new(DEFAULT_INSTANCES).unwrap_or(NonZeroU16::MIN),
            replicas: NonZeroU16::new(DEFAULT_REPLICAS).unwrap_or(NonZeroU16::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::place;
    use karman_types::from_toml;

    #[test]
    fn policies_are_named_and_the_default_ones_are_built_in() {
        let read = |text: &str| from_toml::<PoliciesConfig>(text).unwrap();
        assert_eq!(
            Route::named(&read("route = \"la-imr\"").route),
            Some(Route::LaImr)
        );
        let PoliciesConfig { select, route, .. } = read("");
        assert_eq!(Route::named(&route), Some(Route::Soonest));
        assert_eq!(read("").place, AS_CALLS);
        assert_eq!(
            place::BuiltIn::named(&read("place = \"fate\"").place),
            Some(place::BuiltIn::Fate)
        );
        assert_eq!(select.parse(), Ok(BuiltIn::Pixie));
        // That of a plugin, which may come later.
        assert_eq!(Route::named(&read("route = \"mine\"").route), None);
    }
}
