//! Which cut: which layers of a network run on which tier.
//!
//! A [`Problem`] states the [`LayerGraph`] with times and sizes, the [`Tier`]s with their power and memory, the [`Link`]s, where
//! the [`Weights`] lie, and the [`Objective`]. Everything in it is checked when it is made. A [`Partitioner`] answers with a
//! [`Plan`], which says what a request takes ([`Prediction`]), how good the plan is known to be ([`Optimality`]), and why the
//! runners-up lost. Every cut of every policy is judged by one account, [`Problem::predict`].
//!
//! A [`Replanner`] keeps a plan up to date while links and loads change. In studies it also finds a way for what is left of a request when
//! a node dies under it; among nodes whoever holds the last activations passes them to the next that stands in.
//!
//! | file | what |
//! |---|---|
//! | `graph`, `problem`, `objective` | what is given, and what counts |
//! | `bounds`, `least` | the weights that an SLO gives; least of one thing within a bound on another |
//! | `passage` | the ways between two tiers |
//! | `predict` | what a cut takes |
//! | `plan`, `explain` | a cut that was chosen, and why; the same in words |
//! | `chain` | two tiers, every cut tried |
//! | `tiers` | one interval of layers for each tier, memory limits kept |
//! | `min_cut` | graphs with branches, K tiers in one minimum cut |
//! | `frame`, `intervals`, `flow`, `dual` | what these compute with: tables of costs, the interval program, the cut, multipliers |
//! | `inside_layer` | one layer among several boards |
//! | `pinned` | a cut that stays |
//! | `single_tier`, `neurosurgeon`, `hindsight` | comparators |
//! | `replan`, `event`, `tuning`, `conditions` | moving with the conditions |
//! | `suffix` | what is left of a request |
//!
//! ```
//! use karman_sched::partition::*;
//!
//! // Two layers: the first shrinks what has to be sent, the second is heavy.
//! let layers = vec![Layer::measured("conv", &[5.0, 1.0], 1 << 10, 1 << 20), Layer::measured("fc", &[80.0, 4.0], 1 << 20, 1 << 10)];
//! let graph = LayerGraph::chain(layers, 1_000_000, &[50_000, 4_000])?;
//! let tier = |name, busy_w| Tier { power: Power { busy_w, ..Power::default() }, ..Tier::new(name) };
//! let link = |from, to| Link { from, to, rate_mbit_s: 20.0, latency_ms: 5.0, message_ms: 0.1 };
//! let tiers = vec![tier("edge", 6.4), tier("cloud", 150.0)];
//! let problem = Problem::new(graph, tiers, vec![link(0, 1), link(1, 0)], Objective::LATENCY, Weights::Everywhere)?;
//!
//! let plan = Tiers.plan(&problem)?;
//! assert_eq!(plan.assignment, [0, 1]);
//! assert_eq!(plan.optimality, Optimality::Proven);
//! println!("{}", plan.explain(&problem));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod bounds;
mod chain;
mod conditions;
mod dual;
mod error;
mod event;
mod explain;
mod flow;
mod frame;
mod graph;
mod hindsight;
pub mod inside_layer;
mod intervals;
mod least;
mod min_cut;
mod neurosurgeon;
mod objective;
mod passage;
mod pinned;
mod plan;
mod predict;
mod problem;
mod replan;
mod single_tier;
mod suffix;
#[cfg(test)]
mod tests;
mod tiers;
mod tuning;

pub use bounds::{BoundUse, Bounded, Bounds};
pub use chain::Chain;
pub use error::{GraphError, Infeasible, PlanError, ProblemError};
pub use event::{Action, Cause, Event, EventError, Resumption};
pub use explain::Explanation;
pub use graph::{Layer, LayerGraph, LayerTime, Producer, Tensor};
pub use hindsight::best_static;
pub use min_cut::MinCut;
pub use neurosurgeon::Neurosurgeon;
pub use objective::Objective;
pub use pinned::Pinned;
pub use plan::{Lost, Optimality, Plan, RunnerUp, Term};
pub use predict::{LinkUse, Prediction, ShippingUse, TierUse};
pub use problem::{Link, Power, Problem, Tier, Weights};
pub use replan::Replanner;
pub use single_tier::SingleTier;
pub use suffix::{Held, Suffix};
pub use tiers::Tiers;
pub use tuning::Tuning;

/// A policy: which layer runs on which tier?
pub trait Partitioner {
    /// Its name, as it stands in plans, logs and reports.
    fn name(&self) -> &'static str;

    /// The plan for this problem: the same one every time.
    ///
    /// # Errors
    ///
    /// No cut that it knows can run.
    fn plan(&self, problem: &Problem) -> Result<Plan, PlanError>;

    /// Whether it makes another plan when links and tiers change.
    fn moves(&self) -> bool {
        true
    }
}
