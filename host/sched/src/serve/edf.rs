use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// Earliest deadline first: the model whose oldest request is due first, as many of its requests as a batch takes, up to the
/// deepest exit that is in time for the oldest, or the shallowest when none is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Edf;

impl Serve for Edf {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let model = backlog.most_urgent()?;
        let batch = backlog.batch(model);
        let exit = backlog.deepest_in_time(now, model, batch).unwrap_or(0);
        Some(Choice::Run { model, exit, batch })
    }
}
