use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// Another policy, after every request is refused that even the fastest exit cannot answer in time any more: for users who
/// would rather hear "no" at once than an answer too late. Where the device is so slow that all would be refused, an idle one tries one now and
/// then.
#[derive(Clone, Copy, Debug, Default)]
pub struct RefuseLate<P>(pub P);

impl<P: Serve> Serve for RefuseLate<P> {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let late = |model: &usize| {
            backlog.deepest_in_time(now, *model, 1).is_none() && !backlog.tries(now, *model, 0)
        };
        if let Some(model) = backlog.waiting_models().find(late) {
            return Some(Choice::Refuse { model, count: 1 });
        }
        self.0.choose(now, backlog)
    }

    fn arrived(&mut self, backlog: &Backlog, model: usize, at: Duration) {
        self.0.arrived(backlog, model, at);
    }

    fn left(&mut self, backlog: &Backlog, model: usize, count: usize) {
        self.0.left(backlog, model, count);
    }
}
