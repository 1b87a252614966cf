//! What no policy can do better than. A mix may keep a cell's limits in the mean, with something to spare, and chance still leave them to few
//! runs: what is spared for money is no longer there for lateness.

use super::cells::Cell;
use super::profiles::{EASY, QUESTIONS, Workload};
use karman_sched::select::{LatencyLaw, Task};
use karman_types::Slo;

/// Parts that the money of a run is counted in.
const PARTS: usize = 4_000;
/// So many may be late: the next latency is the p95 of the replay.
const LATE: usize = QUESTIONS - 1 - PERCENTILE;
/// The place of the p95 among the latencies of a run, the least first.
const PERCENTILE: usize = 825;

/// How a call of a candidate spends what a run may take.
struct Call {
    /// Parts of the money, rounded down.
    parts: usize,
    late: f64,
}

/// The most that any policy can expect of a cell: the share of runs that keep cost and p95. By dynamic programming over calls, money and late
/// answers that are left, for a policy that knows all probabilities, and from the start how many questions come to the last task. It is a
/// bound: nothing is asked of accuracy, questions for other tasks cost nothing and are never late, and prices are rounded down.
pub(super) fn ceiling(cell: &Cell, workload: &Workload) -> f64 {
    let slo = cell.slo(1.0);
    let task = &workload.tasks[workload.tasks.len() - 1];
    let calls = calls(task, &slo);
    let visits = visits(workload.classifier);
    let mut kept = vec![[1.0; LATE + 1]; PARTS + 1];
    let mut share = visits[0];
    for probability in &visits[1..] {
        kept = with_one_more(&kept, &calls);
        share += probability * kept[PARTS][LATE];
    }
    share
}

fn calls(task: &Task, slo: &Slo) -> Vec<Call> {
    let part = slo.cost.unwrap_or(f64::INFINITY) / PARTS as f64;
    let limit_ms = slo
        .latency_p95
        .map_or(f64::INFINITY, |limit| limit.as_secs_f64() * 1e3);
    let call = |candidate: &karman_types::Implementation| Call {
        parts: (candidate.profile.cost / part).floor() as usize,
        late: LatencyLaw::of(&candidate.profile).share_over(limit_ms * task.within),
    };
    task.candidates.iter().map(call).collect()
}

/// The best chance with one more call to come, by parts of the money and late answers that are left.
fn with_one_more(kept: &[[f64; LATE + 1]], calls: &[Call]) -> Vec<[f64; LATE + 1]> {
    let mut more = vec![[0.0; LATE + 1]; kept.len()];
    for (parts, row) in more.iter_mut().enumerate() {
        for call in calls.iter().filter(|call| call.parts <= parts) {
            let then = &kept[parts - call.parts];
            for (late, best) in row.iter_mut().enumerate() {
                let is_late = if late > 0 { then[late - 1] } else { 0.0 };
                *best = f64::max(*best, (1.0 - call.late) * then[late] + call.late * is_late);
            }
        }
    }
    more
}

/// The probability of each number of questions that come to the last task: those that a classifier calls hard, or all.
fn visits(classifier: Option<f64>) -> Vec<f64> {
    let mut visits = vec![0.0; QUESTIONS + 1];
    let Some(right) = classifier else {
        visits[QUESTIONS] = 1.0;
        return visits;
    };
    visits[0] = 1.0;
    for question in 0..QUESTIONS {
        let called_hard = if question < EASY { 1.0 - right } else { right };
        for number in (0..=question + 1).rev() {
            let one_less = if number > 0 { visits[number - 1] } else { 0.0 };
            visits[number] = (1.0 - called_hard) * visits[number] + called_hard * one_less;
        }
    }
    visits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_the_p95_is_that_of_the_replay() {
        let latencies = |late: usize| -> Vec<f64> {
            (0..QUESTIONS)
                .map(|question| if question < late { 2.0 } else { 1.0 })
                .collect()
        };
        let p95 = |late| karman_study::pairs::percentile(&latencies(late), 0.95);
        assert_eq!([p95(LATE), p95(LATE + 1)], [1.0, 2.0]);
    }

    #[test]
    fn chance_is_what_it_is_for_one_candidate() {
        // One of a hundred calls may be late, each is with a hundredth: 0.99^100 + 0.99^99.
        let kept = (0..100).fold(vec![[1.0; LATE + 1]; 1], |kept, _| {
            with_one_more(&kept, &[Call { parts: 0, late: 0.01 }])
        });
        let exact = 0.99_f64.powi(100) + 0.99_f64.powi(99);
        assert!((kept[0][1] - exact).abs() < 1e-12);
        // Money for half of them only.
        let costs = [Call { parts: 1, late: 0.0 }];
        let kept = (0..4).fold(vec![[1.0; LATE + 1]; 3], |kept, _| with_one_more(&kept, &costs));
        assert_eq!(kept[2][LATE], 0.0);
    }

    #[test]
    fn questions_that_a_classifier_calls_hard_are_counted() {
        let visits = visits(Some(0.8));
        assert!((visits.iter().sum::<f64>() - 1.0).abs() < 1e-9);
        let mean: f64 = (0..)
            .zip(&visits)
            .map(|(number, share)| f64::from(number) * share)
            .sum();
        assert!((mean - (570.0 * 0.2 + 299.0 * 0.8)).abs() < 1e-6);
        assert_eq!(super::visits(Some(1.0))[QUESTIONS - EASY], 1.0);
    }
}
