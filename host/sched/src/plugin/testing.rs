//! A plugin that answers the same whatever it is asked, and counts how often that is.

use super::{ByName, Failure, Guests, PolicyPlugin};
use crate::call::{Order, Taker};
use crate::place::{Fleet, Job, Placement};
use crate::select::{Guest, Task};
use karman_types::{ByteSize, Digest, Slo};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(crate) struct Says {
    order: Result<Order, Failure>,
    place: Result<Vec<Placement>, Failure>,
    asked: AtomicUsize,
}

impl Says {
    /// Puts providers in this order, and places nothing.
    pub(crate) fn order(said: Result<Order, Failure>) -> Arc<Self> {
        Arc::new(Self {
            order: said,
            place: Err(Failure::Nobody),
            asked: AtomicUsize::new(0),
        })
    }

    /// Has tasks go there, and routes nothing.
    pub(crate) fn place(said: Result<Vec<Placement>, Failure>) -> Arc<Self> {
        Arc::new(Self {
            order: Err(Failure::Nobody),
            place: said,
            asked: AtomicUsize::new(0),
        })
    }

    /// The policy that it brings.
    pub(crate) fn policy(self: &Arc<Self>) -> ByName {
        let mut policy = ByName::new("says");
        policy.set_plugin(Some((plugin(), self.clone())));
        policy
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

impl Guests for Says {
    fn has(&self, plugin: &PolicyPlugin) -> bool {
        plugin.name == "says"
    }

    fn start(
        &self,
        plugin: &PolicyPlugin,
        _: &[Task],
        _: &Slo,
        _: Option<&[u8]>,
    ) -> Result<Box<dyn Guest>, Failure> {
        Err(Failure::Missing { id: plugin.id })
    }

    fn order(&self, _: &PolicyPlugin, _: &str, _: &[Taker]) -> Result<Order, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.order.clone()
    }

    fn place(&self, _: &PolicyPlugin, _: f64, _: &[Job], _: &Fleet) -> Result<Vec<Placement>, Failure> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.place.clone()
    }
}

pub(crate) fn plugin() -> PolicyPlugin {
    PolicyPlugin {
        name: "says".into(),
        version: "1.0.0".into(),
        id: Digest::of(b"says"),
        fuel: 1000,
        memory: ByteSize::mib(1),
    }
}

pub(crate) fn trap() -> Failure {
    Failure::Trapped {
        trap: "unreachable".into(),
    }
}
