use super::NodeGroup;
use super::event::Request;
use crate::{Failures, Instant, Servers, Telemetry};
use karman_sched::serve::{Device, Serve, ServedModel};
use karman_types::{NodeId, Tier};
use std::sync::Arc;
use std::time::Duration;

/// One simulated node: a device with its policy, and what it has done.
pub(super) struct Host {
    pub(super) id: NodeId,
    pub(super) tier: Tier,
    pub(super) group: usize,
    pub(super) device: Device<Request, Box<dyn Serve>>,
    pub(super) servers: Servers,
    pub(super) random: fastrand::Rng,
    /// Its load for each core, as others know it.
    pub(super) load: Telemetry<f64>,
    pub(super) failures: Option<Failures>,
    pub(super) sending: Duration,
    pub(super) up: bool,
    /// How often it has failed: what was scheduled before does not count any more.
    pub(super) life: u32,
    /// When it is going to ask its policy again.
    pub(super) wakes: Instant,
    running: Vec<Option<Batch>>,
    vacant: Vec<u32>,
    waiting: u64,
}

/// What runs.
pub(super) struct Batch {
    pub(super) model: usize,
    pub(super) exit: usize,
    pub(super) planned: Duration,
    pub(super) began: Instant,
    pub(super) requests: Vec<Request>,
}

impl Host {
    pub(super) fn new(
        (id, group, number): (NodeId, &NodeGroup, usize),
        models: Arc<[ServedModel]>,
        policy: Box<dyn Serve>,
        random: fastrand::Rng,
        load: Telemetry<f64>,
    ) -> Self {
        Self {
            id,
            tier: group.tier,
            group: number,
            device: Device::new(models, policy, group.cores as usize),
            servers: Servers::new(u64::from(group.cores), Instant::START),
            random,
            load,
            failures: None,
            sending: Duration::ZERO,
            up: true,
            life: 0,
            wakes: Instant::MAX,
            running: Vec::new(),
            vacant: Vec::new(),
            waiting: 0,
        }
    }

    pub(super) fn arrived(&mut self, now: Instant, model: usize, request: Request) {
        self.waiting += 1;
        self.device.arrived(now.since_start(), model, request);
    }

    /// A batch begins; the slot that it has until its end.
    pub(super) fn begin(&mut self, now: Instant, batch: Batch) -> u32 {
        let begun = self.servers.begin(now);
        debug_assert!(begun, "the device has as many servers");
        self.waiting -= batch.requests.len() as u64;
        match self.vacant.pop() {
            Some(slot) => {
                self.running[slot as usize] = Some(batch);
                slot
            }
            None => {
                self.running.push(Some(batch));
                self.running.len() as u32 - 1
            }
        }
    }

    /// A batch is done; nothing if there is none any more.
    pub(super) fn end(&mut self, now: Instant, slot: u32) -> Option<Batch> {
        let batch = self.running.get_mut(slot as usize)?.take()?;
        self.vacant.push(slot);
        self.servers.end(now);
        self.device.finished(batch.planned, now.since(batch.began));
        Some(batch)
    }

    pub(super) const fn refused(&mut self, count: usize) {
        self.waiting -= count as u64;
    }

    /// It stops; what waited and what ran is lost.
    pub(super) fn fail(&mut self, now: Instant, cores: u32) -> Vec<Request> {
        self.up = false;
        self.life += 1;
        self.waiting = 0;
        let mut lost = self.device.clear(cores as usize);
        for batch in self.running.drain(..).flatten() {
            self.servers.end(now);
            lost.extend(batch.requests);
        }
        self.vacant.clear();
        lost
    }

    /// Requests that wait.
    pub(super) const fn waiting(&self) -> u64 {
        self.waiting
    }

    /// Requests that wait and batches that run, for each core.
    pub(super) fn load_now(&self) -> f64 {
        (self.waiting + self.servers.busy()) as f64 / self.servers.count().max(1) as f64
    }
}
