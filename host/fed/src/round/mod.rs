//! Rounds: one machine for synchronous, semi-asynchronous and buffered runs.
//!
//! | file | what |
//! |---|---|
//! | `event` | what happens, what is to be done, and what goes to clients and comes back |
//! | `failure` | why a round makes no version, and a run ends before its last |
//! | `coordinator` | the machine: its entrance, its timers |
//! | `core` | its state |
//! | `open` | whom a round asks, and when orders go out |
//! | `receive` | what comes back, or does not |
//! | `summed` | the same, where updates are summed in secret |
//! | `swarmed` | the same, where they go from client to client |
//! | `low_rank` | the same, where clients train adapters of unequal ranks |
//! | `screen` | why an update is refused |
//! | `gather` | updates until they are one |
//! | `close` | from the updates to the next version |
//! | `evaluate` | what clients think of a version |
//! | `private` | what a private run keeps: who is drawn, noise, the account |
//! | `local` | what clients have given away that add the noise themselves |
//! | `roster` | what is known of each client |
//! | `sketch` | how well an update agrees with the aggregate, without keeping it |
//! | `checkpoint` | what is written down |

mod checkpoint;
mod close;
mod coordinator;
mod core;
mod evaluate;
mod event;
mod failure;
mod gather;
mod local;
mod low_rank;
mod open;
mod private;
mod receive;
mod roster;
mod screen;
mod sketch;
mod summed;
mod swarmed;

#[cfg(test)]
mod tests;

pub use checkpoint::{Checkpoint, ResumeError};
pub use coordinator::{Coordinator, StartError, Status};
pub use evaluate::{EvaluationReport, Judgement};
pub use event::{
    Action, AssignmentId, Event, Loss, Order, Part, RoundReport, Summed, Ticket, Train, Update, Work,
};
pub use failure::{Failure, RoundFailure};
pub use screen::Refusal;
pub use swarmed::{Absent, Apart, Disagreement, Reached, SwarmReport, Swarmed};
