//! A round whose updates come to one thing, made by its clients together: a sum in secret, or a mean that went from client to client.
//! This is what its driver has for it, and how it asks one of the clients for a step.

use super::orders::{Clients, ask_patiently};
use super::wire::{Answer, Frames, NOT_ASKED, Order, RunId, Work};
use karman_fed::{AssignmentId, ClientId, Event, Run};
use karman_types::{ErrorKind, TaskError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// A round that is to be made.
pub(super) struct Joint {
    pub(super) clients: Arc<dyn Clients>,
    pub(super) outbox: UnboundedSender<Event>,
    pub(super) id: RunId,
    pub(super) run: Run,
    /// Numbers of the model.
    pub(super) length: usize,
    pub(super) model: Arc<Frames>,
    /// Whose updates are to be in it.
    pub(super) orders: Vec<(ClientId, karman_fed::Order)>,
}

impl Joint {
    /// The time for all of it: the shortest that an order has.
    pub(super) fn time(&self) -> Duration {
        let times = self.orders.iter().map(|(_, order)| order.time);
        times.min().unwrap_or_default()
    }

    /// Asks a client for a step of it, for `time`; one that cannot be reached is tried for `patience`. `answered` is what it was asked for.
    pub(super) fn ask<T>(
        &self,
        client: ClientId,
        step: Work,
        (time, patience): (Duration, Duration),
        answered: fn(Answer) -> Option<T>,
    ) -> impl Future<Output = Result<T, TaskError>> + use<T> {
        let order = Order::new(&self.id, &self.run, client, step);
        let clients = self.clients.clone();
        async move {
            let asked = ask_patiently(&*clients, order, time, patience);
            let late = || TaskError::deadline("late: its time for a step of the round is over");
            let answer = tokio::time::timeout(time, asked).await.map_err(|_| late())??;
            answered(answer).ok_or_else(|| TaskError::failed(NOT_ASKED))
        }
    }

    /// Tells the run that a client does not go on.
    pub(super) fn tell_lost(&self, client: ClientId, assignment: AssignmentId, error: &TaskError) {
        let is_lost = error.kind == ErrorKind::Unavailable;
        let event = match is_lost {
            true => Event::Gone { client },
            false => Event::GaveUp {
                client,
                assignment,
                reason: error.message.clone(),
            },
        };
        // The run may be over.
        let _ = self.outbox.send(event);
        // Not before the run knows that it is gone: it is to hear that it is back after that.
        if is_lost {
            self.clients.lost(client);
        }
    }
}
