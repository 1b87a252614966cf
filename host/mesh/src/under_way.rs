//! What several wait for at once, and is done once for all of them: tasks that wait for a provider look for one again at the same
//! moment, and calls to one node listen for the same silence.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared, WeakShared};
use parking_lot::Mutex;
use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// What one thing under way comes to.
type Outcome<T> = BoxFuture<'static, T>;

/// What is under way, by what it is about. What nobody waits for any more is over.
pub(crate) struct UnderWay<K, T>(Mutex<HashMap<K, WeakShared<Outcome<T>>>>);

impl<K, T> Default for UnderWay<K, T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash, T: Clone> UnderWay<K, T> {
    /// What is under way about this, begun now if nothing is.
    pub(crate) fn share<Q>(&self, about: &Q, begin: impl FnOnce() -> Outcome<T>) -> Shared<Outcome<T>>
    where
        K: Borrow<Q>,
        Q: Eq + Hash + ToOwned<Owned = K> + ?Sized,
    {
        let mut under_way = self.0.lock();
        if let Some(shared) = under_way.get(about).and_then(WeakShared::upgrade) {
            return shared;
        }
        under_way.retain(|_, shared| shared.upgrade().is_some());
        let shared = begin().shared();
        under_way.extend(shared.downgrade().map(|shared| (about.to_owned(), shared)));
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use libp2p::PeerId;
    use std::cell::Cell;
    use std::collections::HashSet;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn all_that_wait_for_one_task_share_a_search() {
        let under_way = UnderWay::<String, HashSet<PeerId>>::default();
        let (begun, found) = (Cell::new(0), PeerId::random());
        let (tell, told) = oneshot::channel();
        let mut answers = vec![told];
        let mut search = |task: &'static str| {
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
            under_way.share(task, begin)
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
