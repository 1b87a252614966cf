#[cfg(test)]
mod tests;

use super::Backlog;
use std::time::Duration;

/// How deep each model may go so that everything that waits is answered in time, if it is answered in the order of deadlines.
///
/// All begin at their deepest exit. While a planned batch would end too late, one of the models up to it goes one exit
/// shallower: the one that loses the least accuracy for the time it gains. A batch that stays too late with the shallowest
/// exits of all takes its time, and those after it are planned for. Each batch goes to the server that is free first, as if all were now.
/// It costs the number of batches for each step taken back.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// The deepest exit of each model.
    pub(super) exits: Vec<usize>,
    /// When the oldest of each batch is due, in seconds from now; of which model, how many.
    batches: Vec<(f64, usize, usize)>,
    /// Of each model, whether there was a batch of it so far.
    planned: Vec<bool>,
    /// When each server is free, in seconds from now.
    free_at: Vec<f64>,
    /// How often a batch was looked at.
    #[cfg(test)]
    looks: usize,
}

impl Plan {
    /// Makes the plan; whether some model has to stay above its deepest exit.
    pub(super) fn make(&mut self, now: Duration, backlog: &Backlog) -> bool {
        self.list_batches(now, backlog);
        self.exits.clear();
        self.exits
            .extend(backlog.models().iter().map(|model| model.deepest()));
        let mut constrained = false;
        while let Some(model) = self.too_deep(backlog, &mut constrained) {
            self.exits[model] -= 1;
        }
        constrained
    }

    fn list_batches(&mut self, now: Duration, backlog: &Backlog) {
        self.batches.clear();
        for (model, profile) in backlog.models().iter().enumerate() {
            let waiting = backlog.len(model);
            for (index, at) in backlog.arrived(model).enumerate().step_by(profile.most()) {
                let due = (at + profile.slo()).as_secs_f64() - now.as_secs_f64();
                self.batches
                    .push((due, model, profile.most().min(waiting - index)));
            }
        }
        self.batches
            .sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    /// The model that is to go one exit shallower for the first batch that ends too late, of those for which one can; notes whether there
    /// is any that ends too late.
    fn too_deep(&mut self, backlog: &Backlog, any_late: &mut bool) -> Option<usize> {
        self.planned.clear();
        self.planned.resize(self.exits.len(), false);
        self.free_at.clear();
        self.free_at.resize(backlog.servers(), 0.0);
        for place in 0..self.batches.len() {
            let (due, model, batch) = self.batches[place];
            self.planned[model] = true;
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if self.ends(backlog.seconds(model, self.exits[model], batch)) <= due {
                continue;
            }
            *any_late = true;
            let step = self.cheapest_step(backlog);
            if step.is_some() {
                return step;
            }
        }
        None
    }

    /// When a batch ends that takes so long, on the server that is free first.
    fn ends(&mut self, seconds: f64) -> f64 {
        let first = self.free_at.iter_mut().min_by(|a, b| a.total_cmp(b));
        first.map_or(seconds, |free_at| {
            *free_at += seconds;
            *free_at
        })
    }

    /// The model, of those with a batch so far, that loses the least accuracy for each second gained.
    fn cheapest_step(&self, backlog: &Backlog) -> Option<usize> {
        let price = |model: usize| {
            let (profile, exit) = (&backlog.models()[model], self.exits[model]);
            let shallower = exit.checked_sub(1)?;
            let most = profile.most();
            let gain = profile.seconds(exit, most) - profile.seconds(shallower, most);
            let loss = profile.exits()[exit].accuracy - profile.exits()[shallower].accuracy;
            // A step that gains nothing costs infinitely much, one that loses nothing is free.
            Some(if gain > 0.0 {
                loss.max(0.0) / gain
            } else {
                f64::INFINITY
            })
        };
        let models = (0..self.exits.len()).filter(|model| self.planned[*model]);
        models
            .filter_map(|model| Some((price(model)?, model)))
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .map(|(_, model)| model)
    }
}
