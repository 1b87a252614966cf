use super::choose::Chooser;
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_sched::select::Call;
use karman_types::TaskId;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// A run under way, by those who choose for it: each counts it until this is dropped, when the run has ended or goes on elsewhere,
/// and is then told what its calls took.
pub(super) struct Served {
    tasks: Arc<Inner>,
    run: TaskId,
    begun: Instant,
    by: Mutex<Vec<(Arc<Chooser>, Vec<Call>)>>,
}

impl Served {
    pub(super) fn of(tasks: &Arc<Inner>, run: TaskId) -> Self {
        Self {
            tasks: tasks.clone(),
            run,
            begun: Instant::now(),
            by: Mutex::default(),
        }
    }

    /// The run.
    pub(super) const fn run(&self) -> TaskId {
        self.run
    }

    /// This one chooses for it, too.
    pub(super) fn chosen_by(&self, chooser: &Arc<Chooser>) {
        let mut by = self.by.lock();
        if !by.iter().any(|(known, _)| Arc::ptr_eq(known, chooser)) {
            chooser.enter(self.run);
            by.push((chooser.clone(), Vec::new()));
        }
    }

    /// Money for all calls so far.
    pub(super) fn cost(&self) -> f64 {
        let by = self.by.lock();
        by.iter().flat_map(|(_, calls)| calls).map(|call| call.cost).sum()
    }

    /// A call that this one chose has ended.
    pub(super) fn add(&self, chooser: &Arc<Chooser>, call: Call) {
        self.chosen_by(chooser);
        let mut by = self.by.lock();
        let of = by.iter_mut().find(|(known, _)| Arc::ptr_eq(known, chooser));
        if let Some((_, calls)) = of {
            calls.push(call);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let (run, latency) = (self.run, self.begun.elapsed());
        for (chooser, calls) in std::mem::take(self.by.get_mut()) {
            chooser.leave(run);
            if calls.is_empty() {
                continue;
            }
            let tasks = self.tasks.clone();
            if !chooser.is_brought() {
                chooser.report(&tasks, run, latency, calls);
                continue;
            }
            self.tasks.threads.spawn(async move {
                let turn = chooser.turn().await;
                let report = move || {
                    chooser.report(&tasks, run, latency, calls);
                    drop(turn);
                    Ok(())
                };
                if let Err(error) = blocking(report).await {
                    tracing::error!(%run, %error, "what became of a run is not taken in");
                }
            });
        }
    }
}
