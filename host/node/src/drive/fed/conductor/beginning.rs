//! How a run comes to its model, and what it is told before its first client.

use super::super::begin::begun;
use super::super::record::FedEvent;
use super::super::wire::{Answer, Frames, NOT_ASKED, Order, Work};
use super::Conductor;
use crate::drive::split;
use crate::services::blocking;
use futures::future::BoxFuture;
use karman_fed::{ClientId, Coordinator, EncodingPolicy, Event};
use karman_tensor::Tensor;
use karman_tensor::encode::Encoding;
use karman_types::{ErrorKind, TaskError};
use std::collections::VecDeque;
use std::time::Duration;

/// How long a client may take to begin a model.
const BEGINNING: Duration = Duration::from_secs(300);

/// Numbers of a model that encodings are measured with.
const MEASURED: usize = 1 << 18;

impl Conductor {
    /// Has a client that is here begin the model; where that fails, another one.
    pub(super) async fn begin(&mut self) -> Result<(), TaskError> {
        let mut introduced = Vec::new();
        let mut untried = VecDeque::new();
        let mut asked: Option<(ClientId, BoxFuture<'static, _>)> = None;
        let mut failures = 0;
        loop {
            if asked.is_none() {
                asked = untried.pop_front().map(|client| {
                    let run = &self.record.run;
                    let order = Order::new(&self.record.id, run, client, Work::Begin { seed: run.seed });
                    (client, self.clients.ask(order, Some(BEGINNING)))
                });
            }
            let answer = async {
                match &mut asked {
                    Some((client, answer)) => (*client, answer.await),
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = self.inbox.recv() => match event {
                    Some(Event::Here { client, profile }) => {
                        introduced.push(Event::Here { client, profile });
                        untried.push_back(client);
                    }
                    Some(Event::Stop) | None => return self.stopped_before_it_began().await,
                    Some(_) => {}
                },
                (client, answer) = answer => {
                    asked = None;
                    match self.begun_by(answer) {
                        Ok(()) => break,
                        Err(error) if error.kind == ErrorKind::Unavailable => self.clients.lost(client),
                        Err(error) => {
                            failures += 1;
                            self.note(FedEvent::Trouble { client, what: error.message.clone() });
                            self.show();
                            if untried.is_empty() && failures >= self.record.run.start_with {
                                return Err(error);
                            }
                        }
                    }
                }
            }
        }
        self.prepare().await?;
        for event in introduced {
            self.feed(event).await?;
        }
        Ok(())
    }

    /// Tells the run what it has to know before its first client.
    pub(super) async fn prepare(&mut self) -> Result<(), TaskError> {
        let windows = self.clients.windows(self.clock);
        self.feed(Event::Planned { windows }).await?;
        self.measure().await
    }

    /// Measures what encodings do with the model on this machine, where updates travel as their links ask for. Half precision is none of
    /// them: of the small numbers of an update it may lose more than it is taken to, and what it loses is not sent later. Nor is one that
    /// clients cannot be told of.
    pub(super) async fn measure(&mut self) -> Result<(), TaskError> {
        let Some(coordinator) = &self.coordinator else {
            return Ok(());
        };
        let EncodingPolicy::ByLink(most_error) = coordinator.run().encoding else {
            return Ok(());
        };
        let model = coordinator.model().clone();
        let encodings = blocking(move || {
            let some = &model[..model.len().min(MEASURED)];
            let tensor = Tensor::from_slice([some.len() as u32], some);
            let tensor = tensor.map_err(|error| TaskError::internal(error.to_string()))?;
            let mut encodings = split::measured(&tensor, most_error);
            encodings.retain(|measured| matches!(measured.encoding, Encoding::F32 | Encoding::Int8));
            Ok(encodings)
        });
        let encodings = encodings.await?;
        self.feed(Event::Measured { encodings }).await
    }

    fn begun_by(&mut self, answer: Result<Answer, TaskError>) -> Result<(), TaskError> {
        let Answer::Begun { model } = answer? else {
            return Err(TaskError::failed(NOT_ASKED));
        };
        self.coordinator = Some(self.begun_with(&model)?);
        Ok(())
    }

    pub(super) fn begun_with(&self, model: &Frames) -> Result<Coordinator, TaskError> {
        begun(self.record.run.clone(), model, self.start.brings.as_ref())
    }

    /// It is over, also after the next start.
    async fn stopped_before_it_began(&mut self) -> Result<(), TaskError> {
        self.note(FedEvent::Finished {
            version: 0,
            failure: Some("it was stopped before it began".into()),
        });
        self.save_record().await
    }
}
