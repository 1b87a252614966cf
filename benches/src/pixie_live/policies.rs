//! The contenders: those of the replayed study, and the best single candidate in hindsight.

use super::profiles::{Cell, task};
use anyhow::Result;
use karman_sched::select::{Fixed, Selector};
use karman_study::choosing;
use karman_types::Implementation;

/// Every policy of a cell by its name in the rows; the best single candidate comes last.
pub(super) fn policies() -> impl Iterator<Item = &'static str> {
    choosing::POLICIES.into_iter().chain([FIXED])
}
const FIXED: &str = "fixed";

/// A policy in a cell; nothing for the best single candidate where none keeps the limits.
pub(super) fn policy(
    name: &str,
    candidates: &[Implementation],
    cell: &Cell,
) -> Result<Option<Box<dyn Selector>>> {
    let tasks = vec![task("classify", 1.0, candidates)];
    if name != FIXED {
        return Ok(Some(choosing::policy(name, tasks, &cell.slo)?));
    }
    let Some(candidate) = cell.fixed else {
        return Ok(None);
    };
    Ok(Some(Box::new(Fixed::new(tasks, &cell.slo, vec![candidate])?)))
}
