//! Rounds whose updates go from client to client: what `drive::swarm` does between nodes, as a round of a federated run.
//!
//! | file | what |
//! |---|---|
//! | `message` | what a driver asks of a client, step by step, and what it answers |
//! | `driver` | the driver's side: one round, from the trainings to the event of the run |
//! | `came` | what clients have come to, and the mean that they agree on |
//! | `client` | the client's side: it trains, waits for the round, and tells what came of it |
//! | `seats` | the rounds that the clients of a node are in |
//!
//! A round goes its way as any other: the coordinator sends its orders, and hears of clients that are gone. In place of updates it gets
//! one mean. It is the same to the last bit as if the updates had come to the driver, for both are made on one grid.
//!
//! The driver sees which node holds which piece, and whose update that is of. It gets no piece as long as its own node is no client,
//! which it is not.

mod came;
mod client;
mod driver;
mod message;
mod seats;
#[cfg(test)]
mod tests;

pub(super) use client::{Sharer, carry_out};
pub(super) use driver::make;
pub(super) use message::{Answered, Lesson, Step};
pub(super) use seats::Seats;
