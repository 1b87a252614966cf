use super::plan::{RESOURCES, Use};
use super::{Call, Task};
use karman_types::Slo;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

/// How many standard deviations disprove an accuracy: answers are judged on easy and hard inputs alike, and a choice that follows
/// their luck is worse than one that does not.
const DISPROVED: f64 = 3.0;
/// How many calls the alarm looks at. Over fewer, a limit 10 % above the true p95 would be called broken in a fifth of windows.
const WINDOW: u32 = 60;
/// Calls after which what was seen counts for a third of what it did.
const MEMORY: f64 = 500.0;
/// For how many calls a profile's cost and energy stand: they vary less than lateness and answers.
const PRICE_SAMPLES: f64 = 20.0;

/// What is known of a candidate: its profile, which stands for as many calls as it was measured with, and what was seen since.
///
/// An alarm goes off when the last 60 calls are late more often than the profile says, by a binomial test. From then on only these
/// 60 count, until the profile is given another chance. Fewer late calls than that may be enough that it is not called any more:
/// then half of what was seen is forgotten now and again, for nobody would find out that whatever it was is over.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Estimate {
    accuracy: Mean,
    late: Mean,
    cost: Mean,
    energy: Mean,
    /// The last calls, one bit each, set where late.
    window: u64,
    in_window: u32,
    /// This many late calls of the window raise the alarm.
    alarm_at: u32,
    /// When it went off, in requests.
    alarmed: Option<u64>,
    /// Requests that called its task since it was called itself.
    passed_over: u64,
}

/// A mean that starts from a prior.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
struct Mean {
    prior: f64,
    weight: f64,
    sum: f64,
    count: f64,
}

impl Mean {
    const fn new(prior: f64, weight: f64) -> Self {
        Self {
            prior,
            weight,
            sum: 0.0,
            count: 0.0,
        }
    }

    fn see(&mut self, value: f64) {
        let keep = 1.0 - 1.0 / MEMORY;
        self.sum = self.sum * keep + value;
        self.count = self.count * keep + 1.0;
    }

    /// Forgets half of what was seen; whether there was any.
    fn fade(&mut self) -> bool {
        let any = self.count >= 1.0;
        if any {
            (self.sum, self.count) = (self.sum / 2.0, self.count / 2.0);
        }
        any
    }

    fn get(&self) -> f64 {
        (self.prior * self.weight + self.sum) / (self.weight + self.count)
    }

    /// The prior of a share, until what was seen lies further from it than chance explains.
    fn get_unless_disproved(&self) -> f64 {
        let deviation = (self.count * self.prior * (1.0 - self.prior)).sqrt();
        match (self.sum - self.prior * self.count).abs() <= DISPROVED * deviation {
            true => self.prior,
            false => self.get(),
        }
    }
}

impl Estimate {
    /// What the profile of a candidate says. `false_alarms` is the probability of an alarm in a window where the profile holds.
    pub(crate) fn new(task: &Task, slo: &Slo, candidate: usize, false_alarms: f64) -> Self {
        let profile = &task.candidates[candidate].profile;
        let samples = profile.samples as f64;
        let late = task.late_share(slo, candidate);
        Self {
            accuracy: Mean::new(
                task.accuracy(candidate),
                profile.accuracy.map_or(1.0, |_| samples),
            ),
            late: Mean::new(late, samples),
            cost: Mean::new(profile.cost, PRICE_SAMPLES),
            energy: Mean::new(profile.energy.unwrap_or_default(), PRICE_SAMPLES),
            window: 0,
            in_window: 0,
            alarm_at: alarm_at(late, false_alarms),
            alarmed: None,
            passed_over: 0,
        }
    }

    /// A request calls its task: this one where it is [seen](Self::see) then, else others.
    pub(crate) const fn pass_over(&mut self) {
        self.passed_over = self.passed_over.saturating_add(1);
    }

    /// Takes in a call that was late or not; true when that raises the alarm.
    pub(crate) fn see(&mut self, call: &Call, late: bool, requests: u64) -> bool {
        self.passed_over = 0;
        // Of errors it is known that they are wrong, of answers mostly not whether they are right: these are as good as the profile says.
        let right = call.right.map(|right| f64::from(u8::from(right)));
        self.accuracy.see(right.unwrap_or(self.accuracy.prior));
        self.late.see(f64::from(u8::from(late)));
        self.cost.see(call.cost);
        if let Some(energy) = call.energy {
            self.energy.see(energy);
        }
        self.window = (self.window << 1 | u64::from(late)) & ((1 << WINDOW) - 1);
        self.in_window = WINDOW.min(self.in_window + 1);
        let alarm = self.in_window == WINDOW && self.window.count_ones() >= self.alarm_at;
        if alarm {
            self.alarmed.replace(requests).is_none()
        } else {
            false
        }
    }

    /// Gives the profile another chance when the alarm is older than this, or when it was passed over for as long; true when it does.
    pub(crate) fn forgive(&mut self, requests: u64, after: u64) -> bool {
        let forgiven = self
            .alarmed
            .is_some_and(|alarmed| requests.saturating_sub(alarmed) >= after);
        if forgiven {
            self.alarmed = None;
            (self.window, self.in_window) = (0, 0);
            (self.late.sum, self.late.count) = (0.0, 0.0);
        }
        self.fade(after) || forgiven
    }

    /// Forgets half of what was seen where it was passed over for so long.
    fn fade(&mut self, after: u64) -> bool {
        if self.passed_over < after.max(1) {
            return false;
        }
        self.passed_over = 0;
        // What comes now says nothing together with calls of so long ago.
        (self.window, self.in_window) = (0, 0);
        let all = [
            &mut self.accuracy,
            &mut self.late,
            &mut self.cost,
            &mut self.energy,
        ];
        all.map(Mean::fade).contains(&true)
    }

    /// What a call is expected to be worth and to take.
    pub(crate) fn expected(&self) -> Use {
        let late = match self.alarmed {
            Some(_) => f64::from(self.window.count_ones()) / f64::from(WINDOW),
            None => self.late.get(),
        };
        let takes: [f64; RESOURCES] = [self.cost.get(), late, self.energy.get()];
        Use {
            value: self.accuracy.get_unless_disproved(),
            takes,
        }
    }
}

/// The least number of late calls in a window that has no more than this probability.
fn alarm_at(late: f64, false_alarms: f64) -> u32 {
    let Ok(calls) = Binomial::new(late.clamp(0.0, 1.0), u64::from(WINDOW)) else {
        return WINDOW + 1;
    };
    // `sf` is the probability of more.
    (1..=WINDOW)
        .find(|count| calls.sf(u64::from(count - 1)) <= false_alarms)
        .unwrap_or(WINDOW + 1)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{candidate, millis, task};
    use super::*;

    fn estimate() -> Estimate {
        let slo = Slo {
            latency_p95: Some(millis(200.0)),
            ..Slo::over(1000)
        };
        Estimate::new(&task("a", vec![candidate("m", 0.9, 200.0, 0.1)]), &slo, 0, 1e-4)
    }

    fn call() -> Call {
        Call {
            task: 0,
            candidate: 0,
            latency: millis(100.0),
            cost: 0.1,
            energy: None,
            right: Some(true),
        }
    }

    #[test]
    fn a_profile_that_holds_raises_few_alarms() {
        let mut rng = fastrand::Rng::with_seed(5);
        let alarms = (0..200)
            .filter(|_| {
                let mut estimate = estimate();
                (0..600).any(|n| estimate.see(&call(), rng.f64() < 0.05, n))
            })
            .count();
        // 541 windows that overlap: far fewer than that are independent.
        assert!(alarms <= 6, "{alarms} of 200 runs");
    }

    #[test]
    fn a_profile_that_does_not_hold_is_left_within_two_windows() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut estimate = estimate();
        let alarm = (0..600)
            .position(|n| estimate.see(&call(), rng.f64() < 0.3, n))
            .unwrap();
        assert!((59..120).contains(&alarm), "{alarm}");
        let late = estimate.expected().takes[1];
        assert!((0.15..0.45).contains(&late), "{late}");
        // Its second chance comes later, and then its profile counts again.
        assert!(!estimate.forgive(alarm as u64 + 299, 300));
        assert!(estimate.forgive(alarm as u64 + 300, 300));
        assert!((estimate.expected().takes[1] - 0.05).abs() < 1e-9);
    }

    #[test]
    fn who_is_passed_over_gets_back_half_of_its_profile_each_time() {
        let mut estimate = estimate();
        for n in 0..50 {
            let dear = Call { cost: 0.3, ..call() };
            estimate.see(&dear, true, n);
        }
        let expected = |estimate: &Estimate| estimate.expected().takes;
        let before = expected(&estimate);
        let passed_over = |estimate: &mut Estimate, times| {
            (0..times).for_each(|_| estimate.pass_over());
            estimate.forgive(1000, 300)
        };
        assert!(!passed_over(&mut estimate, 299));
        assert_eq!(expected(&estimate), before);
        assert!(passed_over(&mut estimate, 1));
        for (after, before) in expected(&estimate)[..2].iter().zip(before) {
            assert!(*after < before, "{after} {before}");
        }
        // As often as there is anything to forget.
        let times = (0..20).filter(|_| passed_over(&mut estimate, 300)).count();
        assert_eq!(times, 5);
        let [cost, late, _] = expected(&estimate);
        assert!(
            (cost - 0.1).abs() < 0.01 && (late - 0.05).abs() < 0.002,
            "{cost} {late}"
        );
        // Who is called keeps what was seen.
        (0..299).for_each(|_| estimate.pass_over());
        estimate.see(&call(), true, 2000);
        assert!(!passed_over(&mut estimate, 299));
    }

    #[test]
    fn errors_count_by_their_share_where_nobody_judges_answers() {
        let mut estimate = estimate();
        let see = |estimate: &mut Estimate, n, right| estimate.see(&Call { right, ..call() }, false, n);
        for n in 0..1000 {
            see(&mut estimate, n, None);
        }
        assert_eq!(estimate.expected().value, 0.9);
        // One in ten: of the last 500 calls or so, which weigh as much as the profile.
        for n in 1000..5000 {
            see(&mut estimate, n, (n % 10 == 0).then_some(false));
        }
        let value = estimate.expected().value;
        assert!((0.84..0.87).contains(&value), "{value}");
    }

    #[test]
    fn what_is_seen_moves_what_is_expected() {
        let mut estimate = estimate();
        for n in 0..500 {
            let call = Call {
                cost: 0.2,
                right: Some(false),
                ..call()
            };
            estimate.see(&call, false, n);
        }
        let expected = estimate.expected();
        assert!(expected.takes[0] > 0.19 && expected.value < 0.6, "{expected:?}");
        assert!(expected.takes[1] < 0.05);
    }
}
