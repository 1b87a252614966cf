//! The contenders: those of the replayed study, and the best single candidate in hindsight.

use super::profiles::{Cell, task};
use anyhow::{Result, bail};
use karman_sched::select::{
    Aim, Compass, Fixed, Greedy, Oracle, Pixie, PixiePrototype, PixieSettings, Selector,
};
use karman_types::Implementation;

/// Ours first.
pub(super) const POLICIES: [&str; 8] = [
    "pixie",
    "pixie_prototype",
    "compass",
    "greedy_accuracy",
    "greedy_cost",
    "greedy_latency",
    "oracle",
    FIXED,
];
const FIXED: &str = "fixed";

/// A policy in a cell; nothing for the best single candidate where none keeps the limits.
pub(super) fn policy(
    name: &str,
    candidates: &[Implementation],
    cell: &Cell,
) -> Result<Option<Box<dyn Selector>>> {
    let (tasks, slo) = (vec![task("classify", 1.0, candidates)], cell.slo.clone());
    let policy: Box<dyn Selector> = match name {
        "pixie" => Box::new(Pixie::new(tasks, slo, PixieSettings::default())?),
        "pixie_prototype" => Box::new(PixiePrototype::new(tasks, slo)?),
        "compass" => Box::new(Compass::new(tasks, &slo)?),
        "greedy_accuracy" => Box::new(Greedy::new(tasks, slo, Aim::Accuracy)?),
        "greedy_cost" => Box::new(Greedy::new(tasks, slo, Aim::Cost)?),
        "greedy_latency" => Box::new(Greedy::new(tasks, slo, Aim::Latency)?),
        "oracle" => Box::new(Oracle::new(tasks, &slo)?),
        FIXED => match cell.fixed {
            Some(candidate) => Box::new(Fixed::new(tasks, &slo, vec![candidate])?),
            None => return Ok(None),
        },
        _ => bail!("there is no policy {name}"),
    };
    Ok(Some(policy))
}
