use super::exits::Exits;
use super::lane::Lane;
use super::measure::measured;
use crate::config::BatchConfig;
use crate::services::Loaded;
use crate::services::loaded::Done;
use karman_engine::capability::nn::Tensors;
use karman_infer::TensorInfo;
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A file under the name of a model of this node, on its device: whose requests are run together.
pub(in crate::services) struct Member {
    name: String,
    file: (Digest, bool),
    allowed: BatchConfig,
    exits: Arc<Exits>,
    lane: Arc<Lane>,
    state: Mutex<State>,
    counts: Arc<Counts>,
}

enum State {
    /// Nobody has asked for it yet.
    New,
    /// It runs alone meanwhile.
    Measuring,
    /// Under this number of its device, with these early exits.
    Ready {
        number: usize,
        most: usize,
        early: Vec<u32>,
    },
    /// It runs alone for good.
    Alone(String),
}

/// What was run together.
#[derive(Debug, Default)]
pub(super) struct Counts {
    batches: AtomicU64,
    requests: AtomicU64,
    apart: AtomicU64,
    early: AtomicU64,
}

/// What was run together of one model.
#[derive(Clone, Debug)]
pub(crate) struct BatchCounts {
    /// Its name.
    pub(crate) model: String,
    /// Runs of several requests.
    pub(crate) batches: u64,
    /// The requests in them.
    pub(crate) requests: u64,
    /// Runs of several that failed, after which each request was run by itself.
    pub(crate) apart: u64,
    /// Requests that an early exit answered.
    pub(crate) early: u64,
}

/// What became of a request.
pub(in crate::services) enum Asked {
    Answered(Result<Done, TaskError>),
    /// It is to be run by itself.
    Alone(Tensors),
}

impl Counts {
    pub(super) fn ran(&self, requests: u64) {
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.apart.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn left_early(&self) {
        self.early.fetch_add(1, Ordering::Relaxed);
    }
}

impl Member {
    pub(super) fn new(
        name: &str,
        file: (Digest, bool),
        allowed: BatchConfig,
        exits: Exits,
        lane: Arc<Lane>,
        counts: Arc<Counts>,
    ) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            file,
            allowed,
            exits: Arc::new(exits),
            lane,
            state: Mutex::new(State::New),
            counts,
        })
    }

    /// The digest of its file, and whether it runs on the GPU.
    pub(super) const fn file(&self) -> (Digest, bool) {
        self.file
    }

    pub(super) const fn counts(&self) -> &Arc<Counts> {
        &self.counts
    }

    pub(super) fn counted(&self) -> BatchCounts {
        BatchCounts {
            model: self.name.clone(),
            batches: self.counts.batches.load(Ordering::Relaxed),
            requests: self.counts.requests.load(Ordering::Relaxed),
            apart: self.counts.apart.load(Ordering::Relaxed),
            early: self.counts.early.load(Ordering::Relaxed),
        }
    }

    pub(super) fn words(&self) -> String {
        match &*self.state.lock() {
            State::New | State::Measuring => {
                format!("in batches of up to {}, once measured", self.allowed.at_most)
            }
            State::Ready { most, early, .. } => {
                let early = early.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
                match early.is_empty() {
                    true => format!("in batches of up to {most}"),
                    false => format!("in batches of up to {most}, with early exits ({early})"),
                }
            }
            State::Alone(why) => format!("not in batches: {why}"),
        }
    }

    /// Runs a request for who waits so long: together with others where it may join them.
    pub(in crate::services) async fn ask(
        self: &Arc<Self>,
        loaded: &Loaded,
        inputs: Tensors,
        within: Option<Duration>,
    ) -> Asked {
        let Some(number) = self.number(loaded) else {
            return Asked::Alone(inputs);
        };
        // The policy reckons with the time that all have.
        let has_time = within.is_none_or(|within| within >= self.allowed.within);
        if !has_time || !is_one(loaded.signature().0, &inputs) {
            return Asked::Alone(inputs);
        }
        let file = (number, self.file);
        let model = (loaded, &self.exits, &self.counts);
        let joined = self.lane.join(file, model, inputs, within);
        match joined {
            Ok(answer) => Asked::Answered(answer.await.unwrap_or_else(|_| {
                Err(TaskError::internal(format!(
                    "a batch of model `{}` broke off",
                    self.name
                )))
            })),
            Err(inputs) => Asked::Alone(inputs),
        }
    }

    /// Its number at its device. Who asks first has it measured.
    fn number(self: &Arc<Self>, loaded: &Loaded) -> Option<usize> {
        let mut state = self.state.lock();
        match &*state {
            State::Ready { number, .. } => Some(*number),
            State::New => {
                *state = State::Measuring;
                tokio::spawn(self.clone().measure(loaded.clone()));
                None
            }
            State::Measuring | State::Alone(_) => None,
        }
    }

    async fn measure(self: Arc<Self>, loaded: Loaded) {
        let state = match measured(&loaded, &self.allowed, &self.exits).await {
            Ok(served) => {
                let most = served.most();
                let depths = served.exits().iter().map(|exit| exit.depth);
                let (whole, _) = self.exits.whole();
                let early = depths.filter(|depth| *depth != whole).collect();
                match self.lane.admit(&self.name, self.file, served) {
                    Some(number) => {
                        tracing::info!(model = self.name, most, "its requests run in batches from now on");
                        State::Ready { number, most, early }
                    }
                    // Requests for the file before this one still wait: the next one for this tries again.
                    None => State::New,
                }
            }
            Err(why) => {
                tracing::warn!(model = self.name, why, "its requests run one by one");
                State::Alone(why)
            }
        };
        *self.state.lock() = state;
    }
}

/// Whether a request is for one item, and is as the model takes it. All others run by themselves, and hear what is wrong with them.
fn is_one(takes: &[TensorInfo], inputs: &Tensors) -> bool {
    let is_given = |info: &TensorInfo| {
        let mut named = inputs.iter().filter(|(name, _)| *name == info.name);
        named.next().is_some_and(|(_, tensor)| {
            let shape = tensor.shape();
            tensor.element() == info.element && info.accepts(shape) && shape.dims().first() == Some(&1)
        })
    };
    inputs.len() == takes.len() && takes.iter().all(is_given)
}
