//! The re-planner of a model: who needs it comes in turn, and keeps no thread from requests meanwhile.

use crate::services::blocking;
use karman_sched::partition::{Partitioner, Plan, Replanner};
use karman_types::TaskError;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};

/// Requests that wait at once to tell what they took. Those after them need not: later ones tell what is true by then.
const MOST_WAITING: usize = 8;

/// A re-planner. To plan takes a tenth of a second on a small board: it is done where threads may be kept.
pub(super) struct Planner<P> {
    replanner: Arc<Mutex<Replanner<P>>>,
    places: Semaphore,
}

impl<P: Partitioner + Send + 'static> Planner<P> {
    pub(super) fn new(replanner: Replanner<P>) -> Self {
        Self {
            replanner: Arc::new(Mutex::new(replanner)),
            places: Semaphore::new(MOST_WAITING),
        }
    }

    /// Does something with it, after all that came before. What has begun is done also where nobody waits for it any more.
    ///
    /// # Errors
    /// Those of `work`, or it broke off.
    pub(super) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Replanner<P>) -> Result<T, TaskError> + Send + 'static,
    ) -> Result<T, TaskError> {
        let mut replanner = self.replanner.clone().lock_owned().await;
        blocking(move || work(&mut replanner)).await
    }

    /// A place among the requests that wait to tell what they took, until it is dropped; nothing where all are taken.
    pub(super) fn place(&self) -> Option<SemaphorePermit<'_>> {
        self.places.try_acquire().ok()
    }

    /// The plan of the moment.
    pub(super) async fn plan(&self) -> Arc<Plan> {
        self.replanner.lock().await.plan().clone()
    }

    /// When it is to look again at the latest.
    pub(super) async fn due(&self) -> Duration {
        self.replanner.lock().await.due()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::join_all;
    use futures::poll;
    use karman_sched::partition::{
        Event, Layer, LayerGraph, Link, Objective, PlanError, Problem, Tier, Tiers, Tuning, Weights,
    };
    use parking_lot::Mutex as Lock;
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::thread::{self, ThreadId};

    /// Notes on which threads it plans.
    #[derive(Clone, Default)]
    struct Noting(Arc<Lock<Vec<ThreadId>>>);

    impl Partitioner for Noting {
        fn name(&self) -> &'static str {
            "noting"
        }

        fn plan(&self, problem: &Problem) -> Result<Plan, PlanError> {
            self.0.lock().push(thread::current().id());
            Tiers.plan(problem)
        }
    }

    fn planner<P: Partitioner + Send + 'static>(policy: P) -> Planner<P> {
        let layers = vec![Layer::measured("a", &[10.0, 1.0], 0, 0)];
        let graph = LayerGraph::chain(layers, 1000, &[1000]).unwrap();
        let link = |from, to| Link {
            from,
            to,
            rate_mbit_s: 20.0,
            latency_ms: 1.0,
            message_ms: 0.0,
        };
        let (tiers, links) = (
            ["edge", "cloud"].map(Tier::new).to_vec(),
            vec![link(0, 1), link(1, 0)],
        );
        let problem = Problem::new(graph, tiers, links, Objective::LATENCY, Weights::Everywhere).unwrap();
        Planner::new(Replanner::new(policy, problem, Tuning::default(), Duration::ZERO).unwrap())
    }

    #[tokio::test]
    async fn no_thread_of_requests_plans() {
        let policy = Noting::default();
        let planner = planner(policy.clone());
        policy.0.lock().clear();
        let tick = |replanner: &mut Replanner<Noting>| {
            let actions = replanner.handle(Duration::from_secs(1), Event::Tick);
            actions.map_err(|error| TaskError::internal(error.to_string()))
        };
        planner.with(tick).await.unwrap();
        let on = policy.0.lock();
        assert!(!on.is_empty() && !on.contains(&thread::current().id()), "{on:?}");
    }

    #[tokio::test]
    async fn who_comes_waits_for_those_before_him_and_keeps_no_thread() {
        let (planner, done) = (planner(Tiers), Arc::new(Lock::new(Vec::new())));
        let (begin, begun) = channel::<()>();
        let plans = planner.with(move |_| {
            let waited = begun.recv_timeout(Duration::from_secs(60));
            waited.map_err(|_| TaskError::deadline("nothing else goes on"))
        });
        let others = (0..4).map(|number| {
            let done = done.clone();
            planner.with(move |_| {
                done.lock().push(number);
                Ok(())
            })
        });
        let (mut plans, mut others) = (pin!(plans), pin!(join_all(others)));
        assert!(poll!(&mut plans).is_pending());
        assert!(poll!(&mut others).is_pending());
        begin.send(()).unwrap();
        assert_eq!(plans.await, Ok(()));
        assert!(others.await.iter().all(Result::is_ok));
        assert_eq!(*done.lock(), [0, 1, 2, 3]);
    }

    #[tokio::test]
    async fn so_many_wait_to_tell_and_no_more() {
        let planner = planner(Tiers);
        let places: Vec<_> = std::iter::from_fn(|| planner.place()).collect();
        assert_eq!(places.len(), MOST_WAITING);
        drop(places);
        assert!(planner.place().is_some());
    }
}
