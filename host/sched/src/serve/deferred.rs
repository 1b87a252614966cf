use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// Deferred batching, in the way of Symphony (Chen et al., 2023): a batch waits for more requests until one more would make the
/// oldest late; of batches that are ready the one due first starts. A request that cannot be answered in time any more is
/// refused, but for one that an idle device tries where all would be.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deferred {
    /// Whether early exits are used: a batch then waits as if for the deepest, and runs up to the deepest still in time.
    pub exits: bool,
    /// How much earlier than necessary a batch is ready, as a share of the SLO: another model's batch may be in the way.
    pub margin: f64,
}

impl Serve for Deferred {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let too_late = |model: &usize| self.refuses(now, backlog, *model);
        if let Some(model) = backlog.waiting_models().find(too_late) {
            return Some(Choice::Refuse { model, count: 1 });
        }
        let starts = |model: usize| (self.starts(backlog, model), model);
        let next = backlog.waiting_models().map(starts).min()?;
        if next.0 > now {
            return Some(Choice::Wait { until: next.0 });
        }
        let ready = backlog
            .waiting_models()
            .map(starts)
            .filter(|(starts, _)| *starts <= now);
        let (_, model) = ready.min_by_key(|(_, model)| backlog.due(*model))?;
        Some(self.run(now, backlog, model))
    }
}

impl Deferred {
    /// The exit without which a request is refused.
    fn least_exit(&self, backlog: &Backlog, model: usize) -> usize {
        match self.exits {
            true => 0,
            false => backlog.models()[model].deepest(),
        }
    }

    fn refuses(&self, now: Duration, backlog: &Backlog, model: usize) -> bool {
        let exit = self.least_exit(backlog, model);
        let late = |due| now + backlog.time(model, exit, 1) > due;
        backlog.due(model).is_some_and(late) && !backlog.tries(now, model, exit)
    }

    /// When the batch of this model waits no longer: at once if it is full.
    fn starts(&self, backlog: &Backlog, model: usize) -> Duration {
        let (profile, batch) = (&backlog.models()[model], backlog.batch(model));
        if batch == profile.most() {
            return Duration::ZERO;
        }
        let time = backlog.time(model, profile.deepest(), batch + 1) + profile.slo().mul_f64(self.margin);
        backlog
            .due(model)
            .map_or(Duration::ZERO, |due| due.saturating_sub(time))
    }

    /// The largest batch in time; with early exits, the whole batch as deep as it may go.
    fn run(&self, now: Duration, backlog: &Backlog, model: usize) -> Choice {
        let (deepest, full) = (backlog.models()[model].deepest(), backlog.batch(model));
        let whole = backlog.deepest_in_time(now, model, full);
        let (exit, batch) = match (self.exits, whole) {
            (true, Some(exit)) => (exit, full),
            (true, None) => (0, full),
            (false, _) => {
                let fits = |batch: &usize| backlog.deepest_in_time(now, model, *batch) == Some(deepest);
                (deepest, (1..=full).rev().find(fits).unwrap_or(1))
            }
        };
        Choice::Run { model, exit, batch }
    }
}
