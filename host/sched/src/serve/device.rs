use super::{Backlog, Choice, Serve, ServedModel};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A device that several models share, in time division: one batch of one model at a time on each of its servers, not
/// interrupted.
///
/// It owns what waits and asks the policy. The node (or the simulator) tells it what happens ([`Device::arrived`],
/// [`Device::finished`]) and then does what [`Device::poll`] says until that is nothing.
#[derive(Clone, Debug)]
pub struct Device<R, P> {
    pub(super) policy: P,
    pub(super) backlog: Backlog,
    /// The requests of the backlog.
    requests: Vec<VecDeque<R>>,
}

/// What a device is to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Action<R> {
    /// Run these requests as one batch; [`Device::finished`] when it is done.
    Run {
        /// On this model.
        model: usize,
        /// Up to this exit.
        exit: usize,
        /// How long that takes, as the profile says: for [`Device::finished`].
        planned: Duration,
        /// The oldest first.
        requests: Vec<R>,
    },
    /// Refuse these: they cannot be answered in time any more.
    Refuse {
        /// Of this model.
        model: usize,
        /// The oldest first.
        requests: Vec<R>,
    },
    /// Ask again at this time, or when something happened before.
    Wait {
        /// When.
        until: Duration,
    },
}

/// A policy wants what is not there.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "the policy chose {choice:?}, but {waiting} requests of that model wait, in batches of at most {most}, {exits} exits"
)]
pub struct BadChoice {
    /// What it chose.
    pub choice: Choice,
    /// How many requests of that model wait.
    pub waiting: usize,
    /// Its largest batch.
    pub most: usize,
    /// How many exits it has.
    pub exits: usize,
}

impl<R, P: Serve> Device<R, P> {
    /// An idle device with this many servers.
    pub fn new(models: Arc<[ServedModel]>, policy: P, servers: usize) -> Self {
        Self {
            policy,
            requests: models.iter().map(|_| VecDeque::new()).collect(),
            backlog: Backlog::new(models).with_servers(servers),
        }
    }

    /// One more model is served from now on; its number.
    pub fn add(&mut self, model: ServedModel) -> usize {
        self.requests.push(VecDeque::new());
        self.backlog.add(model)
    }

    /// Another model is served under this number from now on: the answer is whether nothing waits for the one before, else nothing has
    /// changed.
    ///
    /// # Panics
    /// When there is no such model.
    pub fn replace(&mut self, number: usize, model: ServedModel) -> bool {
        let is_idle = self.requests[number].is_empty();
        if is_idle {
            self.backlog.replace(number, model);
        }
        is_idle
    }

    /// A request came for a model.
    ///
    /// # Panics
    /// When there is no such model.
    pub fn arrived(&mut self, now: Duration, model: usize, request: R) {
        let at = self.backlog.join(now, model);
        self.requests[model].push_back(request);
        self.policy.arrived(&self.backlog, model, at);
    }

    /// A batch is done, which was planned to take so long and did take so long.
    pub fn finished(&mut self, planned: Duration, took: Duration) {
        self.backlog.set_free(self.backlog.free() + 1);
        self.backlog.took(planned, took);
    }

    /// What is to be done now; nothing when no server is free or nothing waits.
    ///
    /// # Errors
    /// [`BadChoice`] when the policy wants what is not there; nothing has changed then.
    pub fn poll(&mut self, now: Duration) -> Result<Option<Action<R>>, BadChoice> {
        if self.backlog.free() == 0 {
            return Ok(None);
        }
        let Some(choice) = self.policy.choose(now, &self.backlog) else {
            return Ok(None);
        };
        match choice {
            Choice::Run { model, exit, batch } => {
                let exits = self.backlog.models().get(model).map_or(0, |m| m.exits().len());
                let most = self.backlog.models().get(model).map_or(0, ServedModel::most);
                self.check(choice, model, exit < exits && (1..=most).contains(&batch), batch)?;
                self.backlog.set_free(self.backlog.free() - 1);
                let planned = self.backlog.models()[model].time(exit, batch);
                let requests = self.take(model, batch);
                Ok(Some(Action::Run {
                    model,
                    exit,
                    planned,
                    requests,
                }))
            }
            Choice::Refuse { model, count } => {
                self.check(choice, model, count > 0, count)?;
                let requests = self.take(model, count);
                Ok(Some(Action::Refuse { model, requests }))
            }
            Choice::Wait { until } => Ok(Some(Action::Wait { until })),
        }
    }

    /// What waits.
    pub const fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// The policy.
    pub const fn policy(&self) -> &P {
        &self.policy
    }

    /// Everything that waits leaves, as after a failure, and so many servers are free: batches that ran on these count as lost too.
    pub fn clear(&mut self, free: usize) -> Vec<R> {
        self.backlog.set_free(free);
        let models = 0..self.requests.len();
        models
            .flat_map(|model| {
                let all = self.requests[model].len();
                self.take(model, all)
            })
            .collect()
    }

    fn check(&self, choice: Choice, model: usize, fits: bool, count: usize) -> Result<(), BadChoice> {
        let waiting = self.requests.get(model).map_or(0, VecDeque::len);
        if fits && count <= waiting {
            return Ok(());
        }
        let profile = self.backlog.models().get(model);
        Err(BadChoice {
            choice,
            waiting,
            most: profile.map_or(0, ServedModel::most),
            exits: profile.map_or(0, |profile| profile.exits().len()),
        })
    }

    fn take(&mut self, model: usize, count: usize) -> Vec<R> {
        self.backlog.leave(model, count);
        self.policy.left(&self.backlog, model, count);
        self.requests[model].drain(..count).collect()
    }
}
