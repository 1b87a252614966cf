//! Probes that are under way. Several models may want to know how fast the same link is, often at the same moment: one of them asks, and the
//! answer is for all. Their own ones would slow each other down, most of all when an outage ends that has held them up.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use karman_types::{NodeId, TaskError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How old one may be that somebody else waits for as well. After that it may be lost, or its connection be slow to try again.
const RECENT: Duration = Duration::from_secs(2);

/// What a probe has found.
#[derive(Clone, Copy, Debug)]
pub(in crate::drive) struct Probed {
    /// Its size.
    pub(in crate::drive) bytes: u64,
    /// Until an empty answer to it was here.
    pub(in crate::drive) took: Duration,
}

/// A probe that several may wait for. It ends when nobody does.
pub(in crate::drive) type Probing = Shared<BoxFuture<'static, Result<Probed, TaskError>>>;

/// The latest probe to each node, while somebody waits for it.
#[derive(Default)]
pub(super) struct Probes(Mutex<HashMap<NodeId, UnderWay>>);

struct UnderWay {
    bytes: u64,
    since: Instant,
    probing: WeakShared<BoxFuture<'static, Result<Probed, TaskError>>>,
}

impl Probes {
    /// The probe of about this size that is under way to a node, or a new one that this begins.
    pub(super) fn join(
        &self,
        to: NodeId,
        bytes: u64,
        begin: impl FnOnce() -> BoxFuture<'static, Result<Probed, TaskError>>,
    ) -> Probing {
        let mut latest = self.0.lock();
        latest.retain(|_, one| one.probing.upgrade().is_some());
        let known = latest.get(&to).filter(|one| {
            let is_recent = one.since.elapsed() < RECENT;
            is_recent && (one.bytes / 2..=one.bytes.saturating_mul(2)).contains(&bytes)
        });
        let probing = known.and_then(|one| one.probing.upgrade());
        // One that has ended tells of what was.
        if let Some(probing) = probing.filter(|probing| probing.peek().is_none()) {
            return probing;
        }
        let probing = begin().shared();
        if let Some(weak) = probing.downgrade() {
            let one = UnderWay {
                bytes,
                since: Instant::now(),
                probing: weak,
            };
            latest.insert(to, one);
        }
        probing
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn who_asks_while_another_waits_gets_the_same_answer() {
        let (probes, to) = (Probes::default(), NodeId::of_key(&[1; 32]));
        let took = Duration::from_millis(5);
        let (tell, told) = oneshot::channel::<()>();
        let first = probes.join(to, 2048, || {
            async move {
                let _ = told.await;
                Ok(Probed { bytes: 2048, took })
            }
            .boxed()
        });
        let nothing = || panic!("one is under way");
        let second = probes.join(to, 3000, nothing);
        let new = |bytes| {
            let probed = Probed { bytes, took };
            move || futures::future::ready(Ok(probed)).boxed()
        };
        let elsewhere = probes.join(NodeId::of_key(&[2; 32]), 2048, new(1));
        assert_eq!(elsewhere.await.unwrap().bytes, 1);
        tell.send(()).unwrap();
        assert_eq!(first.clone().await.unwrap().bytes, 2048);
        assert_eq!(second.await.unwrap().bytes, 2048);
        // It has ended.
        assert_eq!(probes.join(to, 2048, new(2)).await.unwrap().bytes, 2);
    }

    #[tokio::test]
    async fn nobody_waits_for_a_probe_of_another_size_or_that_was_given_up() {
        let (probes, to) = (Probes::default(), NodeId::of_key(&[1; 32]));
        let never = || futures::future::pending().boxed();
        let small = probes.join(to, 2048, never);
        let large = probes.join(to, 32_768, never);
        assert!(!small.ptr_eq(&large));
        assert!(probes.join(to, 20_000, never).ptr_eq(&large));
        drop(large);
        let next = probes.join(to, 32_768, || {
            let probed = Probed {
                bytes: 3,
                took: RECENT,
            };
            futures::future::ready(Ok(probed)).boxed()
        });
        assert_eq!(next.await.unwrap().bytes, 3);
    }
}
