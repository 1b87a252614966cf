//! Which plugin brings a policy that the configuration names, whichever has the name at the time.

use super::flow::keep_policy;
use super::tasks::Inner;
use karman_engine::Plugin;
use karman_sched::log::CHECKPOINT_EVERY;
use karman_sched::plugin::{Guests, PolicyPlugin};
use karman_types::TaskError;
use std::sync::Arc;

/// What brings a policy, and what runs it.
pub(super) type Found = (PolicyPlugin, Arc<dyn Guests>);

/// Looks before each decision which plugin has the name. Its file is kept for as long as the log may have what it decided.
#[derive(Default)]
pub(super) struct Watch {
    /// Decisions until the file of the plugin is kept anew.
    left: u32,
}

impl Watch {
    /// What brings the policy from now on, which may be nothing; `None` where that is what `known` does.
    pub(super) fn change(
        &mut self,
        node: &Inner,
        (name, known): (&str, Option<&PolicyPlugin>),
        policy_of: impl FnOnce(&Plugin) -> Result<PolicyPlugin, TaskError>,
    ) -> Option<Option<Found>> {
        let here = node.plugins.named(name).ok().and_then(|slot| {
            let plugin = slot.current();
            let policy = policy_of(&plugin).ok()?;
            Some((policy, plugin))
        });
        let is_another = here.as_ref().map(|(policy, _)| policy) != known;
        if is_another {
            self.left = 0;
        }
        if let Some((policy, _)) = &here {
            if self.left == 0 {
                keep_policy(node, &policy.id);
                self.left = CHECKPOINT_EVERY;
            }
            self.left -= 1;
        }
        is_another.then(|| here.map(|(policy, plugin)| (policy, node.flows.guests(&plugin))))
    }
}
