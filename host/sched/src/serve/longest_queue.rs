use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// The model of which most requests wait, up to the deepest exit that is in time for its oldest.
#[derive(Clone, Copy, Debug, Default)]
pub struct LongestQueue;

impl Serve for LongestQueue {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let model = backlog.longest()?;
        let batch = backlog.batch(model);
        let exit = backlog.deepest_in_time(now, model, batch).unwrap_or(0);
        Some(Choice::Run { model, exit, batch })
    }
}
