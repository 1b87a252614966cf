//! Looks at what is far away, shared: however many follow a run that others coordinate, the keepers are asked by one of them.

use karman_types::{TaskError, TaskId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// What those see who look at the same run, by run. It is forgotten when nobody looks any more.
pub(super) struct Looks<T>(Mutex<HashMap<TaskId, Weak<Look<T>>>>);

/// What all see who look at one run.
pub(super) struct Look<T>(tokio::sync::Mutex<Option<Sight<T>>>);

/// What was seen, and when.
struct Sight<T> {
    at: Instant,
    seen: Result<Arc<T>, TaskError>,
}

impl<T> Default for Looks<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> Looks<T> {
    /// The look at this run, for one more.
    pub(super) fn at(&self, run: TaskId) -> Arc<Look<T>> {
        let mut looks = self.0.lock();
        if let Some(look) = looks.get(&run).and_then(Weak::upgrade) {
            return look;
        }
        looks.retain(|_, look| look.strong_count() > 0);
        let look = Arc::new(Look(tokio::sync::Mutex::default()));
        looks.insert(run, Arc::downgrade(&look));
        look
    }
}

impl<T> Look<T> {
    /// What was seen, where that is not older than this; else what is seen now, which those who come meanwhile wait for. And how long it
    /// is not.
    pub(super) async fn see(
        &self,
        fresh: Duration,
        look: impl Future<Output = Result<T, TaskError>>,
    ) -> (Result<Arc<T>, TaskError>, Duration) {
        let mut last = self.0.lock().await;
        if let Some(sight) = &*last
            && let Some(left) = fresh
                .checked_sub(sight.at.elapsed())
                .filter(|left| !left.is_zero())
        {
            return (sight.seen.clone(), left);
        }
        let seen = look.await.map(Arc::new);
        *last = Some(Sight {
            at: Instant::now(),
            seen: seen.clone(),
        });
        (seen, fresh)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const LONG: Duration = Duration::from_secs(3600);

    fn run(number: u128) -> TaskId {
        TaskId::from_parts(1, number)
    }

    #[tokio::test]
    async fn however_many_look_at_a_run_one_of_them_asks() {
        let (looks, asked) = (Looks::default(), AtomicUsize::new(0));
        let ask = || async {
            tokio::task::yield_now().await;
            Ok::<_, TaskError>(asked.fetch_add(1, Ordering::Relaxed) + 1)
        };
        let all: Vec<_> = (0..50).map(|_| looks.at(run(1))).collect();
        let seen = join_all(all.iter().map(|look| look.see(LONG, ask()))).await;
        assert!(
            seen.iter()
                .all(|(seen, left)| *seen == Ok(Arc::new(1)) && *left <= LONG)
        );
        // Another run is another question, and what is no longer fresh is asked again.
        assert_eq!(looks.at(run(2)).see(LONG, ask()).await.0, Ok(Arc::new(2)));
        assert_eq!(all[0].see(Duration::ZERO, ask()).await.0, Ok(Arc::new(3)));
        assert_eq!(all[1].see(LONG, ask()).await.0, Ok(Arc::new(3)));
        // Whom nobody answers is told so with all others.
        let fails = || async { Err::<usize, _>(TaskError::unavailable("no majority")) };
        assert!(all[2].see(Duration::ZERO, fails()).await.0.is_err());
        assert!(all[3].see(LONG, ask()).await.0.is_err());
        drop(all);
        assert_eq!(looks.at(run(1)).see(LONG, ask()).await.0, Ok(Arc::new(4)));
        assert_eq!(looks.0.lock().len(), 1, "what nobody looks at is forgotten");
    }

    #[tokio::test]
    async fn who_goes_away_while_it_asks_keeps_nobody_waiting() {
        let look = Looks::default().at(run(1));
        let never = look.see(LONG, std::future::pending());
        assert!(futures::FutureExt::now_or_never(never).is_none());
        assert_eq!(look.see(LONG, async { Ok(7) }).await.0, Ok(Arc::new(7)));
    }
}
