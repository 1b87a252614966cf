//! One run: feeds the coordinator what happens, and does what it says.

use super::memory::Memory;
use super::record::{FedEvent, FedStatus, Record, words};
use super::wire::{self, Answer, Course, Frames, Order, Work};
use crate::services::blocking;
use futures::future::BoxFuture;
use karman_fed::{
    Action, Array, AssignmentId, Checkpoint, ClientId, Coordinator, Event, Instant, Layout, Processor,
    Profile, Run,
};
use karman_store::Store;
use karman_types::{ErrorKind, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// How long a client is tried that cannot be reached, before it counts as gone: it may be starting again.
const LOST_AFTER: Duration = Duration::from_secs(30);
/// How long between two tries.
const AGAIN: Duration = Duration::from_millis(500);

/// The clients of a run, wherever they are.
pub(super) trait Clients: Send + Sync {
    /// Has a client carry an order out. Dropping the future withdraws it.
    fn ask(&self, order: Order, time: Option<Duration>) -> BoxFuture<'static, Result<Answer, TaskError>>;

    /// Told that a client does not answer any more: [`Event::Here`] follows when it does again.
    fn lost(&self, _client: ClientId) {}

    /// The nodes of clients, client 0 first.
    fn members(&self) -> Vec<NodeId> {
        Vec::new()
    }

    /// What clients keep that this process plays.
    fn memory(&self) -> Option<&Memory> {
        None
    }
}

/// The outside of a run that is driven.
#[derive(Clone)]
pub(super) struct Handle {
    inbox: UnboundedSender<Event>,
    seen: Arc<Mutex<FedStatus>>,
    /// The number of events, as it grows.
    events: watch::Receiver<usize>,
}

/// What is needed to drive a run.
pub(super) struct Conductor {
    record: Record,
    store: Store,
    clients: Arc<dyn Clients>,
    coordinator: Option<Coordinator>,
    /// When the run's clock stood at `Instant(base)`.
    started: std::time::Instant,
    base: u64,
    orders: HashMap<AssignmentId, AbortHandle>,
    /// The model of this version as it travels.
    frames: Option<(u64, Arc<Frames>)>,
    inbox: UnboundedReceiver<Event>,
    outbox: UnboundedSender<Event>,
    seen: Arc<Mutex<FedStatus>>,
    events: watch::Sender<usize>,
}

impl Conductor {
    /// Gets ready to drive a run, from its beginning or from where it stands. `inbox` is where clients are announced.
    pub(super) fn new(
        record: Record,
        store: Store,
        clients: Arc<dyn Clients>,
        (outbox, inbox): (UnboundedSender<Event>, UnboundedReceiver<Event>),
    ) -> Result<(Self, Handle), TaskError> {
        let coordinator = record.checkpoint.clone().map(resumed).transpose()?;
        let base = record
            .checkpoint
            .as_ref()
            .map_or(0, |checkpoint| checkpoint.taken().0);
        let mut status = record.status(0)?;
        status.running = true;
        let (events, watched) = watch::channel(status.log.len());
        let seen = Arc::new(Mutex::new(status));
        let handle = Handle {
            inbox: outbox.clone(),
            seen: seen.clone(),
            events: watched,
        };
        let conductor = Self {
            record,
            store,
            clients,
            coordinator,
            started: std::time::Instant::now(),
            base,
            orders: HashMap::new(),
            frames: None,
            inbox,
            outbox,
            seen,
            events,
        };
        Ok((conductor, handle))
    }

    /// Drives the run to its end.
    ///
    /// # Errors
    /// What the disk refuses; what keeps the model from beginning.
    pub(super) async fn drive(mut self) -> Result<(), TaskError> {
        let ended = self.drive_to_end().await;
        self.orders.values().for_each(AbortHandle::abort);
        let mut seen = self.seen.lock();
        seen.running = false;
        if let Err(error) = &ended {
            // What is on the disk goes on at the next start.
            let version = seen.status.as_ref().map_or(0, |status| status.version);
            seen.log.push(FedEvent::Finished {
                version,
                failure: Some(error.message.clone()),
            });
            seen.events = seen.log.len();
        }
        let count = seen.log.len();
        drop(seen);
        self.events.send_replace(count);
        ended
    }

    async fn drive_to_end(&mut self) -> Result<(), TaskError> {
        match &self.coordinator {
            Some(coordinator) if coordinator.status().ended => return Ok(()),
            Some(_) => self.feed(Event::Severed).await?,
            None => self.begin().await?,
        }
        loop {
            let event = self.next().await;
            self.feed(event).await?;
            if self.coordinator.as_ref().is_some_and(|it| it.status().ended) {
                return Ok(());
            }
        }
    }

    /// What happens next.
    async fn next(&mut self) -> Event {
        let due = self.coordinator.as_ref().and_then(Coordinator::next_timeout);
        let wait = due.map(|due| Duration::from_millis(due.0.saturating_sub(self.now().0)));
        let received = match wait {
            Some(wait) => tokio::time::timeout(wait, self.inbox.recv()).await,
            None => Ok(self.inbox.recv().await),
        };
        match received {
            Ok(Some(event)) => event,
            // The sender is held here, so the channel never ends.
            Ok(None) | Err(_) => Event::Tick,
        }
    }

    fn now(&self) -> Instant {
        Instant(self.base + self.started.elapsed().as_millis() as u64)
    }

    /// Has the first client that is here begin the model.
    async fn begin(&mut self) -> Result<(), TaskError> {
        let mut waiting: Vec<Event> = Vec::new();
        loop {
            let event = match self.inbox.recv().await {
                Some(Event::Stop) | None => {
                    return Err(TaskError::cancelled("it was stopped before it began"));
                }
                Some(event) => event,
            };
            let Event::Here { client, profile } = event else {
                continue;
            };
            waiting.push(Event::Here { client, profile });
            let seed = self.record.run.seed;
            let order = self.order(client, Work::Begin { seed });
            match self.clients.ask(order, None).await {
                Ok(Answer::Begun { model }) => {
                    self.set_up(&model)?;
                    for event in waiting {
                        self.feed(event).await?;
                    }
                    return Ok(());
                }
                Ok(_) => self.note(FedEvent::Trouble {
                    client,
                    what: "it answers what it was not asked".into(),
                }),
                Err(error) if error.kind == ErrorKind::Unavailable => self.clients.lost(client),
                Err(error) => return Err(error),
            }
        }
    }

    fn set_up(&mut self, model: &Frames) -> Result<(), TaskError> {
        let arrays = wire::arrays(model)?;
        let shapes = arrays.iter().map(|array| {
            Ok(Array {
                name: array.name.clone(),
                shape: wire::shape_of(array)?,
            })
        });
        let invalid =
            |error: &dyn std::fmt::Display| TaskError::invalid(error.to_string()).with_field("model");
        let layout =
            Layout::new(shapes.collect::<Result<_, TaskError>>()?).map_err(|error| invalid(&error))?;
        let numbers = arrays.into_iter().flat_map(|array| array.values).collect();
        let run = self.record.run.clone();
        let strategy = run.strategy.build().ok_or_else(|| no_plugins("strategy"))?;
        let selection = run.selection.build();
        let mut entropy = [0; 32];
        getrandom::fill(&mut entropy).map_err(|error| TaskError::internal(error.to_string()))?;
        let processor = Arc::new(Processor);
        let coordinator = Coordinator::new(run, layout, numbers, strategy, selection, processor, entropy);
        self.coordinator = Some(coordinator.map_err(|error| invalid(&error))?);
        Ok(())
    }

    /// Feeds one event, and does what follows from it. The coordinator computes where that may take its time.
    async fn feed(&mut self, event: Event) -> Result<(), TaskError> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if let Event::Updated { assignment, .. }
            | Event::Judged { assignment, .. }
            | Event::GaveUp { assignment, .. } = &event
                && self.orders.remove(assignment).is_none()
            {
                // It lay here already when its order was withdrawn: that is no fault of the client.
                continue;
            }
            let Some(mut coordinator) = self.coordinator.take() else {
                return Ok(());
            };
            let now = self.now();
            let (coordinator, actions) = blocking(move || {
                let actions = coordinator.handle(now, event);
                Ok((coordinator, actions))
            })
            .await?;
            self.coordinator = Some(coordinator);
            for action in actions {
                events.extend(self.act(action).await?);
            }
        }
        self.show();
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<Option<Event>, TaskError> {
        match action {
            Action::Send { client, order } => self.send(client, *order)?,
            Action::Withdraw { assignment, .. } => {
                if let Some(order) = self.orders.remove(&assignment) {
                    order.abort();
                }
            }
            Action::Save { ticket, checkpoint } => {
                return Ok(Some(match self.save(*checkpoint).await {
                    Ok(()) => Event::Saved { ticket },
                    Err(error) => Event::Unsaved {
                        ticket,
                        reason: error.message,
                    },
                }));
            }
            Action::Refused { client, refusal } => self.note(FedEvent::Trouble {
                client,
                what: format!("refused: {refusal}"),
            }),
            Action::Excluded { client } => self.note(FedEvent::Trouble {
                client,
                what: "excluded: too much of what it sent was refused".into(),
            }),
            Action::Lost { client, loss, .. } => {
                if let Some(what) = words(&loss) {
                    self.note(FedEvent::Trouble { client, what });
                }
            }
            Action::Closed(report) => self.note(FedEvent::from(&*report)),
            Action::Failed { round, failure } => self.note(FedEvent::Failed {
                round,
                why: failure.to_string(),
            }),
            Action::Evaluated(report) => self.note(FedEvent::Judged {
                version: report.version,
                clients: report.clients,
                accuracy: report.accuracy,
                loss: report.loss,
            }),
            Action::Finished { version, failure } => {
                self.note(FedEvent::Finished {
                    version,
                    failure: failure.map(|failure| failure.to_string()),
                });
                self.save_end().await?;
            }
        }
        Ok(None)
    }

    /// Sends an order, and sees to it that what comes of it is an event.
    fn send(&mut self, client: ClientId, sent: karman_fed::Order) -> Result<(), TaskError> {
        let layout = self.layout()?.clone();
        let model = match &self.frames {
            Some((version, frames)) if *version == sent.version => frames.clone(),
            _ => Arc::new(wire::frames(&layout, &sent.model)?),
        };
        self.frames = Some((sent.version, model.clone()));
        let (assignment, time) = (sent.assignment, sent.time);
        let work = match sent.work {
            karman_fed::Work::Evaluate => Work::Evaluate { model },
            karman_fed::Work::Train(train) => Work::Train {
                assignment,
                version: sent.version,
                course: Course::from(&train),
                model,
                control: train
                    .control
                    .map_or(Ok(Vec::new()), |control| wire::frames(&layout, &control))?,
            },
        };
        let order = self.order(client, work);
        let (clients, outbox) = (self.clients.clone(), self.outbox.clone());
        let task = tokio::spawn(async move {
            let event = match ask_patiently(&*clients, order, time).await {
                Ok(Answer::Trained(update)) => Event::Updated {
                    client,
                    assignment,
                    update,
                },
                Ok(Answer::Judged(judgement)) => Event::Judged {
                    client,
                    assignment,
                    judgement,
                },
                Ok(_) => Event::GaveUp {
                    client,
                    assignment,
                    reason: "it answers what it was not asked".into(),
                },
                Err(error) if error.kind == ErrorKind::Unavailable => {
                    clients.lost(client);
                    Event::Gone { client }
                }
                Err(error) => Event::GaveUp {
                    client,
                    assignment,
                    reason: error.message,
                },
            };
            // The run may be over.
            let _ = outbox.send(event);
        });
        self.orders.insert(assignment, task.abort_handle());
        Ok(())
    }

    fn layout(&self) -> Result<&Layout, TaskError> {
        let coordinator = self.coordinator.as_ref();
        coordinator
            .map(Coordinator::layout)
            .ok_or_else(|| TaskError::internal("an order without a model"))
    }

    fn order(&self, client: ClientId, work: Work) -> Order {
        Order::new(&self.record.id, &self.record.run, client, work)
    }

    async fn save(&mut self, checkpoint: Checkpoint) -> Result<(), TaskError> {
        self.record.checkpoint = Some(checkpoint);
        self.save_record().await
    }

    /// Saves that the run is over, so that nothing of it goes on.
    async fn save_end(&mut self) -> Result<(), TaskError> {
        let checkpoint = self.coordinator.as_ref().map(Coordinator::checkpoint).transpose();
        let checkpoint = checkpoint.map_err(|error| TaskError::internal(error.to_string()))?;
        self.record.checkpoint = checkpoint;
        self.save_record().await
    }

    async fn save_record(&mut self) -> Result<(), TaskError> {
        self.record.members = self.clients.members();
        if let Some(memory) = self.clients.memory() {
            self.record.clients = memory.all();
        }
        let (record, store) = (self.record.clone(), self.store.clone());
        blocking(move || record.write(&store)).await
    }

    fn note(&mut self, event: FedEvent) {
        tracing::info!(run = self.record.run.name, ?event, "federated run");
        self.record.log.push(event);
    }

    /// Lets others see how far it is.
    fn show(&self) {
        let mut seen = self.seen.lock();
        seen.status = self.coordinator.as_ref().map(Coordinator::status);
        seen.members = self.clients.members();
        let known = seen.log.len();
        if let Some(new) = self.record.log.get(known..) {
            seen.log.extend_from_slice(new);
        }
        seen.events = seen.log.len();
        let count = seen.events;
        drop(seen);
        self.events
            .send_if_modified(|events| std::mem::replace(events, count) != count);
    }
}

impl Handle {
    pub(super) fn tell(&self, event: Event) {
        // A run that is over hears nothing any more.
        let _ = self.inbox.send(event);
    }

    /// How far it is, with its events after so many.
    pub(super) fn status(&self, after: usize) -> FedStatus {
        let mut status = self.seen.lock().clone();
        status.log = status.log.split_off(after.min(status.log.len()));
        status
    }

    pub(super) fn is_running(&self) -> bool {
        self.seen.lock().running
    }

    /// Waits until there are more events than so many, or it is over.
    pub(super) async fn more_than(&mut self, events: usize) {
        while *self.events.borrow_and_update() <= events && self.is_running() {
            if self.events.changed().await.is_err() {
                return;
            }
        }
    }
}

/// Who cannot be reached may be starting again: it is asked again for a while.
async fn ask_patiently(clients: &dyn Clients, order: Order, time: Duration) -> Result<Answer, TaskError> {
    let started = std::time::Instant::now();
    loop {
        let left = time.saturating_sub(started.elapsed());
        match clients.ask(order.clone(), Some(left)).await {
            Err(error)
                if error.kind == ErrorKind::Unavailable && started.elapsed() < LOST_AFTER.min(time) =>
            {
                tracing::debug!(client = order.client.0, %error, "asked again");
                tokio::time::sleep(AGAIN).await;
            }
            answer => return answer,
        }
    }
}

/// A coordinator that goes on from a checkpoint.
pub(super) fn resumed(checkpoint: Checkpoint) -> Result<Coordinator, TaskError> {
    let run = checkpoint.run();
    let strategy = run.strategy.build().ok_or_else(|| no_plugins("strategy"))?;
    let selection = run.selection.build();
    Coordinator::resume(checkpoint, strategy, selection, Arc::new(Processor))
        .map_err(|error| TaskError::internal(error.to_string()))
}

fn no_plugins(what: &str) -> TaskError {
    TaskError::unavailable(format!("no node runs a plugin as `{what}` yet")).with_field(what)
}

/// Whether a node, or this process, can drive a run by this description.
///
/// # Errors
/// `invalid` with the field that is missing or wrong; `unavailable` for what is described but not there yet.
pub fn check_run(run: &Run) -> Result<(), TaskError> {
    let wrong = |field: &str, says: &str| Err(TaskError::invalid(says).with_field(field));
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if run.name.is_empty() || run.name.len() > 64 || !run.name.chars().all(plain) {
        return wrong(
            "name",
            "a run's name has 1 to 64 letters, digits, `-`, `_` or `.`",
        );
    }
    if run.clients.plugin.is_empty() {
        return wrong(
            "clients.plugin",
            "the description does not say which plugin trains: `[clients]` with `plugin = \"…\"`",
        );
    }
    match run.strategy.build() {
        Some(_) => Ok(()),
        None => Err(no_plugins("strategy")),
    }
}

pub(super) fn channel() -> (UnboundedSender<Event>, UnboundedReceiver<Event>) {
    unbounded_channel()
}

/// What a client said of itself.
pub(super) fn here(client: ClientId, answer: &Answer) -> Option<Event> {
    match answer {
        Answer::Described {
            samples,
            label_entropy,
        } => Some(Event::Here {
            client,
            profile: Profile {
                samples: *samples,
                label_entropy: *label_entropy,
                ..Profile::default()
            },
        }),
        _ => None,
    }
}
