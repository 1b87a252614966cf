use serde::Serialize;

/// What came of one run, over the requests that count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Run {
    /// All of them.
    pub requests: f64,
    /// Late, refused and unfinished ones.
    pub violations: f64,
    /// Answers.
    pub answered: f64,
    /// The accuracy of the exits of all answers, summed.
    pub accuracy: f64,
    /// The same of the answers in time.
    pub on_time_accuracy: f64,
    /// The 95th percentile of response times in ms.
    pub p95_ms: f64,
}

fn ratio(runs: &[Run], part: impl Fn(&Run) -> f64, whole: impl Fn(&Run) -> f64) -> f64 {
    runs.iter().map(part).sum::<f64>() / runs.iter().map(whole).sum::<f64>()
}

/// Late, refused and unfinished over all requests.
pub fn violations(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.violations, |run| run.requests)
}

/// The accuracy of the exits of all answers.
pub fn mean_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.accuracy, |run| run.answered)
}

/// The accuracy of answers in time over all requests.
pub fn on_time_accuracy(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.on_time_accuracy, |run| run.requests)
}

/// The mean over runs of their 95th percentile.
pub fn p95_ms(runs: &[Run]) -> f64 {
    ratio(runs, |run| run.p95_ms, |_| 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_by_their_requests() {
        let run = |requests: f64, violations: f64, p95_ms: f64| Run {
            requests,
            violations,
            answered: requests,
            accuracy: 0.9 * requests,
            on_time_accuracy: 0.9 * (requests - violations),
            p95_ms,
        };
        let runs = [run(100.0, 0.0, 1.0), run(300.0, 40.0, 3.0)];
        assert!((violations(&runs) - 0.1).abs() < 1e-9);
        assert!((mean_accuracy(&runs) - 0.9).abs() < 1e-9);
        assert!((on_time_accuracy(&runs) - 0.81).abs() < 1e-9);
        assert!((p95_ms(&runs) - 2.0).abs() < 1e-9);
    }
}
