//! Who waits for the end of which task: an end wakes those that it concerns, however many wait for others.

use karman_types::TaskId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::Notify;

/// Those who wait, by task.
#[derive(Default)]
pub(in crate::drive) struct Ends(Mutex<HashMap<TaskId, Arc<Notify>>>);

/// Somebody who waits for the end of a task.
pub(in crate::drive) struct Waiting<'a> {
    ends: &'a Ends,
    task: TaskId,
    end: Arc<Notify>,
}

impl Ends {
    /// Begins to wait for the end of a task. Whether it has ended is looked for after the [future](Waiting::end) is enabled.
    pub(in crate::drive) fn of(&self, task: TaskId) -> Waiting<'_> {
        let end = self.0.lock().entry(task).or_default().clone();
        Waiting {
            ends: self,
            task,
            end,
        }
    }

    /// The task has ended, or has another owner.
    pub(super) fn tell(&self, task: TaskId) {
        if let Some(end) = self.0.lock().get(&task) {
            end.notify_waiters();
        }
    }
}

impl Waiting<'_> {
    pub(in crate::drive) const fn end(&self) -> &Arc<Notify> {
        &self.end
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut waiting = self.ends.0.lock();
        // The table has one, and this is the other.
        if Arc::strong_count(&self.end) == 2 {
            waiting.remove(&self.task);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn an_end_wakes_all_who_wait_for_it_and_nobody_else() {
        let ends = Ends::default();
        let [first, second] = [1, 2].map(|number| TaskId::from_parts(0, number));
        let waiting = [first, first, second].map(|task| ends.of(task));
        let mut ended = waiting.each_ref().map(|waits| Box::pin(waits.end().notified()));
        for end in &mut ended {
            end.as_mut().enable();
        }
        ends.tell(first);
        let woken = ended.each_mut().map(|end| end.now_or_never().is_some());
        assert_eq!(woken, [true, true, false]);
    }

    #[test]
    fn nothing_is_left_of_those_who_wait_no_more() {
        let ends = Ends::default();
        let task = TaskId::from_parts(0, 1);
        let (one, other) = (ends.of(task), ends.of(task));
        drop(one);
        assert_eq!(ends.0.lock().len(), 1);
        drop(other);
        ends.tell(task);
        assert!(ends.0.lock().is_empty());
    }
}
