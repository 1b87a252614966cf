//! How far a workflow is.
//!
//! A [`Machine`] carries one run of a [`Workflow`](karman_types::Workflow) to its end. It touches no clock, disk or socket: the
//! coordinator of the run feeds it what happened ([`Event`]) with the time, does what it says ([`Action`]), and feeds back what came
//! of that.
//!
//! # The way through it
//!
//! A task begins when every edge into it is decided and at least one is taken; when none is, it is skipped, and so are the edges
//! from it. Its input is the output of the task before it, or a table of them by name where several edges were taken. A run
//! ([`RunId`]) that fails is tried again after a pause; when it has failed for good, or the time is over, or somebody cancels, the
//! workflow fails: what runs is stopped, and then the runs that had, or may have had, an effect are undone one by one, the last
//! first.
//!
//! **Whatever the machine decides is durable before it has an effect.** It asks to save its whole [`Record`] ([`Action::Save`]),
//! and starts or ends something only when that is answered ([`Event::Saved`]). So the coordinator may be killed at any moment, and
//! another one carries on from the last record ([`Machine::resume`]): what ran is started again *under the same key*, which
//! a node that has run the task already answers with what it knows. A run's effect is applied once for its key, however many coordinators
//! asked for it, and the run ends the same way.
//!
//! A record may be longer than whoever keeps it takes ([`Event::TooLong`]). Then the workflow fails, and what it has to undo is kept
//! without what no undoing needs. Where even that is too long, it is undone without being kept ([`Machine::is_unkept`]): who takes it up
//! from the last record asks for the same again, under the same keys.
//!
//! | file | what |
//! |---|---|
//! | `event` | events, actions, and what names a run |
//! | `record` | what is written down |
//! | `history` | what has happened, for those that follow the run |
//! | `machine` | what wakes when, what waits for durability |
//! | `advance` | which edges are taken, what begins, with which input |
//! | `settle` | answers, retries, failure |
//! | `undo` | compensation |
//! | `shed` | what a run lets go of that is too long to be kept |
//! | `draw`, `svg` | the graph as text and as a picture |
//! | `patterns` | the eight shapes of compound systems |
//!
//! ```
//! use karman_sched::flow::{Action, Event, Machine, Outcome};
//! use karman_types::{TaskId, Workflow};
//! use serde_json::json;
//! use std::{sync::Arc, time::Duration};
//!
//! let flow = Arc::new(Workflow::from_toml("name = 'hello'\n[task.greet]")?);
//! let now = Duration::ZERO;
//! let mut machine = Machine::new(TaskId::from_parts(0, 1), flow.clone(), json!({ "name": "Ada" }), now);
//!
//! // What it decides is written down first.
//! let actions = machine.handle(now, Event::Tick);
//! let [Action::Save { ticket, record }] = &actions[..] else { panic!("{actions:?}") };
//! let actions = machine.handle(now, Event::Saved { ticket: *ticket });
//! let [Action::Start { call }] = &actions[..] else { panic!("{actions:?}") };
//! assert_eq!((call.run.as_ref(), &call.input), ("greet", &json!({ "name": "Ada" })));
//!
//! // The coordinator is killed. Another one asks again, under the same key.
//! let mut machine = Machine::resume(flow, (**record).clone(), Duration::ZERO, now)?;
//! let again = machine.handle(now, Event::Tick);
//! assert_eq!(again, [Action::Start { call: call.clone() }]);
//!
//! let answered = Event::Answered { attempt: call.attempt, result: Ok(json!("hello Ada")) };
//! let actions = machine.handle(now, answered);
//! let [Action::Save { ticket, .. }] = &actions[..] else { panic!("{actions:?}") };
//! let actions = machine.handle(now, Event::Saved { ticket: *ticket });
//! assert_eq!(actions, [Action::End { outcome: Outcome::Done(json!("hello Ada")) }]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advance;
mod draw;
mod event;
mod history;
mod machine;
pub mod patterns;
mod record;
mod settle;
mod shed;
mod svg;
mod undo;

pub use draw::text;
pub use event::{Action, AttemptId, Call, Event, RunId, Ticket};
pub use history::{Change, History, What};
pub use machine::{Machine, ResumeError};
pub use record::{Failure, NotUndone, Outcome, Phase, Record, Run, RunState, Step, StepState, Undoing};
pub use svg::svg;
