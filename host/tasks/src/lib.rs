//! The life of a task: accept, dispatch, retry, hedge, dedupe, expire, drain, commit.
//!
//! A [`Machine`] holds the tasks of one node. It touches no clock, socket, thread or disk: the node feeds it what happened
//! ([`Event`]) with the time, does what it says ([`Action`]), and feeds back what came of that. The same events give the same
//! actions, in a real node, in the simulator and in a replay.
//!
//! # The way through it
//!
//! A caller submits ([`Event::Submit`]) a task that is *direct*, *local* or *kept* ([`Guarantee`]). A repetition under the same
//! key joins the first. A direct task is open at once. An accepted one is first written to the disk ([`Action::Persist`]) or
//! proposed to the keepers ([`Action::Propose`]), and **only [`Event::Saved`] with the [`Ticket`] of that write makes the machine
//! acknowledge it**; there is no other way to an [`Action::Acknowledge`]. The same holds for outcomes.
//!
//! For an open task the machine asks for providers ([`Action::Place`]), starts an attempt at the best one that has room
//! ([`Action::Start`]), and after a pause another one elsewhere when the first failed in a way that another node could cure, or,
//! as a hedge, when it is slow. The first answer wins and the others are stopped. If it comes with a [`Batch`] for a bucket, the
//! batch goes to the bucket's home ([`Action::Commit`]), where [`judge`] lets it through once. Then the task ends, the outcome is
//! made durable, and waits to be fetched.
//!
//! | file | what |
//! |---|---|
//! | `event` | the events and actions, and the errors in them |
//! | `machine`, `table` | the tasks of a node; what wakes when |
//! | `dedupe` | which task goes by which idempotency key |
//! | `limits` | what a node holds at most, and how long |
//! | `accept`, `save` | submitting, joining, taking over; what waits for durability |
//! | `dispatch`, `attempt` | placing, starting, retrying, hedging, committing |
//! | `end`, `drain`, `handover` | outcomes until they are forgotten; handing over, and what is believed of it |
//! | `record`, `entry`, `kept`, `commit` | what is written down: on the own disk, by the keepers, at the homes of buckets |
//! | `signs` | which owners the keepers take for lost |
//! | `clock` | what is known of the time |
//! | `provide` | the other side of an attempt |
//! | `away` | what travels for an attempt at a node that is out of reach |
//!
//! # What is promised
//!
//! - Accepted work ends in one recorded outcome: a result, a failure, expired or cancelled. Delivery is at least once. An effect on
//!   a bucket is applied once, within the bound that [`judge`] states.
//! - A kept task has one owner. Its [`Epoch`] goes with every effect, and where a newer one is known an older one is refused. To
//!   start an attempt, the owner needs a majority of the keepers.
//! - After its time a task does not start. If nobody can tell the time ([`Status::DeadlineUnknown`]), it is held.
//! - Nothing goes over [`Limits`].
//!
//! ```
//! use karman_tasks::{Action, Answer, Event, Guarantee, Instant, Limits, Machine, Outcome, Reading, Status, Submission};
//! use karman_types::{NodeId, TaskId, TaskRequest};
//!
//! let (here, there) = (NodeId::of_key(b"here"), NodeId::of_key(b"there"));
//! let mut machine = Machine::new(here, Limits::default(), Instant(0), Reading::default(), 7);
//!
//! // An accepted task is written down before anything else happens to it.
//! let task = TaskId::from_parts(0, 1);
//! let submission = Submission { guarantee: Guarantee::Local, ..Submission::new("classify", TaskRequest::default()) };
//! let actions = machine.handle(Instant(1), Event::submit(task, submission));
//! let [Action::Persist { ticket, .. }] = actions[..] else { panic!("{actions:?}") };
//!
//! // Now it is acknowledged, and wants to run somewhere.
//! let actions = machine.handle(Instant(2), Event::Saved { ticket });
//! assert!(matches!(actions[..], [Action::Acknowledge { .. }, Action::Place { .. }]));
//! let actions = machine.handle(Instant(3), Event::Offered { task, providers: vec![there] });
//! let [Action::Start { provider, ref call }] = actions[..] else { panic!("{actions:?}") };
//! assert_eq!(provider, there);
//!
//! // The answer counts once it is written down.
//! let answered = Event::Answered { attempt: call.attempt, answer: Ok(Box::new(Answer::default())) };
//! let actions = machine.handle(Instant(9), answered);
//! let [Action::Persist { ticket, .. }] = actions[..] else { panic!("{actions:?}") };
//! assert_eq!(machine.status(task), Some(Status::Ending));
//! assert_eq!(machine.handle(Instant(10), Event::Saved { ticket }), [Action::Ended { task }]);
//! assert!(matches!(machine.status(task), Some(Status::Ended(Outcome::Done(_)))));
//! ```
#![forbid(unsafe_code)]

mod accept;
mod attempt;
mod away;
mod clock;
mod commit;
mod dedupe;
mod dispatch;
mod drain;
mod end;
mod entry;
mod event;
mod handover;
mod kept;
mod limits;
mod machine;
mod provide;
mod record;
mod save;
mod signs;
mod table;

pub use attempt::{AttemptId, curable};
pub use away::{AwayCall, AwayReply, AwayValue, Needs, Place};
pub use clock::{Clock, Expiry, Reading, UnixMs};
pub use commit::{Answer, Batch, Commit, CommitError, Judgement, Operation, Read, Seen, Verdict, judge};
pub use dedupe::KeyReused;
pub use entry::{Effect, Entry, KeptError};
pub use event::{Action, Call, Event, Handover, SaveError, SubmitError, Ticket};
pub use karman_types::Instant;
pub use kept::{Kept, KeptState};
pub use limits::{LimitReached, Limits};
pub use machine::{Machine, Stats, Status};
pub use provide::{Begin, BeginError, Provider};
pub use record::{Due, Epoch, Guarantee, Outcome, Saved, StaleEpoch, Submission, TaskRecord, Write};
pub use signs::Signs;
pub use table::Held;
