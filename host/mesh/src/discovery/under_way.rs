//! Searches of the DHT that are under way. Tasks that wait for a provider look for one again at the same moment: those that wait for
//! the same share a search.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use libp2p::PeerId;
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet};

/// A search, and whom it finds.
pub(super) type Search = BoxFuture<'static, HashSet<PeerId>>;

/// The searches that are under way, by task. One that nobody waits for any more is over.
#[derive(Default)]
pub(super) struct UnderWay(Mutex<HashMap<String, WeakShared<Search>>>);

impl UnderWay {
    /// The search for this task, a new one if there is none.
    pub(super) fn search(&self, task: &str, begin: impl FnOnce() -> Search) -> Shared<Search> {
        let mut under_way = self.0.lock();
        if let Some(search) = under_way.get(task).and_then(WeakShared::upgrade) {
            return search;
        }
        under_way.retain(|_, search| search.upgrade().is_some());
        let search = begin().shared();
        under_way.extend(search.downgrade().map(|search| (task.to_owned(), search)));
        search
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn all_that_wait_for_one_task_share_a_search() {
        let (under_way, begun, found) = (UnderWay::default(), Cell::new(0), PeerId::random());
        let (tell, told) = oneshot::channel();
        let mut answers = vec![told];
        let mut search = |task| {
            let begin = || {
                begun.set(begun.get() + 1);
                let answer = answers.pop();
                async move {
                    match answer {
                        Some(answer) => HashSet::from([answer.await.unwrap()]),
                        None => HashSet::new(),
                    }
                }
                .boxed()
            };
            under_way.search(task, begin)
        };
        let waiting = [(); 3].map(|()| search("vision"));
        assert_eq!(begun.get(), 1);
        assert!(search("echo").await.is_empty());
        assert_eq!(begun.get(), 2);
        tell.send(found).unwrap();
        for search in waiting {
            assert_eq!(search.await, HashSet::from([found]));
        }
        // What was found is not used again here, and nothing of it is kept.
        assert!(search("vision").await.is_empty());
        assert_eq!((begun.get(), under_way.0.lock().len()), (3, 1));
        // One that is given up is begun anew.
        drop(search("echo"));
        drop(search("echo"));
        assert_eq!(begun.get(), 5);
    }
}
