//! Which tier serves a request, and how many replicas the pool here has.
//!
//! A [`Router`] stands before a pool of replicas with one queue, and a tier above it that costs more. It is asked for every request
//! ([`Router::route`]), and now and then for the number of replicas that it wants ([`Router::desired`]): a metric that an autoscaler
//! reads, Karman's own or that of Kubernetes. What it sees is a [`View`]: what passes through its own hands it knows exactly and at
//! once, what was measured elsewhere comes late.
//!
//! Nodes have no such pool: these policies are for studies. What nodes take of them is the latency [law](LoadLaw), by which
//! [`crate::call`] orders providers and says how many a task should have.
//!
//! | file | what |
//! |---|---|
//! | `la_imr` | routes by what waits here now, and plans replicas by a fitted law before latency rises |
//! | `latency_triggered` | scales and offloads when measured latency has risen |
//! | `hpa` | the rule of Kubernetes' horizontal autoscaler on utilisation; scales only |
//! | `constant` | a fixed number of replicas, and all here or all above |
//! | `law` | latency as a function of load and replicas, and its fit |

mod constant;
mod hpa;
mod la_imr;
mod latency_triggered;
mod law;

pub use constant::Constant;
pub use hpa::{Hpa, HpaSettings};
pub use la_imr::{LaImr, LaImrSettings};
pub(crate) use la_imr::{Rate, expected};
pub use latency_triggered::{LatencySettings, LatencyTriggered};
pub use law::{Calibration, Discipline, LawError, LoadLaw, leave_one_out};

use crate::Why;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A policy that routes requests and wants replicas.
pub trait Router {
    /// Its name, as tables and logs write it.
    fn name(&self) -> &'static str;

    /// Where a request that has just come goes.
    fn route(&mut self, view: &View) -> Routed;

    /// How many replicas there should be, from 1 to [`Pool::most`]. Asked every few seconds.
    fn desired(&mut self, view: &View) -> u32;
}

/// What may be decided about.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Pool {
    /// The most replicas here, from 1.
    pub most: u32,
    /// The most requests above at once.
    pub most_above: u32,
}

/// The state that a router decides on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct View {
    /// Time since some start.
    pub now: Duration,
    /// Replicas that serve.
    pub replicas: u32,
    /// Replicas that start.
    pub starting: u32,
    /// Requests that wait or are served here, without the one to be routed.
    pub here: u32,
    /// Requests above.
    pub above: u32,
    /// The newest measurement that has arrived.
    pub measured: Option<Measured>,
}

/// The measurements of the last monitoring window.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// Seconds from request to answer in the mean, without the way to the client.
    pub mean: f64,
    /// Their 95th percentile.
    pub p95: f64,
    /// The share of the replicas' time in which they served.
    pub utilisation: f64,
}

/// A routing decision: where a request goes, and why.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Routed {
    /// To the tier above instead of the pool here.
    pub above: bool,
    /// Seconds that were expected here, or measured.
    pub expected: f64,
    /// Seconds over which requests go above.
    pub limit: f64,
}

impl Routed {
    /// The decision in plain words.
    pub fn why(&self) -> Why {
        let (chosen, other) = match self.above {
            true => ("the tier above", "this pool"),
            false => ("this pool", "the tier above"),
        };
        let because = match (self.above, self.expected > self.limit) {
            (true, true) => format!(
                "it would take {:.2} s here, over the limit of {:.2} s",
                self.expected, self.limit
            ),
            (true, false) => "all requests go above".into(),
            (false, true) => "there is no room above".into(),
            (false, false) => format!(
                "it takes {:.2} s here, within the limit of {:.2} s",
                self.expected, self.limit
            ),
        };
        Why::new("who serves the request", chosen, because).rather_than(other)
    }
}

/// A pool or a setting that no router can work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{field}` is {value}; it must be {bounds}")]
pub struct RouteError {
    /// The field.
    pub field: &'static str,
    /// What was given.
    pub value: f64,
    /// What may be given.
    pub bounds: &'static str,
}

impl Pool {
    pub(crate) fn check(&self) -> Result<(), RouteError> {
        bounded("most", self.most.into(), self.most >= 1, "at least 1")
    }

    pub(crate) fn clamp(&self, replicas: f64) -> u32 {
        // Not a number, or below 1: one replica stays.
        replicas.clamp(1.0, f64::from(self.most)).max(1.0) as u32
    }
}

pub(crate) const fn bounded(
    field: &'static str,
    value: f64,
    holds: bool,
    bounds: &'static str,
) -> Result<(), RouteError> {
    match holds {
        true => Ok(()),
        false => Err(RouteError { field, value, bounds }),
    }
}

pub(crate) fn positive(field: &'static str, value: f64) -> Result<(), RouteError> {
    bounded(
        field,
        value,
        value > 0.0 && value.is_finite(),
        "finite and over 0",
    )
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    pub(crate) const POOL: Pool = Pool {
        most: 6,
        most_above: 6,
    };

    pub(crate) fn view(seconds: f64, replicas: u32, here: u32) -> View {
        View {
            now: Duration::from_secs_f64(seconds),
            replicas,
            starting: 0,
            here,
            above: 0,
            measured: None,
        }
    }

    pub(crate) fn measured(view: View, latency: f64, utilisation: f64) -> View {
        let measured = Some(Measured {
            mean: latency,
            p95: latency,
            utilisation,
        });
        View { measured, ..view }
    }
}
