//! The simulated continuum: virtual time, nodes, links, contacts, queues and faults, driving the very policies that ship.
//!
//! What decides in Karman is pure, so it can run here as it runs in a node: a model feeds it what happens in virtual time and performs
//! what it says. Scenarios do so with what runs next on a device (`karman_sched::serve`) and which model serves a request
//! (`karman_sched::select`); studies do it with more, in models of their own on the parts below. A [`Simulation`] is a [`Model`] and its [`Schedule`]: it takes the next event, lets the
//! model handle it, and the model schedules what happens later. All chance comes from [`Streams`] of one seed: the same seed
//! gives the same run, event by event, and two policies under one seed meet the same arrivals and the same work.
//!
//! A study composes its model from parts that know nothing of each other: [`Arrivals`] of requests, a [`Station`] (a [`Queue`]
//! before [`Servers`]), the watts of a node ([`Power`]), a [`Channel`] between two of them (a
//! [`Line`](karman_space::Line) as the real node emulates it, or the contacts of a plan), [`Telemetry`] that comes late and
//! imprecise, [`Failures`]. Each keeps its own integrals over time.
//!
//! | file | what |
//! |---|---|
//! | `instant` | virtual time |
//! | `simulation` | the event queue, the clock, the run |
//! | `streams`, `shape`, `arrivals` | seeds, distributions, when requests come |
//! | `queue`, `servers`, `station` | waiting and being served |
//! | `power`, `channel` | energy; links and contacts |
//! | `telemetry`, `failures` | what is known of it, and what goes wrong |
//! | `statistics`, `plot` | integrals over time, percentiles; curves as SVG |
//! | `scenario` | nodes, links, models and workloads in a TOML file: [`run_scenario`] |
//!
//! A queue with one server, whose mean time in system theory knows (1/(10 - 8) s):
//!
//! ```
//! use karman_sim::{Arrivals, Instant, Model, Samples, Schedule, Shape, Simulation, Station, Streams, seconds};
//!
//! struct Shop {
//!     arrivals: Arrivals,
//!     random: fastrand::Rng,
//!     station: Station<()>,
//!     times: Samples,
//! }
//!
//! enum Event {
//!     Arrival,
//!     End { came: Instant },
//! }
//!
//! impl Shop {
//!     fn start(&mut self, schedule: &mut Schedule<Event>) {
//!         while let Some(queued) = self.station.start(schedule.now()) {
//!             let time = Shape::Exponential.sampler().unwrap().draw(&mut self.random) / 10.0;
//!             schedule.after(seconds(time), Event::End { came: queued.since });
//!         }
//!     }
//! }
//!
//! impl Model for Shop {
//!     type Event = Event;
//!
//!     fn handle(&mut self, event: Event, schedule: &mut Schedule<Event>) {
//!         let now = schedule.now();
//!         match event {
//!             Event::Arrival => {
//!                 self.station.arrive(now, ());
//!                 let next = self.arrivals.next(now, &mut self.random);
//!                 next.into_iter().for_each(|at| schedule.at(at, Event::Arrival));
//!             }
//!             Event::End { came } => {
//!                 self.station.end(now);
//!                 self.times.push(now.since(came).as_secs_f64());
//!             }
//!         }
//!         self.start(schedule);
//!     }
//! }
//!
//! let gaps = Shape::Exponential.sampler()?;
//! let mut shop = Simulation::new(Shop {
//!     arrivals: Arrivals::new(8.0, gaps)?,
//!     random: Streams::new(1).stream("shop", 0),
//!     station: Station::new(1, Instant::START),
//!     times: Samples::default(),
//! });
//! shop.schedule().at(Instant::START, Event::Arrival);
//! shop.run_until(Instant::from_secs_f64(10_000.0));
//! assert!((shop.model().times.mean().unwrap() - 0.5).abs() < 0.05);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod arrivals;
mod channel;
mod failures;
mod instant;
mod plot;
mod power;
mod queue;
mod scenario;
mod servers;
mod shape;
mod simulation;
mod station;
mod statistics;
mod streams;
mod telemetry;

pub use arrivals::{Arrivals, ArrivalsError};
pub use channel::{Channel, Contacts, Passage};
pub use failures::{Failure, Failures};
pub use instant::{Instant, seconds};
pub use plot::{Curve, Plot};
pub use power::Power;
pub use queue::{Queue, Queued};
pub use scenario::{
    Answer, ContactEntry, Event, ExitEntry, FailureEntry, GroupOutcome, Instead, ModelEntry, NodeGroup,
    Outcome, PolicyFailure, RateStep, Route, Router, Scenario, ScenarioError, SelectBy, ServePolicy,
    TelemetryEntry, Verdict, Workload, WorkloadOutcome, run_scenario, run_scenario_with,
};
pub use servers::Servers;
pub use shape::{Sampler, Shape, ShapeError, normal};
pub use simulation::{Model, Schedule, Simulation};
pub use station::Station;
pub use statistics::{OverTime, Samples};
pub use streams::Streams;
pub use telemetry::{Known, Noise, Quality, Telemetry};
