use super::ServedModel;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// What waits for a device: a queue for each model, the oldest request first. All a policy sees.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Backlog {
    models: Arc<[ServedModel]>,
    /// When the waiting requests of each model came, counted from any fixed moment.
    arrived: Vec<VecDeque<Duration>>,
    pace: f64,
    /// Batches that the device runs at once, and that it runs now.
    servers: usize,
    busy: usize,
}

/// How much the pace changes at most with one batch.
const STEP: f64 = 0.02;
/// Which share of batches shall take no longer than planned.
const SHARE: f64 = 0.95;

impl Backlog {
    /// Nothing waits, for one server.
    pub fn new(models: Arc<[ServedModel]>) -> Self {
        Self {
            arrived: vec![VecDeque::new(); models.len()],
            models,
            pace: 1.0,
            servers: 1,
            busy: 0,
        }
    }

    /// The same for so many servers.
    pub(super) fn with_servers(self, servers: usize) -> Self {
        Self { servers, ..self }
    }

    /// The models that are served.
    pub fn models(&self) -> &[ServedModel] {
        &self.models
    }

    /// How many batches the device runs at once, from 1.
    pub fn servers(&self) -> usize {
        self.servers.max(1)
    }

    /// The numbers of the models for which something waits.
    pub fn waiting_models(&self) -> impl Iterator<Item = usize> {
        (0..self.models.len()).filter(|model| !self.arrived[*model].is_empty())
    }

    /// When the requests of a model came, the oldest first.
    pub fn arrived(&self, model: usize) -> impl ExactSizeIterator<Item = Duration> {
        self.arrived[model].iter().copied()
    }

    /// When the oldest request of a model came.
    pub fn oldest(&self, model: usize) -> Option<Duration> {
        self.arrived[model].front().copied()
    }

    /// By when the oldest request of a model is due.
    pub fn due(&self, model: usize) -> Option<Duration> {
        Some(self.oldest(model)?.saturating_add(self.models[model].slo()))
    }

    /// How many requests of a model wait.
    pub fn len(&self, model: usize) -> usize {
        self.arrived[model].len()
    }

    /// How many of them the next batch can take.
    pub fn batch(&self, model: usize) -> usize {
        self.len(model).min(self.models[model].most())
    }

    /// The model whose oldest request is due first, the first of several.
    pub fn most_urgent(&self) -> Option<usize> {
        self.waiting_models().min_by_key(|model| self.due(*model))
    }

    /// The model of which most requests wait, the first of several.
    pub fn longest(&self) -> Option<usize> {
        // The first of equal ones: `max_by_key` would find the last.
        self.waiting_models()
            .min_by_key(|model| std::cmp::Reverse(self.len(*model)))
    }

    /// How long a batch of a model takes, in seconds: as its profile says, at the pace that is measured.
    pub fn seconds(&self, model: usize, exit: usize, batch: usize) -> f64 {
        self.models[model].seconds(exit, batch) * self.pace
    }

    /// The same as a length of time.
    pub fn time(&self, model: usize, exit: usize, batch: usize) -> Duration {
        Duration::from_secs_f64(self.seconds(model, exit, batch))
    }

    /// How much longer batches take than their profiles say: 1 as long as nothing was measured. It follows the 95th percentile,
    /// so a tenant that nobody told of, or heat, slows plans down within some thirty batches.
    pub const fn pace(&self) -> f64 {
        self.pace
    }

    /// The deepest exit with which a batch is done before its oldest request is due, if there is one.
    pub fn deepest_in_time(&self, now: Duration, model: usize, batch: usize) -> Option<usize> {
        let left = self.due(model)?.checked_sub(now)?.as_secs_f64();
        let profile = &self.models[model];
        (0..=profile.deepest())
            .rev()
            .find(|exit| self.seconds(model, *exit, batch) <= left)
    }

    /// Whether a request is to be run that is late by the pace: the device is idle, no other waits, and by the profile it is in time with this
    /// exit. Where the pace says that whatever comes is late, it could never be measured again: only batches do that.
    pub(super) fn tries(&self, now: Duration, model: usize, exit: usize) -> bool {
        let profile = &self.models[model];
        let in_time = |due| now + profile.time(exit, 1) <= due;
        self.busy == 0
            && self.arrived.iter().map(VecDeque::len).sum::<usize>() == 1
            && self.time(model, exit, 1) > profile.slo()
            && self.due(model).is_some_and(in_time)
    }

    /// Returns when it came.
    pub(super) fn join(&mut self, now: Duration, model: usize) -> Duration {
        // A clock that steps back must not make a request older than the one before it.
        let now = self.arrived[model].back().map_or(now, |last| now.max(*last));
        self.arrived[model].push_back(now);
        now
    }

    /// Takes note of how long a batch took for which the profile says `planned`: the pace goes up quickly after a slow one and
    /// down slowly after others, and stays where 5 of 100 are slower.
    pub(super) fn took(&mut self, planned: Duration, took: Duration) {
        let slow = took.as_secs_f64() > planned.as_secs_f64() * self.pace;
        let step = if slow { SHARE } else { SHARE - 1.0 };
        self.pace = (self.pace * (1.0 + STEP * step)).clamp(1e-3, 1e3);
    }

    /// Servers that run nothing.
    pub(super) const fn free(&self) -> usize {
        self.servers.saturating_sub(self.busy)
    }

    /// So many servers run nothing from now on.
    pub(super) const fn set_free(&mut self, free: usize) {
        self.busy = self.servers.saturating_sub(free);
    }

    pub(super) fn leave(&mut self, model: usize, count: usize) {
        self.arrived[model].drain(..count);
    }

    /// One more model; its number.
    pub(super) fn add(&mut self, model: ServedModel) -> usize {
        self.models = self.models.iter().cloned().chain([model]).collect();
        self.arrived.push(VecDeque::new());
        self.models.len() - 1
    }

    /// Another model under this number. Nothing of the one before may wait.
    pub(super) fn replace(&mut self, number: usize, model: ServedModel) {
        let mut models = self.models.to_vec();
        models[number] = model;
        self.models = models.into();
    }

    /// Takes over the models of another backlog, its servers and its pace, not what waits in it.
    pub(super) fn follow(&mut self, other: &Self) {
        self.models = other.models.clone();
        self.arrived.resize(self.models.len(), VecDeque::new());
        (self.pace, self.servers, self.busy) = (other.pace, other.servers, other.busy);
    }
}
