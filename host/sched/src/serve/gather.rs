use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// Another policy, which sees the requests of a model once they fill a batch, or once the oldest has waited for others as long as it may:
/// [`ServedModel::wait`](super::ServedModel::wait), and less where even the largest batch would not be in time after that.
///
/// ```
/// use karman_sched::serve::{Action, Device, EdgeServing, Exit, Gather, ServedModel};
/// use std::time::Duration;
///
/// let ms = Duration::from_millis;
/// let exit = Exit { depth: 1, accuracy: 1.0, times: vec![(1, ms(4)), (8, ms(8))] };
/// let model = ServedModel::new(ms(50), 8, vec![exit])?.with_wait(ms(2));
/// let mut device = Device::new([model].into(), Gather::new(EdgeServing::default()), 1);
///
/// device.arrived(ms(0), 0, "first");
/// assert_eq!(device.poll(ms(0))?, Some(Action::Wait { until: ms(2) }));
/// device.arrived(ms(1), 0, "second");
/// let Some(Action::Run { requests, .. }) = device.poll(ms(2))? else { panic!() };
/// assert_eq!(requests, ["first", "second"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Gather<P> {
    policy: P,
    /// What the other policy sees.
    seen: Backlog,
}

impl<P> Gather<P> {
    /// Over this policy.
    pub fn new(policy: P) -> Self {
        Self {
            policy,
            seen: Backlog::new([].into()),
        }
    }
}

impl<P: Serve> Serve for Gather<P> {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let Self { policy, seen } = self;
        seen.follow(backlog);
        let mut next: Option<Duration> = None;
        for model in backlog.waiting_models() {
            let gathered = gathered_at(backlog, model);
            // What comes while others of its model wait for the device waits no longer than they do.
            if gathered <= now || seen.len(model) > 0 {
                for at in backlog.arrived(model).skip(seen.len(model)) {
                    let at = seen.join(at, model);
                    policy.arrived(seen, model, at);
                }
            } else {
                next = Some(next.map_or(gathered, |next| next.min(gathered)));
            }
        }
        match policy.choose(now, seen) {
            Some(Choice::Wait { until }) => Some(Choice::Wait {
                until: next.map_or(until, |next| next.min(until)),
            }),
            None => next.map(|until| Choice::Wait { until }),
            chosen => chosen,
        }
    }

    fn left(&mut self, backlog: &Backlog, model: usize, count: usize) {
        let Self { policy, seen } = self;
        seen.follow(backlog);
        // Where all are taken away at once, there may be some that it has not seen yet.
        let count = count.min(seen.len(model));
        if count > 0 {
            seen.leave(model, count);
            policy.left(seen, model, count);
        }
    }
}

/// When what waits for a model has waited long enough for more: at once where it fills a batch.
fn gathered_at(backlog: &Backlog, model: usize) -> Duration {
    let served = &backlog.models()[model];
    if backlog.len(model) >= served.most() {
        return Duration::ZERO;
    }
    let largest = backlog.time(model, served.deepest(), served.most());
    let wait = served.wait().min(served.slo().saturating_sub(largest));
    backlog
        .oldest(model)
        .map_or(Duration::ZERO, |oldest| oldest.saturating_add(wait))
}
