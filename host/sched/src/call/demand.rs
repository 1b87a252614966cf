use crate::tier::{LaImrSettings, LoadLaw, Rate};
use std::collections::BTreeMap;
use std::time::Duration;

/// Tasks that something is remembered of.
const MOST_TASKS: usize = 1024;
/// A task that nobody has called for so long is forgotten.
const LATELY: Duration = Duration::from_secs(600);
/// What a call takes where a core is free is taken for true no longer than this where none is free any more.
const STALE: Duration = Duration::from_secs(60);
/// How much one call counts in what calls take.
const WEIGHT: f64 = 0.1;
/// Cores of a node that count: it says itself how many it has, and the law is computed core by core.
const MOST_CORES: u32 = 256;

/// How many nodes should offer each task, by LA-IMR's plan: as many as it takes that a call waits for no more than half of its own time
/// in the mean, by what comes and the law of [`LoadLaw`], before calls are late. An autoscaler acts on it.
///
/// Every core of a node counts as a server, and all nodes have one queue, for calls go where a core is free. Times are since some start.
#[derive(Clone, Debug)]
pub struct Demand {
    most: u32,
    tasks: BTreeMap<String, Of>,
}

/// What is asked of one task, and how many nodes that takes.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskDemand {
    /// The task.
    pub task: String,
    /// Calls in a second, smoothed.
    pub rate: f64,
    /// Seconds of a call that finds a free core; nothing while none was answered.
    pub service: Option<f64>,
    /// Nodes that offered it when it was last asked for.
    pub nodes: u32,
    /// Nodes that should, from 1.
    pub wanted: u32,
}

#[derive(Clone, Copy, Debug)]
struct Of {
    rate: Rate,
    called: Duration,
    service: Option<Service>,
    nodes: u32,
    cores: u32,
}

/// Seconds of a call.
#[derive(Clone, Copy, Debug)]
struct Service {
    seconds: f64,
    /// Whether it was measured where a core was free: then nothing of it is waiting.
    free: bool,
    /// When the task had been called last by then.
    at: Duration,
}

impl Demand {
    /// Nothing yet; never wants more than so many nodes for one task.
    pub const fn new(most: u32) -> Self {
        Self {
            most,
            tasks: BTreeMap::new(),
        }
    }

    /// So many nodes offer the task, each with so many cores.
    pub fn offered(&mut self, now: Duration, task: &str, (nodes, cores): (u32, u32)) {
        if self.tasks.len() >= MOST_TASKS && !self.tasks.contains_key(task) {
            self.forget(now);
            if self.tasks.len() >= MOST_TASKS {
                return;
            }
        }
        let known = self.tasks.entry(task.to_owned()).or_insert_with(|| Of {
            rate: Rate::default(),
            called: now,
            service: None,
            nodes,
            cores: 1,
        });
        (known.nodes, known.cores) = (nodes, cores.clamp(1, MOST_CORES));
    }

    /// A call of a task comes that some node offers.
    pub fn called(&mut self, now: Duration, task: &str) {
        if let Some(known) = self.tasks.get_mut(task) {
            known.rate.comes(now, LaImrSettings::default().smoothing);
            known.called = now;
        }
    }

    /// A call was answered, after this time without the round trip; `free` where its node had a free core when it came.
    pub fn answered(&mut self, task: &str, took: Duration, free: bool) {
        let Some(known) = self.tasks.get_mut(task) else {
            return;
        };
        let (seconds, at) = (took.as_secs_f64(), known.called);
        let seconds = match known.service {
            // What waits says less of what a call takes, but where no core is free for long nothing else does.
            Some(before) if before.free && !free && at.saturating_sub(before.at) < STALE => return,
            Some(before) if before.free == free => before.seconds + WEIGHT * (seconds - before.seconds),
            _ => seconds,
        };
        known.service = Some(Service { seconds, free, at });
    }

    /// What is asked of each task that was called lately.
    pub fn of_all(&mut self, now: Duration) -> Vec<TaskDemand> {
        self.forget(now);
        let of = |(task, known): (&String, &Of)| TaskDemand {
            task: task.clone(),
            rate: known.rate_at(now),
            service: known.service.map(|service| service.seconds),
            nodes: known.nodes,
            wanted: known.wanted(now, self.most),
        };
        self.tasks.iter().map(of).collect()
    }

    fn forget(&mut self, now: Duration) {
        self.tasks
            .retain(|_, known| now.saturating_sub(known.called) < LATELY);
    }
}

impl Of {
    fn rate_at(&self, now: Duration) -> f64 {
        self.rate.at(now, LaImrSettings::default().smoothing)
    }

    fn wanted(&self, now: Duration, most: u32) -> u32 {
        let most = most.max(1);
        let Some(Service { seconds, .. }) = self.service.filter(|service| service.seconds > 0.0) else {
            return self.nodes.clamp(1, most);
        };
        let law = LoadLaw::erlang(seconds);
        LaImrSettings::default().wanted(&law, self.rate_at(now), (most, self.cores))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// After a minute of so many calls a second, each of so many milliseconds.
    fn demand(most: u32, cores: u32, rate: u32, took: u64) -> TaskDemand {
        let mut demand = Demand::new(most);
        for n in 0..60 * rate {
            let now = Duration::from_secs_f64(f64::from(n) / f64::from(rate));
            demand.offered(now, "echo", (2, cores));
            demand.called(now, "echo");
            demand.answered("echo", Duration::from_millis(took), true);
        }
        demand.of_all(Duration::from_secs(60)).remove(0)
    }

    #[test]
    fn nodes_are_wanted_with_what_comes_and_takes() {
        // As the plan of LA-IMR: 3.65 service times in a second take five servers.
        let wanted = demand(64, 1, 5, 730);
        assert_eq!((wanted.wanted, wanted.nodes), (5, 2), "{wanted:?}");
        assert!((wanted.rate - 5.0).abs() < 0.2, "{wanted:?}");
        assert_eq!(demand(64, 4, 5, 730).wanted, 2);
        assert_eq!(demand(64, 4, 20, 730).wanted, 4);
        assert_eq!(demand(3, 1, 20, 730).wanted, 3);
        assert_eq!(demand(64, 4, 5, 1).wanted, 1);
    }

    #[test]
    fn what_waits_counts_only_until_a_call_finds_a_free_core() {
        let mut demand = Demand::new(9);
        let seconds = Duration::from_secs;
        let mut service = |took, free| {
            demand.offered(seconds(1), "echo", (1, 1));
            demand.answered("echo", seconds(took), free);
            demand.of_all(seconds(1))[0].service.unwrap()
        };
        assert_eq!(service(8, false), 8.0);
        assert_eq!(service(2, true), 2.0);
        assert_eq!(service(8, false), 2.0);
        assert!((service(3, true) - 2.1).abs() < 1e-9);
    }

    #[test]
    fn where_no_core_is_free_for_a_minute_what_waits_counts() {
        let mut demand = Demand::new(64);
        demand.offered(Duration::ZERO, "echo", (1, 1));
        let mut after = |second, took: u64, free| {
            let now = Duration::from_secs(second);
            demand.called(now, "echo");
            demand.answered("echo", Duration::from_millis(took), free);
            demand.of_all(now).remove(0)
        };
        // It is throttled after the first second, and calls pile up.
        assert_eq!(after(1, 100, true).wanted, 1);
        for second in 2..61 {
            let known = after(second, 8000, false);
            assert_eq!((known.service, known.wanted), (Some(0.1), 1), "{second}");
        }
        let known = after(61, 8000, false);
        assert_eq!(known.service, Some(8.0));
        assert!(known.wanted > 8, "{known:?}");
        // With more nodes calls find free cores again.
        assert_eq!(after(62, 200, true).service, Some(0.2));
        assert_eq!(after(63, 8000, false).service, Some(0.2));
    }

    #[test]
    fn a_node_that_boasts_of_its_cores_keeps_nobody_busy() {
        let (boasts, most) = (demand(64, u32::MAX, 5, 730), demand(64, MOST_CORES, 5, 730));
        assert_eq!((boasts.wanted, most.wanted), (1, 1));
        // A node without cores runs calls one by one.
        assert_eq!(demand(64, 0, 5, 730).wanted, 5);
    }

    #[test]
    fn nothing_is_guessed_and_what_nobody_calls_is_forgotten() {
        let mut demand = Demand::new(9);
        demand.called(Duration::ZERO, "echo");
        demand.answered("echo", Duration::from_secs(1), true);
        assert!(demand.of_all(Duration::ZERO).is_empty());
        demand.offered(Duration::ZERO, "echo", (3, 4));
        let known = demand.of_all(Duration::from_secs(1)).remove(0);
        assert_eq!((known.service, known.wanted), (None, 3));
        assert!(demand.of_all(LATELY).is_empty());
        for n in 0..=MOST_TASKS {
            demand.offered(LATELY, &n.to_string(), (1, 1));
        }
        assert_eq!(demand.of_all(LATELY).len(), MOST_TASKS);
    }

    proptest! {
        #[test]
        fn more_calls_never_want_fewer_nodes(most in 1u32..40, cores in 1u32..9, rate in 1u32..30, took in 1u64..3000) {
            let (fewer, more) = (demand(most, cores, rate, took), demand(most, cores, rate + 3, took));
            prop_assert!(fewer.wanted <= more.wanted, "{fewer:?} {more:?}");
            prop_assert!((1..=most).contains(&fewer.wanted), "{fewer:?}");
        }
    }
}
