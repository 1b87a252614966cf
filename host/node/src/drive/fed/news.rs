//! What has happened in federated runs since somebody looked last: who looks every few seconds is told what is new, and of what stayed
//! as it was nothing is copied or read again.

use super::record::{FedStatus, Record, status_of};
use crate::node::Node;
use crate::services::blocking;
use karman_store::Store;
use karman_types::TaskError;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};

/// One way of a run through this process: a run that is driven anew begins another one, though its name stays.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Life(u64);

/// Runs that nobody drives, with their events, as they were read: nothing changes them while this node holds its folder.
pub(super) type AtRest = Mutex<BTreeMap<String, (Life, FedStatus)>>;

/// How much of a run somebody knows. [`Node::fed_news`] gives it and takes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct FedSeen {
    life: Life,
    events: usize,
}

/// What there is to know of a run beyond that.
#[derive(Clone, Debug)]
pub struct FedNews {
    /// Whether all of its events are told that are kept: nothing that was known before holds.
    pub anew: bool,
    /// What is known with this.
    pub seen: FedSeen,
    /// The run, with the events that are news.
    pub run: FedStatus,
}

impl Life {
    /// One that no other has, in all likelihood.
    pub(super) fn begins() -> Self {
        Self(fastrand::u64(..))
    }
}

impl FedNews {
    /// Of a run with all of its events, for somebody who has seen so much of it.
    pub(super) fn of(run: &FedStatus, life: Life, seen: Option<FedSeen>) -> Self {
        let known = seen.filter(|seen| seen.life == life && seen.events <= run.events);
        Self {
            anew: known.is_none(),
            seen: FedSeen {
                life,
                events: run.events,
            },
            run: run.since(known.map_or(0, |known| known.events)),
        }
    }
}

impl Node {
    /// The federated runs of this node, those that are driven first, then by name, `most` of them; of each what is not in `seen`.
    ///
    /// # Errors
    /// What the disk refuses.
    pub async fn fed_news(
        &self,
        seen: BTreeMap<String, FedSeen>,
        most: usize,
    ) -> Result<Vec<FedNews>, TaskError> {
        let node = self.clone();
        blocking(move || {
            let store = node.runtime().home().store()?;
            let mut names = Record::names(&store)?;
            let driven = node.driven_runs();
            // The sort is stable, and the names are in their order.
            names.sort_by_key(|name| !driven.contains(name));
            names.truncate(most);
            // One that is removed meanwhile is left out.
            let news = |name: &String| {
                let seen = seen.get(name).copied();
                let news = node.told(&store, name, |run, life| FedNews::of(run, life, seen));
                news.transpose()
            };
            names.iter().filter_map(news).collect()
        })
        .await
    }

    fn driven_runs(&self) -> BTreeSet<String> {
        let runs = self.federated().runs.lock();
        let driven = runs.iter().filter(|(_, handle)| handle.is_running());
        driven.map(|(name, _)| name.clone()).collect()
    }

    /// Something of a run with all of its events that are kept; nothing where there is none of this name. Blocks.
    pub(super) fn told<T>(
        &self,
        store: &Store,
        name: &str,
        tell: impl FnOnce(&FedStatus, Life) -> T,
    ) -> Result<Option<T>, TaskError> {
        let federated = self.federated();
        let driven = federated.runs.lock().get(name).cloned();
        if let Some(handle) = driven {
            return Ok(Some(handle.told(tell)));
        }
        if let Some((life, run)) = federated.at_rest.lock().get(name) {
            return Ok(Some(tell(run, *life)));
        }
        // Its record holds a whole model, which takes a while to read.
        let Some(run) = status_of(store, name, 0)? else {
            return Ok(None);
        };
        let life = Life::begins();
        let told = tell(&run, life);
        federated.at_rest.lock().insert(name.to_owned(), (life, run));
        Ok(Some(told))
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::FedForgotten;
    use super::super::record::FedEvent;
    use super::*;

    fn run(events: u64) -> FedStatus {
        let log: Vec<FedEvent> = (1..=events)
            .map(|round| FedEvent::Failed {
                round,
                why: "too few".into(),
            })
            .collect();
        FedStatus {
            name: "digits".into(),
            status: None,
            running: true,
            members: Vec::new(),
            events: log.len(),
            forgotten: FedForgotten::default(),
            log,
        }
    }

    #[test]
    fn who_looks_again_is_told_what_is_new() {
        let life = Life(1);
        let first = FedNews::of(&run(2), life, None);
        assert!(first.anew && first.run.log == run(2).log);
        let again = FedNews::of(&run(2), life, Some(first.seen));
        assert!(!again.anew && again.run.log.is_empty());
        let later = FedNews::of(&run(5), life, Some(again.seen));
        assert!(!later.anew && later.run.log == run(5).log[2..]);
        assert_eq!((later.run.events, later.seen.events), (5, 5));
    }

    #[test]
    fn a_run_that_is_driven_anew_is_told_from_its_beginning() {
        let before = FedNews::of(&run(5), Life(1), None).seen;
        // It goes on from what was on the disk; or it is another one of the same name, and longer already.
        for events in [3, 8] {
            let anew = FedNews::of(&run(events), Life(2), Some(before));
            assert!(anew.anew && anew.run.log == run(events).log, "{events}");
        }
    }
}
