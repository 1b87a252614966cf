use super::super::{Ask, Decision, NoChoice, ReportError, Selector, Served};
use super::Brought;
use crate::log::CHECKPOINT_EVERY;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The policy of a plugin where no log is kept: in the simulator, in a study. It has checkpoints as it has with a log, so that it
/// decides the same, and its failures are counted.
#[derive(Debug)]
pub struct Unlogged {
    policy: Brought,
    left: u32,
    failures: Failures,
}

/// How often a policy failed, by the words of the failure. Shared with the policy.
pub type Failures = Rc<RefCell<BTreeMap<String, u64>>>;

impl Unlogged {
    /// This policy, whose failures are counted here.
    pub const fn new(policy: Brought, failures: Failures) -> Self {
        Self {
            policy,
            left: 0,
            failures,
        }
    }

    fn count(&mut self) {
        for failure in self.policy.failures() {
            let mut failures = self.failures.borrow_mut();
            *failures.entry(failure.to_string()).or_default() += 1;
        }
    }
}

impl Selector for Unlogged {
    fn name(&self) -> &str {
        self.policy.name()
    }

    fn choose(&mut self, ask: &Ask<'_>) -> Result<Decision, NoChoice> {
        if self.left == 0 {
            self.left = CHECKPOINT_EVERY;
            let _ = self.policy.checkpoint();
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
