//! Federated rounds, pure: who takes part, what becomes of the updates, what is kept secret and what was spent on it. No clock,
//! socket, thread or unseeded randomness: events are arguments, actions are return values.
//!
//! # The way through it
//!
//! A [`Run`] is read from its description. A [`Coordinator`] learns which clients there are ([`Event::Here`]), asks the
//! [`select::Selection`] for some that can take part, writes itself down ([`Action::Save`]), and sends them the model
//! ([`Action::Send`]). What they send back ([`Event::Updated`]) is screened, added up in fixed point as it arrives, and when the round
//! closes, the [`strategy::Strategy`] makes the next version of it. What a client does wrong is named ([`Action::Refused`]) and costs
//! the round no more than that client.
//!
//! | folder or file | what |
//! |---|---|
//! | `round/` | one machine for synchronous, semi-asynchronous and buffered rounds |
//! | `strategy/` | what becomes of the updates: FedAvg and its kin, robust rules |
//! | `select/` | who takes part |
//! | `secure/` | sums of updates that nobody sees one by one |
//! | `privacy/` | noise, clipping, and the account of what was spent |
//! | `swarm/` | updates without a server in the middle |
//! | `lora/` | low-rank adapters, and training a model block by block |
//! | `description` | a run as it is written down |
//! | `arithmetic` | what a driver computes, on a processor or another device |
//! | `client`, `layout` | what is known of clients; the arrays of a model |
//! | `floats`, `state` | how arrays and states are written down |
//!
//! ```
//! use karman_fed::{Action, ClientId, Coordinator, Event, Instant, Layout, Processor, Profile, Run, Update};
//! use karman_tensor::encode::{Encoded, Encoding};
//! use std::sync::Arc;
//!
//! let run = Run::from_toml("name = 'mean'\nrounds = 1\n[evaluation]\nevery = 0\n")?;
//! let (strategy, selection) = (run.strategy.build().unwrap(), run.selection.build());
//! let layout = Layout::of_shapes([[2]])?;
//! let mut coordinator = Coordinator::new(run, layout, vec![0.0; 2], strategy, selection, Arc::new(Processor), [1; 32])?;
//!
//! // With two clients the round opens; it is written down before anybody hears of it.
//! let here = |id| Event::Here { client: ClientId(id), profile: Profile { samples: 10, ..Profile::default() } };
//! assert!(coordinator.handle(Instant(0), here(1)).is_empty());
//! let actions = coordinator.handle(Instant(1), here(2));
//! let [Action::Save { ticket, .. }] = actions[..] else { panic!("{actions:?}") };
//! let orders = coordinator.handle(Instant(2), Event::Saved { ticket });
//!
//! // Each sends what its training has changed.
//! for action in orders {
//!     let Action::Send { client, order } = action else { panic!("{action:?}") };
//!     let change = [client.0 as f32, 1.0];
//!     let frame = Encoded::encode([2].into(), &change, Encoding::F32)?.to_bytes();
//!     let update = Box::new(Update { frames: vec![frame], samples: 10, steps: 5, loss: 0.3 });
//!     coordinator.handle(Instant(3), Event::Updated { client, assignment: order.assignment, update });
//! }
//! assert_eq!(coordinator.model()[..], [1.5, 1.0]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod arithmetic;
mod client;
mod description;
mod floats;
mod layout;
pub mod lora;
pub mod privacy;
mod round;
pub mod secure;
pub mod select;
mod state;
pub mod strategy;
pub mod swarm;

pub use arithmetic::{Arithmetic, ArithmeticError, Processor, RunningSum};
pub use client::{ClientId, Profile, ProfileError, Window, Windows};
pub use description::{
    Clients, EncodingPolicy, Evaluation, Limits, LocalPrivacy, LowRank, LowRankRule, Pace, Privacy, Run,
    RunError, SecureSum, Swarm, Training,
};
pub use karman_types::Instant;
pub use layout::{Array, Layout, LayoutError};
pub use lora::Adapters;
pub use round::{
    Absent, Action, Apart, AssignmentId, Checkpoint, Coordinator, Disagreement, EvaluationReport, Event,
    Failure, Judgement, Loss, Order, Part, Reached, Refusal, ResumeError, RoundFailure, RoundReport,
    StartError, Status, Summed, SwarmReport, Swarmed, Ticket, Train, Update, Work,
};
pub use state::StateError;
