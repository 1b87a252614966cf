//! Selects models by a price for each budget.

mod budget;
mod candidate;
mod policy;
mod state;

use exports::karman::policy::selector::{Ask, Choice, Guest, Served, Slo, Task};
use policy::Policy;
use std::cell::RefCell;

wit_bindgen::generate!({ path: "wit", generate_all });

thread_local! {
    static POLICY: RefCell<Option<Policy>> = const { RefCell::new(None) };
}

struct Prices;

/// Does something with the policy, which `begin` has made.
fn with<T>(act: impl FnOnce(&mut Policy) -> Result<T, String>) -> Result<T, String> {
    POLICY.with_borrow_mut(|policy| act(policy.as_mut().ok_or("`begin` comes first")?))
}

impl Guest for Prices {
    fn begin(tasks: Vec<Task>, slo: Slo) -> Result<(), String> {
        let policy = Policy::new(&tasks, &slo);
        POLICY.set(Some(policy));
        Ok(())
    }

    fn resume(state: Vec<u8>) -> Result<(), String> {
        with(|policy| policy.resume(&state))
    }

    fn choose(ask: Ask) -> Result<Choice, String> {
        with(|policy| policy.choose(&ask))
    }

    fn report(served: Served) -> Result<(), String> {
        with(|policy| policy.report(&served))
    }

    fn save() -> Result<Vec<u8>, String> {
        with(|policy| Ok(policy.save()))
    }
}

export!(Prices);
