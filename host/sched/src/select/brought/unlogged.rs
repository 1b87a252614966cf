use super::super::{Ask, Decision, NoChoice, ReportError, Selector, Served, task_of};
use super::Brought;
use crate::log::CHECKPOINT_EVERY;
use crate::plugin::During;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The policy of a plugin where no log is kept: in the simulator, in a study. It has checkpoints as it has with a log, so that it
/// decides the same, and its failures are counted.
#[derive(Debug)]
pub struct Unlogged {
    policy: Brought,
    left: u32,
    failures: FailureCounts,
}

/// How often policies failed in what, in words that name them. Shared with the policies.
pub type FailureCounts = Rc<RefCell<BTreeMap<(During, String), u64>>>;

impl Unlogged {
    /// This policy, whose failures are counted here.
    pub const fn new(policy: Brought, failures: FailureCounts) -> Self {
        Self {
            policy,
            left: 0,
            failures,
        }
    }

    fn count(&mut self) {
        for failed in self.policy.failures() {
            let mut failures = self.failures.borrow_mut();
            *failures.entry((failed.during, failed.to_string())).or_default() += 1;
        }
    }
}

impl Selector for Unlogged {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        task_of(&self.policy.tasks, ask)?;
        if self.left == 0 {
            self.left = CHECKPOINT_EVERY;
            self.policy.renew();
        }
        self.left -= 1;
        let decision = self.policy.choose(ask);
        self.count();
        decision
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), ReportError> {
        let told = self.policy.report(served);
        self.count();
        told
    }
}
