//! Nodes out of sight. An idle connection ends, and a policy leaves out nodes that are not connected: so they are looked for, in the
//! background, and before a request is told that no node is there.

use super::implementations::reaches;
use crate::drive::tasks::Inner;
use karman_mesh::Mesh;
use karman_types::{Binding, ErrorKind, NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How long one that was looked for is left alone: it may be gone.
const AGAIN: Duration = Duration::from_secs(30);
/// How long after it was looked for it is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often to see whether it is there, where nobody tells.
const LOOK: Duration = Duration::from_millis(100);

/// Those whom a policy may choose and who were not there. Whether one is there is true of all tasks; whom a task waits for is not.
#[derive(Default)]
pub(super) struct Lost(Mutex<HashMap<NodeId, Sought>>);

struct Sought {
    since: Instant,
    /// The tasks that wait for it, by their places.
    by: HashSet<usize>,
}

impl Lost {
    /// Whether an implementation of a task cannot be called now. If that is because its node is out of sight, it is looked for.
    pub(super) fn has(&self, tasks: &Inner, task: usize, binding: &Binding) -> bool {
        if reaches(tasks, binding) {
            return false;
        }
        if let (Binding::Remote { node, .. }, Some(mesh)) = (binding, tasks.mesh.get())
            && self.begins(*node, task, Instant::now())
        {
            tasks.threads.spawn(meet(mesh.clone(), *node));
        }
        true
    }

    /// Waits until one of those may be there that the task waits for, no longer than until then. False where none was looked for lately.
    pub(super) async fn may_be_back(&self, tasks: &Inner, task: usize, until: Option<Instant>) -> bool {
        let now = Instant::now();
        let most = until.map_or(LOOK, |until| until.saturating_duration_since(now).min(LOOK));
        let (Some(mesh), Some(left)) = (tasks.mesh.get(), self.left(task, now)) else {
            return false;
        };
        let mut arrivals = mesh.arrivals();
        // A node that came before this began to listen is seen in any case.
        let _ = timeout(left.min(most), arrivals.changed()).await;
        !most.is_zero()
    }

    /// Whether it is to be looked for now; the task waits for it in any case.
    fn begins(&self, node: NodeId, task: usize, now: Instant) -> bool {
        let mut all = self.0.lock();
        all.retain(|_, sought| now.duration_since(sought.since) < AGAIN);
        match all.entry(node) {
            Entry::Occupied(mut sought) => {
                sought.get_mut().by.insert(task);
                false
            }
            Entry::Vacant(place) => {
                let by = HashSet::from([task]);
                place.insert(Sought { since: now, by });
                true
            }
        }
    }

    /// How long the last of them is still waited for by the task.
    fn left(&self, task: usize, now: Instant) -> Option<Duration> {
        let all = self.0.lock();
        let awaited = all.values().filter(|sought| sought.by.contains(&task));
        let last = awaited.map(|sought| sought.since).max()?;
        let left = PATIENCE.saturating_sub(now.duration_since(last));
        (!left.is_zero()).then_some(left)
    }
}

/// Whether nobody was chosen because nobody is there. What else goes wrong is not mended by waiting.
pub(super) fn is_nobody_there(error: &TaskError) -> bool {
    error.kind == ErrorKind::Unavailable
}

async fn meet(mesh: Mesh, node: NodeId) {
    let met = match mesh.node(node).await {
        Some(peer) => {
            // Wherever it ever was: it may have moved since.
            mesh.connect(peer).await;
            mesh.reach(peer).await.is_ok()
        }
        None => false,
    };
    // Once in half a minute at most: that is why a run waits.
    tracing::info!(%node, met, "a node out of sight was looked for");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_fails_is_not_asked_again_because_somebody_may_come_back() {
        assert!(is_nobody_there(&TaskError::unavailable(
            "none of them can be reached"
        )));
        assert!(!is_nobody_there(&TaskError::internal(
            "a step of the host failed"
        )));
    }

    #[test]
    fn one_that_is_looked_for_is_waited_for_and_then_left_alone_for_a_while() {
        let (lost, node) = (Lost::default(), NodeId::of_key(b"other"));
        let now = Instant::now();
        let (first, second) = (0, 1);
        assert_eq!(lost.left(first, now), None);
        assert!(lost.begins(node, first, now));
        assert_eq!(lost.left(first, now), Some(PATIENCE));
        assert_eq!(lost.left(first, now + PATIENCE), None);
        // Who can do without it does not wait for it, and who cannot does not look for it once more.
        assert_eq!(lost.left(second, now), None);
        assert!(!lost.begins(node, second, now + PATIENCE / 2));
        assert_eq!(lost.left(second, now + PATIENCE / 2), Some(PATIENCE / 2));
        assert!(!lost.begins(node, first, now + AGAIN / 2));
        assert!(lost.begins(node, first, now + AGAIN));
    }
}
