use super::plan::Plan;
use super::urgency::Urgency;
use super::{Backlog, Choice, Serve};
use std::time::Duration;

/// The batch that leaves the queues most stable (EdgeServing, Cao et al., arXiv 2605.05527), as accurate as all deadlines
/// together allow.
///
/// The stability of the queues after a batch is the sum over what then waits of `min(10, exp(sharpness (waited/slo - 1)))`: a
/// request at its deadline counts 1. For each model the sum is computed for its next batch, with its exit; the least wins.
/// That costs one term for each pair of models, whatever the lengths of the queues.
///
/// Two things differ from the published policy, which is [`EdgeServing::published`]. A request that is still fresh counts 0.37
/// there, which makes short batches of models that nobody waits for attractive: a sharper sum counts only what is in danger.
/// And there each batch goes as deep as its own deadline allows, so all queues wait until shallow exits are all that is left. Here a
/// plan over everything that waits says how deep each model may go, and takes back the exits that lose the least
/// accuracy for the time they gain. While nothing has to be taken back there is no danger, and the order is that of deadlines.
#[derive(Clone, Debug)]
pub struct EdgeServing {
    sharpness: f64,
    plan: Option<Plan>,
    urgency: Vec<Urgency>,
}

impl Default for EdgeServing {
    fn default() -> Self {
        Self::new(6.0)
    }
}

impl EdgeServing {
    /// With a plan, and this sharpness: above 0, at most 100; others count as the nearest of these. Default 6.
    pub fn new(sharpness: f64) -> Self {
        Self {
            sharpness: sharpness.clamp(f64::MIN_POSITIVE, 100.0),
            plan: Some(Plan::default()),
            urgency: Vec::new(),
        }
    }

    /// As published: sharpness 1, and every batch as deep as is in time for its own oldest request. Empty queues are passed
    /// over and the exit is chosen for the batch that runs, in which the published code errs.
    pub const fn published() -> Self {
        Self {
            sharpness: 1.0,
            plan: None,
            urgency: Vec::new(),
        }
    }

    /// How urgent everything is after the next batch of a model.
    fn score(&self, now: Duration, backlog: &Backlog, model: usize, exit: usize) -> f64 {
        let batch = backlog.batch(model);
        // With several servers the next one is free so much sooner.
        let seconds = backlog.seconds(model, exit, batch) / backlog.servers() as f64;
        let after = |(other, urgency): (usize, &Urgency)| {
            let gone = if other == model { batch } else { 0 };
            urgency.after(now, seconds, gone)
        };
        self.urgency.iter().enumerate().map(after).sum()
    }

    fn exit(&self, now: Duration, backlog: &Backlog, model: usize) -> usize {
        let in_time = backlog.deepest_in_time(now, model, backlog.batch(model));
        let planned = self.plan.as_ref().map_or(usize::MAX, |plan| plan.exits[model]);
        in_time.unwrap_or(0).min(planned)
    }
}

impl Serve for EdgeServing {
    fn choose(&mut self, now: Duration, backlog: &Backlog) -> Option<Choice> {
        let urgent = backlog.most_urgent()?;
        let in_danger = self.plan.as_mut().is_none_or(|plan| plan.make(now, backlog));
        let model = if in_danger {
            self.urgency.iter_mut().for_each(|urgency| urgency.settle(now));
            let score = |model| {
                (
                    self.score(now, backlog, model, self.exit(now, backlog, model)),
                    model,
                )
            };
            let scores = backlog.waiting_models().map(score);
            scores
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .map(|(_, model)| model)?
        } else {
            urgent
        };
        Some(Choice::Run {
            model,
            exit: self.exit(now, backlog, model),
            batch: backlog.batch(model),
        })
    }

    fn arrived(&mut self, backlog: &Backlog, model: usize, at: Duration) {
        let models = backlog.models();
        let more = models.iter().skip(self.urgency.len());
        let more = more.map(|model| Urgency::new(model.slo(), self.sharpness));
        self.urgency.extend(more);
        if backlog.len(model) == 1 {
            // Since nothing waited, it may have become another model.
            self.urgency[model].restart(models[model].slo());
        }
        self.urgency[model].arrived(at);
    }

    fn left(&mut self, _backlog: &Backlog, model: usize, count: usize) {
        self.urgency[model].left(count);
    }
}
