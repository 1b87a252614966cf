//! When the passes of the story come. They follow each other as planned, unless what the story needs before one of them is not so yet:
//! then that one and those after it are put off. Time is an argument.

use super::sky::Pass;
use karman_space::Time;
use std::time::Duration;

/// So long before a pass the link is there: the dish looks for the satellite before the plan says that it comes.
pub(super) const EARLY: Duration = Duration::from_millis(400);
/// How far a pass is put off at once.
const STEP: Duration = Duration::from_secs(1);
/// How far all of them may be put off together.
const MOST: Duration = Duration::from_secs(15);

/// The passes, and how far they were put off.
pub(super) struct Timetable {
    passes: Vec<Pass>,
    put_off: Duration,
}

impl Timetable {
    /// These passes, as they are planned.
    pub(super) const fn new(passes: Vec<Pass>) -> Self {
        Self {
            passes,
            put_off: Duration::ZERO,
        }
    }

    /// All of them, in their order.
    pub(super) fn passes(&self) -> &[Pass] {
        &self.passes
    }

    /// How long it is until the link of the pass of this number is there; zero from then on.
    pub(super) fn left(&self, pass: usize, now: Time) -> Duration {
        self.passes[pass].start.since(now).saturating_sub(EARLY)
    }

    /// Puts this pass and those after it off, so that a step is left until it; by how much. Nothing where they were put off as far as
    /// they may be.
    pub(super) fn put_off(&mut self, pass: usize, now: Time) -> Option<Duration> {
        let late = now.since(self.passes[pass].start - EARLY);
        let by = (late + STEP).saturating_sub(self.left(pass, now));
        if self.put_off + by > MOST {
            return None;
        }
        self.put_off += by;
        for pass in &mut self.passes[pass..] {
            pass.put_off(by);
        }
        Some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::super::sky::{STORY, Sky, now};
    use super::*;
    use karman_types::NodeId;

    fn timetable(first: Time) -> Timetable {
        let [sat, dish] = ["sat", "dish"].map(|name| NodeId::of_key(name.as_bytes()));
        Timetable::new(Sky::over(sat, dish).unwrap().passes(0, 4, first, STORY))
    }

    #[test]
    fn what_is_put_off_takes_what_follows_with_it_and_leaves_what_was() {
        let first = now();
        let (planned, mut times) = (timetable(first), timetable(first));
        let open = planned.passes()[2].start - EARLY;
        assert_eq!(times.left(2, open - STEP), STEP);
        // Half a second too late.
        let late = open + STEP / 2;
        assert_eq!(times.left(2, late), Duration::ZERO);
        let by = STEP + STEP / 2;
        assert_eq!(times.put_off(2, late), Some(by));
        assert_eq!(times.left(2, late), STEP);
        for (place, (before, after)) in planned.passes().iter().zip(times.passes()).enumerate() {
            let by = if place < 2 { Duration::ZERO } else { by };
            assert_eq!((after.start, after.end), (before.start + by, before.end + by));
            assert_eq!((after.was, after.lasted), (before.was, before.lasted));
        }
    }

    #[test]
    fn passes_are_put_off_only_so_far() {
        let mut times = timetable(now());
        let mut all = Duration::ZERO;
        for pass in [0, 1, 1, 3].into_iter().cycle() {
            let open = times.passes()[pass].start - EARLY;
            let Some(by) = times.put_off(pass, open) else {
                break;
            };
            all += by;
        }
        assert_eq!(all, MOST);
        // Whoever comes far too late puts off nothing.
        let mut times = timetable(now());
        let late = times.passes()[0].start + MOST;
        assert_eq!(times.put_off(0, late), None);
        assert_eq!(times.left(1, times.passes()[0].end), STORY.between - EARLY);
    }
}
