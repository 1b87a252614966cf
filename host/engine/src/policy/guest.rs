//! One instance of a policy.

use super::convert;
use super::sandbox::{Allowance, Instance, Sandbox};
use crate::capability::bindings::policy::{Select, SelectPre};
use karman_sched::plugin::{Failure, PolicyPlugin};
use karman_sched::select::{Ask, Choice, Guest, Served, Task};
use karman_types::{Limits, Slo};
use tokio::sync::OwnedSemaphorePermit;

/// The most bytes that are copied out of a policy for one call: its state, and a little.
const MOST_COPIED: usize = (1 << 20) + (64 << 10);

/// A policy that has begun.
pub(super) struct Policy {
    instance: Instance<Select>,
    _place: OwnedSemaphorePermit,
}

impl Policy {
    pub(super) fn start(
        pre: &SelectPre<Sandbox>,
        plugin: &PolicyPlugin,
        (limits, place): (&Limits, OwnedSemaphorePermit),
        (tasks, slo): (&[Task], &Slo),
        state: Option<&[u8]>,
    ) -> Result<Self, Failure> {
        let allowance = Allowance {
            limits,
            fuel: plugin.fuel,
            copied: MOST_COPIED,
        };
        let mut instance = Instance::start(pre.engine(), &allowance, |store| pre.instantiate(store))?;
        let tasks: Vec<_> = tasks.iter().map(convert::task).collect();
        let slo = convert::slo(slo);
        instance.call(|select, store| select.karman_policy_selector().call_begin(store, &tasks, slo))?;
        if let Some(state) = state {
            instance.call(|select, store| select.karman_policy_selector().call_resume(store, state))?;
        }
        Ok(Self {
            instance,
            _place: place,
        })
    }
}

impl Guest for Policy {
    fn choose(&mut self, ask: &Ask<'_>) -> Result<Choice, Failure> {
        let ask = convert::ask(ask);
        self.instance
            .call(|select, store| select.karman_policy_selector().call_choose(store, &ask))
            .map(convert::choice)
    }

    fn report(&mut self, served: &Served<'_>) -> Result<(), Failure> {
        let served = convert::served(served);
        self.instance
            .call(|select, store| select.karman_policy_selector().call_report(store, &served))
    }

    fn save(&mut self) -> Result<Vec<u8>, Failure> {
        self.instance
            .call(|select, store| select.karman_policy_selector().call_save(store))
    }
}
