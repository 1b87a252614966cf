//! The best single cut, known when everything is over.

use super::Problem;

/// A comparator: of all cuts of the layers' order into one interval for each tier, the one whose `total` over a whole trace is
/// least, with that total. `total` says nothing of a cut that cannot run, and is asked once for each.
///
/// It sees what no policy can, and may never move: what adapting gains is measured against it.
pub fn best_static(
    problem: &Problem,
    mut total: impl FnMut(&[usize]) -> Option<f64>,
) -> Option<(Vec<usize>, f64)> {
    let order = problem.graph().order();
    let tiers = problem.tiers().len();
    let mut best: Option<(Vec<usize>, f64)> = None;
    let mut ends = vec![0; tiers - 1];
    loop {
        let cut = assignment(order, &ends);
        let sum = if problem.predict(&cut).is_ok() {
            total(&cut)
        } else {
            None
        };
        if let Some(sum) = sum.filter(|sum| best.as_ref().is_none_or(|(_, least)| sum < least)) {
            best = Some((cut, sum));
        }
        // The next of the non-decreasing rows of ends.
        let Some(index) = (0..ends.len()).rev().find(|index| ends[*index] < order.len()) else {
            return best;
        };
        let next = ends[index] + 1;
        ends[index..].fill(next);
    }
}

/// Each tier runs the layers of the order up to its end; the last one the rest.
pub(super) fn assignment(order: &[usize], ends: &[usize]) -> Vec<usize> {
    let mut assignment = vec![0; order.len()];
    for (place, layer) in order.iter().enumerate() {
        assignment[*layer] = ends.iter().filter(|end| **end <= place).count();
    }
    assignment
}
