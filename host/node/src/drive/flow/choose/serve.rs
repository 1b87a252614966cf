//! One attempt at a task, by who is chosen for it.

use super::super::implementations::{call, within};
use super::super::json;
use super::super::served::Served;
use super::super::step::Came;
use super::{Choice, Chooser, MOST_TRIES};
use crate::drive::tasks::Inner;
use karman_sched::flow;
use karman_types::{DataContract, ErrorKind};
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::watch;

impl Chooser {
    /// Runs an attempt on the chosen node; on another one where that cannot be reached. Nothing when it was stopped.
    pub(in crate::drive::flow) async fn serve(
        self: &Arc<Self>,
        tasks: &Arc<Inner>,
        (served, attempt): (&Served, &flow::Call),
        outputs: &DataContract,
        stopped: &mut watch::Receiver<bool>,
    ) -> Came {
        let Some(task) = self.places.get(&attempt.attempt.of.task).copied() else {
            return Came::Nothing;
        };
        let (run, begun) = (served.run(), Instant::now());
        // Who is chosen is called: a policy counts on that.
        let request = match json::request(&attempt.input, &attempt.with) {
            Ok(request) => request,
            Err(error) => return error.into(),
        };
        served.chosen_by(self);
        for tried in 1.. {
            let left = || {
                attempt
                    .within
                    .map(|within| within.saturating_sub(begun.elapsed()))
            };
            let chosen = tokio::select! {
                chosen = self.choose(tasks, (run, task), left()) => chosen,
                // Nobody was called, so nobody is late.
                _ = stopped.wait_for(|stopped| *stopped) => return Came::Nothing,
            };
            let Choice {
                candidate,
                implementation,
                ..
            } = match chosen {
                Ok(choice) => choice,
                Err(error) => return error.into(),
            };
            let request = request.clone();
            let calling = served.begins(self, (task, candidate), &implementation);
            let answered = tokio::select! {
                answered = call(tasks, &implementation.binding, request, run, left()) => answered,
                _ = stopped.wait_for(|stopped| *stopped) => {
                    // It did not answer in the time of the attempt; the next one asks another.
                    self.failed((task, candidate), ErrorKind::Deadline);
                    return Came::Nothing;
                }
            };
            let came = match answered.map(|response| Came::of(&response)) {
                Ok(Came::Answer(output)) => Came::Answer(output.map(|output| within(outputs, output))),
                Ok(came) => came,
                Err(error) => error.into(),
            };
            let error = match &came {
                Came::Answer(Ok(_)) | Came::Nothing => None,
                Came::Answer(Err(error)) => Some(error.kind),
                Came::Garbled(_) => Some(ErrorKind::Failed),
            };
            calling.ended(error);
            if error != Some(ErrorKind::Unavailable) || tried >= MOST_TRIES {
                return came;
            }
        }
        Came::Nothing
    }
}
