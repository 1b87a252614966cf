//! What comes to a client from its driver, and back: read as it is when it comes from anyone, for whoever tries the readers.

use super::wire::{Answer, Frames, Order, Work, arrays};
use super::{spread, sum};
use crate::drive::cbor::{read, write};
use bytes::Bytes;
use karman_types::TaskError;

/// Reads an order of a federated run for a client, with the model and the adapters in it, and writes it again.
///
/// # Errors
/// `invalid`, of `body` or `model`, where the bytes are no such order or its model is none.
pub fn read_fed_order(bytes: &[u8]) -> Result<Bytes, TaskError> {
    let order: Order = read("order", bytes)?;
    if let Some(model) = model_of(&order.work) {
        arrays(model)?;
    }
    if let Work::Train { adapters, .. } = &order.work {
        arrays(adapters)?;
    }
    write(&order)
}

/// Reads what a client answers to such an order, and writes it again.
///
/// # Errors
/// `invalid`, of `body` or `model`, where the bytes are no such answer or its model is none.
pub fn read_fed_answer(bytes: &[u8]) -> Result<Bytes, TaskError> {
    let answer: Answer = read("answer", bytes)?;
    if let Answer::Begun { model } = &answer {
        arrays(model)?;
    }
    write(&answer)
}

fn model_of(work: &Work) -> Option<&Frames> {
    match work {
        Work::Train { model, .. } | Work::TrainPrivately { model, .. } | Work::Evaluate { model } => {
            Some(&**model)
        }
        Work::Sum { step, .. } => match &**step {
            sum::Step::Train { lesson, .. } => Some(&*lesson.model),
            sum::Step::Who | sum::Step::Join { .. } | sum::Step::Said(_) => None,
        },
        Work::Spread { step, .. } => match &**step {
            spread::Step::Train(lesson) => Some(&*lesson.model),
            spread::Step::Join(_) | spread::Step::Outcome { .. } | spread::Step::Mean { .. } => None,
        },
        Work::Describe | Work::Begin { .. } => None,
    }
}
