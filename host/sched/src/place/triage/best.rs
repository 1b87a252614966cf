use crate::place::draft::Draft;
use crate::place::{Job, State};

/// What is left of a job if it had the fastest nodes for itself: no policy does better.
pub(super) struct Best {
    /// For each task the longest way from its start to the end of the job, in seconds.
    ranks: Vec<f64>,
    fastest: f64,
    /// When the job ends.
    pub(super) end: f64,
}

impl Best {
    pub(super) fn of(draft: &Draft<'_>, job: usize, fastest: f64) -> Self {
        let of = &draft.jobs[job];
        let ranks = of.upward_ranks(fastest, f64::INFINITY);
        let end = |task: usize| match of.tasks[task].state {
            State::Done { at, .. } => at,
            State::Placed { finish, .. } | State::Running { finish, .. } => finish,
            State::Waiting => {
                let inputs = of.tasks[task].inputs.iter();
                let known = inputs.filter_map(|input| draft.output(job, input.from?));
                known.map(|(_, at)| at).fold(draft.now, f64::max) + ranks[task]
            }
        };
        let end = (0..of.tasks.len()).map(end).fold(draft.now, f64::max);
        Self { ranks, fastest, end }
    }

    /// Whether the job misses its deadline even so.
    pub(super) fn is_late(&self, job: &Job) -> bool {
        job.deadline.is_some_and(|deadline| self.end > deadline)
    }

    /// Seconds of what comes after a task.
    pub(super) fn after(&self, job: &Job, task: usize) -> f64 {
        self.ranks[task] - job.tasks[task].work / self.fastest
    }

    /// Seconds from the start of a task to the end of the job.
    pub(super) fn from(&self, task: usize) -> f64 {
        self.ranks[task]
    }

    /// Seconds to spare if a task is done then.
    pub(super) fn slack(&self, job: &Job, task: usize, finish: f64) -> f64 {
        job.deadline.unwrap_or(f64::INFINITY) - finish - self.after(job, task)
    }
}
