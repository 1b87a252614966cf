//! Policies that `[policies]` names and plugins bring: whichever plugin has the name at the time.

use super::flow::keep_policy;
use super::sample::Sample;
use super::tasks::Inner;
use crate::services::blocking;
use karman_engine::{Plugin, Slot};
use karman_sched::log::CHECKPOINT_EVERY;
use karman_sched::plugin::{ByName, ByPlugin, Decided, Failed, Failure, PolicyPlugin};
use karman_types::TaskError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// Failures of one second that the operator is told of, and the decisions that are written down for them.
const MOST_FAILURES: u32 = 20;

/// A kind of policy: what one decides.
pub(super) struct Kind {
    /// The key of `[policies]` that names one.
    pub(super) key: &'static str,
    /// What one does, as the end of its name: nothing, or ` that ...`.
    pub(super) does: &'static str,
    /// The one that a plugin brings, if it does.
    pub(super) of: fn(&Plugin) -> Result<PolicyPlugin, TaskError>,
    /// The names of those that no plugin has to bring.
    pub(super) others: fn() -> String,
}

/// The policy that a plugin of some name brings.
pub(super) struct Brought(Arc<Mutex<Watched>>);

struct Watched {
    policy: ByName,
    kind: &'static Kind,
    /// Decisions until the file of the plugin is kept anew.
    left: u32,
}

/// Which failures of a policy are news.
pub(super) struct News(parking_lot::Mutex<Sample>);

impl Kind {
    /// The plugin of this name with the policy that it brings, if it has a slot.
    ///
    /// # Errors
    /// `unavailable` when no plugin of this name is here, `invalid` when it brings no policy of this kind.
    pub(super) fn brought_by(
        &self,
        name: &str,
        slot: Result<Arc<Slot>, TaskError>,
    ) -> Result<(Arc<Plugin>, PolicyPlugin), TaskError> {
        let absent = |_| {
            let others = (self.others)();
            TaskError::unavailable(format!("this node has no policy `{name}`{}", self.does))
                .with_field(self.key)
                .with_hint(format!(
                    "`karman deploy` the plugin that brings it, or name one of {others}"
                ))
        };
        let plugin = slot.map_err(absent)?.current();
        let policy = (self.of)(&plugin).map_err(|error| error.with_field(self.key))?;
        Ok((plugin, policy))
    }
}

impl Brought {
    pub(super) fn new(name: &str, kind: &'static Kind) -> Self {
        Self(Arc::new(Mutex::new(Watched {
            policy: ByName::new(name),
            kind,
            left: 0,
        })))
    }

    /// Decides by the plugin that has the name on this node now, or by the default. Who asks waits for its turn, and takes no thread meanwhile.
    /// `now` is since some start.
    pub(super) async fn decide<D>(&self, node: Option<Arc<Inner>>, now: Duration, known: D::Known) -> D
    where
        D: Decided + Send + 'static,
        D::Known: Clone + Send + 'static,
    {
        let mut watched = self.0.clone().lock_owned().await;
        let (name, shown) = (watched.policy.name().to_owned(), known.clone());
        // Guests never run on the threads of the network.
        let decide = move || {
            if let Some(node) = node {
                watched.look(&node);
            }
            Ok(watched.policy.decide(now, shown))
        };
        blocking(decide).await.unwrap_or_else(|error| {
            let by_plugin = ByPlugin {
                name,
                plugin: None,
                said: Err(Failure::Host { why: error.message }),
            };
            D::made(known, None, by_plugin)
        })
    }
}

impl Watched {
    /// Sees which plugin has the name now. Its file is kept for as long as the log may have what it decided.
    fn look(&mut self, node: &Inner) {
        let name = self.policy.name();
        let here = self.kind.brought_by(name, node.plugins.named(name)).ok();
        let Some((plugin, policy)) = here else {
            if self.policy.plugin().is_some() {
                self.policy.set_plugin(None);
            }
            return;
        };
        let id = policy.id;
        if self.policy.plugin() != Some(&policy) {
            self.left = 0;
            self.policy.set_plugin(Some((policy, node.flows.guests(&plugin))));
        }
        if self.left == 0 {
            keep_policy(node, &id);
            self.left = CHECKPOINT_EVERY;
        }
        self.left -= 1;
    }
}

impl Default for News {
    fn default() -> Self {
        Self(parking_lot::Mutex::new(Sample::of(MOST_FAILURES)))
    }
}

impl News {
    /// What failed in a decision of this second, where that is news: not that a policy is left alone or not here, and as long as failures are
    /// few.
    pub(super) fn of(&self, second: u64, failed: Option<Failed>) -> Option<Failed> {
        let is_known = |failed: &Failed| matches!(failed.failure, Failure::Paused { .. } | Failure::NotHere);
        let failed = failed.filter(|failed| !is_known(failed));
        failed.filter(|_| self.0.lock().takes(second))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sched::plugin::During;

    #[test]
    fn failures_are_told_as_long_as_they_are_few_and_say_something_new() {
        let news = News::default();
        let told = |second, failure: Failure| {
            let failed = Failed {
                plugin: "says 1.0.0".into(),
                during: During::Choose,
                failure,
            };
            news.of(second, Some(failed)).is_some()
        };
        let pause = Duration::from_secs(9);
        for known in [Failure::NotHere, Failure::Paused { failures: 3, pause }] {
            assert!(!told(0, known));
        }
        assert_eq!(news.of(0, None), None);
        assert_eq!((0..50).filter(|_| told(0, Failure::Nobody)).count(), 20);
        assert!(told(1, Failure::Nobody));
    }
}
