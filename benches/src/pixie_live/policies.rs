//! The contenders: those of the replayed study, and the best single choice in hindsight.

use super::profiles::{Cell, Profiles};
use anyhow::Result;
use karman_sched::select::{Fixed, Selector};
use karman_study::choosing;

/// Every policy of a cell by its name in the rows; the best single choice comes last.
pub(super) fn policies() -> impl Iterator<Item = &'static str> {
    choosing::POLICIES.into_iter().chain([FIXED])
}
const FIXED: &str = "fixed";

/// A policy in a cell; nothing for the best single choice where none keeps the limits.
pub(super) fn policy(name: &str, profiles: &Profiles, cell: &Cell) -> Result<Option<Box<dyn Selector>>> {
    let tasks = profiles.tasks();
    if name != FIXED {
        return Ok(Some(choosing::policy(name, tasks, &cell.slo)?));
    }
    let Some(choice) = cell.fixed.clone() else {
        return Ok(None);
    };
    Ok(Some(Box::new(Fixed::new(tasks, &cell.slo, choice)?)))
}
