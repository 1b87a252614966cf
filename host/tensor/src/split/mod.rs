//! One network on several boards: each board's share of every layer, as a state machine without I/O.
//!
//! A planner says in a [`Program`] for each board which [`Part`](crate::quantised::Part) of which activations it computes, what it
//! needs from whom and what it owes to whom. A [`Worker`] carries the program out: its driver hands it the packets that arrive
//! ([`Worker::handle`]) and sends those it has ([`Worker::poll`]), in a mesh, over a serial line, or all in one process
//! ([`run_together`]). One more worker, the coordinator, holds the picture at the start and the answer at the end.
//!
//! # How a board stays small
//!
//! The program is a list of stages. In a [`Work::Run`], consecutive layers pass rows to each other: a row is computed when the
//! rows under its window are there, and dropped after its last use, so that the activations between the layers never exist as
//! a whole. In a [`Work::Reduce`], every board sums over the part of the input that it holds, and sends each row of 32-bit sums to
//! the board that owns it, one row at a time.
//!
//! Nobody sends unasked. A board grants its suppliers the rows that its next output needs, and they send when they have them; so
//! what lies in a board's memory is what the plan foresaw, however late or early its neighbours are. A board goes on to the next
//! stage when its rows are computed and those that it owes are sent. Both depend on the stage before only, so no two boards can
//! wait for each other.
//!
//! Every byte of an activation, sum, halo or packet lives in a [`Counted`] buffer, which an [`Account`] counts from its making to its
//! end. Weights (in flash), stack and control state of a few bytes per row are not counted.
//!
//! | file | what |
//! |---|---|
//! | `program` | stages, what they need and owe |
//! | `packet` | what goes over the wire |
//! | `account` | live bytes and their peak |
//! | `worker` | stage after stage: what comes in, what goes out |
//! | `arriving` | rows that are being received, and who was granted what |
//! | `stream` | the rows of a run |
//! | `reduce` | sums over parts of the input |
//! | `together` | all boards in one process |
//! | `task` | a share of one layer as a task of its own |
//! | `flat` | the published split, layer by layer in flat order: what ours is compared with |

mod account;
mod arriving;
mod error;
pub mod flat;
mod packet;
mod program;
mod reduce;
mod stream;
mod task;
mod together;
mod worker;

pub use account::{Account, Counted};
pub use error::SplitError;
pub use packet::{HEAD_BYTES, MOST_BYTES};
pub use program::{Input, Program, Share, Stage, Work, parts_of_run};
pub use task::ShareTask;
pub use together::{Traffic, run_together};
pub use worker::{Packet, Worker};
