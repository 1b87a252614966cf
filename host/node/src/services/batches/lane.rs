use super::exits::Exits;
use super::member::Counts;
use super::together;
use crate::services::Loaded;
use crate::services::loaded::Done;
use karman_engine::capability::nn::Tensors;
use karman_sched::serve::{Action, Device, EdgeServing, Gather, ServedModel};
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{Receiver, Sender, channel};

/// A device of this node, and what waits for it: the policy says what runs next, in what batch.
pub(super) struct Lane {
    started: Instant,
    /// Batches at once.
    at_once: usize,
    state: Mutex<State>,
}

struct State {
    device: Device<Request, Gather<EdgeServing>>,
    /// By the numbers that the device gives them.
    models: Vec<Place>,
    running: usize,
    /// When the policy is asked again, where nothing happens before.
    wakes: Option<Duration>,
}

/// A model of a device.
struct Place {
    name: String,
    file: (Digest, bool),
}

struct Request {
    loaded: Loaded,
    exits: Arc<Exits>,
    counts: Arc<Counts>,
    inputs: Tensors,
    /// When who asked waits no longer, in the time of its lane.
    due: Option<Duration>,
    answer: Sender<Result<Done, TaskError>>,
}

/// What the policy wants.
enum Next {
    Run(Batch),
    Refuse(Vec<Request>),
    /// By themselves, and no longer by the policy.
    Alone(Vec<Request>),
    Wake(Duration),
}

struct Batch {
    number: usize,
    /// Up to which exit, as the policy counts those that may answer.
    exit: usize,
    /// The same as the model counts them.
    depth: u32,
    /// When it should be done.
    ends: Duration,
    requests: Vec<Request>,
}

impl Lane {
    pub(super) fn new(at_once: usize) -> Arc<Self> {
        let policy = Gather::new(EdgeServing::default());
        Arc::new(Self {
            started: Instant::now(),
            at_once,
            state: Mutex::new(State {
                device: Device::new([].into(), policy, at_once),
                models: Vec::new(),
                running: 0,
                wakes: None,
            }),
        })
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// Serves a model from now on, in the place of what had its name before; its number. Nothing while requests for that wait.
    pub(super) fn admit(&self, name: &str, file: (Digest, bool), served: ServedModel) -> Option<usize> {
        let mut state = self.state.lock();
        let before = state.models.iter().position(|place| place.name == name);
        match before {
            Some(number) => {
                let is_idle = state.device.replace(number, served);
                if is_idle {
                    state.models[number].file = file;
                }
                is_idle.then_some(number)
            }
            None => {
                state.models.push(Place {
                    name: name.to_owned(),
                    file,
                });
                Some(state.device.add(served))
            }
        }
    }

    /// Has a request wait for its batch. Its inputs come back where the model of that number has another file by now.
    pub(super) fn join(
        self: &Arc<Self>,
        (number, file): (usize, (Digest, bool)),
        (loaded, exits, counts): (&Loaded, &Arc<Exits>, &Arc<Counts>),
        inputs: Tensors,
        within: Option<Duration>,
    ) -> Result<Receiver<Result<Done, TaskError>>, Tensors> {
        let (answer, answered) = channel();
        {
            let mut state = self.state.lock();
            if state.models.get(number).is_none_or(|place| place.file != file) {
                return Err(inputs);
            }
            let now = self.now();
            let request = Request {
                loaded: loaded.clone(),
                exits: exits.clone(),
                counts: counts.clone(),
                inputs,
                due: within.and_then(|within| now.checked_add(within)),
                answer,
            };
            state.device.arrived(now, number, request);
        }
        self.go_on();
        Ok(answered)
    }

    /// Does what the policy says until that is nothing.
    fn go_on(self: &Arc<Self>) {
        while let Some(next) = self.next() {
            match next {
                Next::Run(batch) => drop(tokio::spawn(self.clone().run(batch))),
                Next::Refuse(requests) => requests.into_iter().for_each(Request::refuse),
                Next::Alone(requests) => {
                    requests
                        .into_iter()
                        .for_each(|request| drop(tokio::spawn(request.alone())));
                }
                Next::Wake(until) => {
                    tokio::spawn(self.clone().wake(until));
                    return;
                }
            }
        }
    }

    fn next(&self) -> Option<Next> {
        let mut state = self.state.lock();
        let now = self.now();
        match state.device.poll(now) {
            Ok(None) => None,
            Ok(Some(Action::Run {
                model,
                exit,
                requests,
                ..
            })) => {
                state.running += 1;
                let backlog = state.device.backlog();
                let takes = backlog.time(model, exit, requests.len());
                Some(Next::Run(Batch {
                    number: model,
                    exit,
                    depth: backlog.models()[model].exits()[exit].depth,
                    ends: now.saturating_add(takes),
                    requests,
                }))
            }
            Ok(Some(Action::Refuse { requests, .. })) => Some(Next::Refuse(requests)),
            Ok(Some(Action::Wait { until })) => {
                let is_sooner = state.wakes.is_none_or(|wakes| until < wakes);
                is_sooner.then(|| {
                    state.wakes = Some(until);
                    Next::Wake(until)
                })
            }
            Err(error) => {
                tracing::error!(%error, "no batches of what waits");
                let free = self.at_once - state.running;
                Some(Next::Alone(state.device.clear(free)))
            }
        }
    }

    async fn wake(self: Arc<Self>, until: Duration) {
        tokio::time::sleep(until.saturating_sub(self.now())).await;
        {
            let mut state = self.state.lock();
            state.wakes = state.wakes.filter(|wakes| *wakes != until);
        }
        self.go_on();
    }

    /// Runs a batch. Who has gone takes no place in it, and who would be late in it is run alone.
    async fn run(self: Arc<Self>, mut batch: Batch) {
        batch.stop_at_exit().await;
        let mut together: Vec<Request> = Vec::with_capacity(batch.requests.len());
        for request in batch.requests {
            if request.answer.is_closed() {
                continue;
            }
            let is_late = request.due.is_some_and(|due| due < batch.ends);
            let is_like = together.first().is_none_or(|first| first.is_like(&request));
            match is_like && !is_late {
                true => together.push(request),
                false => drop(tokio::spawn(request.alone())),
            }
        }
        let ran = together.len();
        let took = match ran {
            0 => None,
            1 => match together.pop() {
                Some(request) => request.alone().await,
                None => None,
            },
            _ => run_together(together, self.size(batch.number, ran)).await,
        };
        self.ended((batch.number, batch.exit), ran, took);
        self.go_on();
    }

    /// The smallest batch that was measured and holds so many.
    fn size(&self, number: usize, requests: usize) -> usize {
        let state = self.state.lock();
        let served = &state.device.backlog().models()[number];
        let mut times = served.exits().iter().flat_map(|exit| &exit.times);
        let found = times.find(|(size, _)| *size >= requests);
        found.map_or(requests, |(size, _)| *size)
    }

    /// A batch is done, so many of which ran and took so long; nothing where that says nothing of the device.
    fn ended(&self, (number, exit): (usize, usize), ran: usize, took: Option<Duration>) {
        let mut state = self.state.lock();
        state.running -= 1;
        let backlog = state.device.backlog();
        let served = &backlog.models()[number];
        // By now it may be another model, with fewer exits.
        let planned = served.time(exit.min(served.deepest()), ran);
        let took = took.unwrap_or_else(|| planned.mul_f64(backlog.pace()));
        state.device.finished(planned, took);
    }
}

impl Batch {
    /// Its requests are run up to its exit from now on; where that cannot be loaded any more, all of the model answers.
    async fn stop_at_exit(&mut self) {
        let first = self.requests.first();
        let exits = first.map(|first| first.exits.clone());
        let Some(exits) = exits.filter(|exits| exits.whole().0 != self.depth) else {
            return;
        };
        let loaded = exits.loaded(self.depth).await;
        match loaded {
            Ok(loaded) => {
                for request in &mut self.requests {
                    request.loaded = loaded.clone();
                }
            }
            Err(error) => tracing::warn!(%error, exit = self.depth, "all of the model answers"),
        }
    }
}

/// Where the run of all fails, each is run by itself: the one that is to blame fails alone.
async fn run_together(requests: Vec<Request>, size: usize) -> Option<Duration> {
    let first = requests.first()?;
    let (loaded, counts) = (first.loaded.clone(), first.counts.clone());
    let inputs = requests.iter().map(|request| request.inputs.clone()).collect();
    match together::run(&loaded, inputs, size).await {
        Ok((answers, took)) => {
            let together = requests.len() as u32;
            counts.ran(u64::from(together));
            for (request, outputs) in requests.into_iter().zip(answers) {
                request.tell(Ok(loaded.done(outputs, took, together)));
            }
            Some(took)
        }
        Err(error) => {
            tracing::debug!(%error, requests = requests.len(), "a batch failed: each is run by itself");
            counts.failed();
            for request in requests {
                tokio::spawn(request.alone());
            }
            None
        }
    }
}

impl Request {
    /// Runs it by itself, and how long that took.
    async fn alone(mut self) -> Option<Duration> {
        let inputs = std::mem::take(&mut self.inputs);
        let ran = self.loaded.ask_alone(inputs).await;
        let took = ran.as_ref().ok().map(|done| done.took);
        self.tell(ran);
        took
    }

    fn refuse(self) {
        self.tell(Err(TaskError::deadline(
            "the model has more to do than it could answer in time",
        )));
    }

    fn tell(self, done: Result<Done, TaskError>) {
        if done.as_ref().is_ok_and(|done| done.exit.is_some()) {
            self.counts.left_early();
        }
        // Who asked may have gone.
        let _ = self.answer.send(done);
    }

    /// Whether the two can be joined: each fits the model, and they have the same sizes where it leaves them open.
    fn is_like(&self, other: &Self) -> bool {
        self.inputs.iter().all(|(name, tensor)| {
            let mut others = other.inputs.iter();
            others.any(|(other, others)| other == name && others.shape() == tensor.shape())
        })
    }
}
