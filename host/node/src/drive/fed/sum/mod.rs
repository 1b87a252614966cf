//! Rounds whose updates are summed so that nobody sees one: `karman-fed`'s machine of secure sums, carried between nodes.
//!
//! | file | what |
//! |---|---|
//! | `message` | what a driver asks of a client, step by step, and what it answers |
//! | `identity` | who a client is to the others, and whom it takes for one of them |
//! | `driver` | the driver's side: one sum from the first question to the event of the run |
//! | `client` | the client's side: it looks at the others, trains, masks, and reveals once |
//! | `sums`, `joined` | the sums that the clients of a node are in; one of them |
//!
//! A round goes its way as any other: the coordinator sends its orders, and hears of clients that are gone. In place of updates it
//! gets one sum. It is the same to the last bit as if the updates had come one by one, for both are made on one grid.

mod client;
mod driver;
mod identity;
mod joined;
mod message;
mod sums;
#[cfg(test)]
mod tests;

pub(super) use client::{Taker, Trained, carry_out};
pub(super) use driver::make;
pub(super) use identity::{Credential, Identity};
pub(super) use message::{Answered, Common, Lesson, Step};
pub(super) use sums::Sums;
