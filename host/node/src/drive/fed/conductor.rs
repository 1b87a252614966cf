//! One run: feeds the coordinator what happens, and does what it says.

mod beginning;

use super::begin::{Start, resumed};
use super::clock::Clock;
use super::handle::{Handle, Shown, handle};
use super::log::Writer;
use super::orders::{Clients, Orders};
use super::record::{FedEvent, Record, words};
use crate::services::{blocking, is_of_disk};
use futures::FutureExt;
use karman_fed::{Action, Checkpoint, ClientId, Coordinator, Event, Failure, Instant, Loss};
use karman_store::Store;
use karman_types::{Backoff, TaskError};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// When a run is written again that the disk did not take.
const AGAIN: Backoff = Backoff {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
};
/// How often, before the run stops where it stands: some ten minutes.
const MOST_FAILURES: u32 = 15;

/// What is needed to drive a run.
pub(super) struct Conductor {
    record: Record,
    log: Writer,
    store: Store,
    clients: Arc<dyn Clients>,
    coordinator: Option<Coordinator>,
    start: Start,
    clock: Clock,
    orders: Orders,
    inbox: UnboundedReceiver<Event>,
    shown: Shown,
}

impl Conductor {
    /// Gets ready to drive a run, from its beginning or from where it stands. `inbox` is where clients are announced.
    pub(super) fn new(
        record: Record,
        store: Store,
        clients: Arc<dyn Clients>,
        (outbox, inbox): (UnboundedSender<Event>, UnboundedReceiver<Event>),
        start: Start,
    ) -> Result<(Self, Handle), TaskError> {
        let brings = start.brings.as_ref();
        let checkpoint = record.checkpoint.clone();
        let coordinator = checkpoint
            .map(|checkpoint| resumed(checkpoint, brings))
            .transpose()?;
        let base = record.checkpoint.as_ref().map_or(Instant(0), Checkpoint::taken);
        let mut status = record.status(0);
        status.running = true;
        let (handle, shown) = handle(outbox.clone(), status);
        let conductor = Self {
            log: Writer::of(&record.log),
            record,
            store,
            orders: Orders::new(clients.clone(), outbox),
            clients,
            coordinator,
            start,
            clock: Clock::starts(base),
            inbox,
            shown,
        };
        Ok((conductor, handle))
    }

    /// The time of the run.
    pub(super) const fn clock(&self) -> Clock {
        self.clock
    }

    /// Drives the run to its end.
    ///
    /// # Errors
    /// What the disk refuses; what keeps the model from beginning; `internal` where a step panics, so that the run does not seem to go on.
    pub(super) async fn drive(mut self) -> Result<(), TaskError> {
        let ended = AssertUnwindSafe(self.drive_to_end()).catch_unwind().await;
        let ended = ended.unwrap_or_else(|_| Err(TaskError::internal("the run failed in the host")));
        self.show();
        self.shown.change(|seen| {
            seen.running = false;
            if let Err(error) = &ended {
                // What is on the disk goes on at the next start.
                let version = seen.status.as_ref().map_or(0, |status| status.version);
                let ended = FedEvent::Finished {
                    version,
                    failure: Some(error.message.clone()),
                };
                seen.log.push(ended.in_short());
                seen.events += 1;
            }
        });
        ended
    }

    async fn drive_to_end(&mut self) -> Result<(), TaskError> {
        match &self.coordinator {
            Some(coordinator) if coordinator.status().ended => return Ok(()),
            Some(_) => {
                let windows = self.clients.windows(self.clock);
                self.feed(Event::Severed { windows }).await?;
                self.measure().await?;
            }
            None => match self.start.first.take() {
                Some(model) => {
                    self.coordinator = Some(self.begun_with(&model)?);
                    self.prepare().await?;
                }
                None => self.begin().await?,
            },
        }
        if self.record.has_ended() {
            return Ok(());
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
        let wait = due.map(|due| due.since(self.clock.now()));
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

    /// Feeds one event, and does what follows from it. The coordinator computes where that may take its time.
    async fn feed(&mut self, event: Event) -> Result<(), TaskError> {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            if !self.orders.is_awaited(&event) {
                // It lay here already when its order was withdrawn: that is no fault of the client.
                continue;
            }
            let Some(mut coordinator) = self.coordinator.take() else {
                return Ok(());
            };
            let now = self.clock.now();
            let (coordinator, actions) = blocking(move || {
                let actions = coordinator.handle(now, event);
                Ok((coordinator, actions))
            })
            .await?;
            self.coordinator = Some(coordinator);
            let mut together = Vec::new();
            for action in actions {
                match action {
                    Action::Send { client, order } if self.goes_together(&order) => {
                        together.push((client, *order));
                    }
                    action => events.extend(self.act(action).await?),
                }
            }
            self.send_together(together)?;
        }
        self.show();
        Ok(())
    }

    async fn act(&mut self, action: Action) -> Result<Option<Event>, TaskError> {
        match action {
            Action::Send { client, order } => self.send(client, *order)?,
            Action::Withdraw { assignment, .. } => self.orders.withdraw(assignment),
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
            Action::PassedOver { client, why } => self.note(FedEvent::PassedOver {
                client,
                why: why.to_string(),
            }),
            Action::Lost {
                client,
                assignment,
                loss,
            } => {
                if loss == Loss::Gone {
                    self.orders.forget(assignment);
                }
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
            // What is on the disk is the moment before: from there the run goes on, with a plugin that was mended.
            Action::Finished {
                failure: Some(failure @ Failure::Strategy(_)),
                ..
            } => return Err(TaskError::failed(failure.to_string()).with_field("strategy.plugin")),
            // The same once the disk writes again: an end on it would be for good.
            Action::Finished {
                failure: Some(failure @ Failure::Unsaved(_)),
                ..
            } => return Err(TaskError::unavailable(failure.to_string())),
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

    fn send(&mut self, client: ClientId, order: karman_fed::Order) -> Result<(), TaskError> {
        let coordinator = self.coordinator.as_ref();
        let coordinator = coordinator.ok_or_else(|| TaskError::internal("an order without a model"))?;
        let run = (&self.record.id, &self.record.run);
        self.orders.send(run, coordinator.layout(), client, order)
    }

    /// Whether no update comes of this order to here.
    fn goes_together(&self, order: &karman_fed::Order) -> bool {
        let run = &self.record.run;
        let alone = run.secure_sum.is_none() && run.swarm.is_none();
        !alone && matches!(order.work, karman_fed::Work::Train(_))
    }

    /// Has the updates of these orders summed, or go from client to client: they are those of a whole round, for they go out together.
    fn send_together(&mut self, orders: Vec<(ClientId, karman_fed::Order)>) -> Result<(), TaskError> {
        let coordinator = self.coordinator.as_ref();
        let coordinator = coordinator.ok_or_else(|| TaskError::internal("an order without a model"))?;
        let run = (&self.record.id, &self.record.run);
        self.orders.together(run, coordinator.layout(), orders)
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
            self.record.clients = memory.all(|order| self.orders.awaits(order));
        }
        let mut failures = 0;
        loop {
            let (record, store) = (self.record.clone(), self.store.clone());
            match blocking(move || record.write(&store)).await {
                Err(error) if is_of_disk(&error) && failures < MOST_FAILURES => {
                    failures += 1;
                    tracing::warn!(run = self.record.run.name, %error, "a federated run waits for the disk");
                    tokio::time::sleep(AGAIN.whole(failures)).await;
                }
                written => return written,
            }
        }
    }

    fn note(&mut self, event: FedEvent) {
        let event = event.in_short();
        tracing::info!(run = self.record.run.name, ?event, "federated run");
        self.log.add(&mut self.record, event);
    }

    /// Lets others see how far it is.
    fn show(&self) {
        let status = self.coordinator.as_ref().map(Coordinator::status);
        let members = self.clients.members();
        self.shown.change(|seen| {
            seen.status = status;
            seen.members = members;
            seen.follow(&self.record);
        });
    }
}

#[cfg(test)]
mod tests;
