//! Hints to names of tasks that nobody in reach offers.

use super::tasks::Inner;
use karman_mesh::Mesh;
use karman_types::{Offer, nearest};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long hints to tasks that nobody offers go by the same names.
const GATHERED_FOR: Duration = Duration::from_secs(5);

/// Why a task waits that nobody offers: the node that does is away, or another name may be meant.
pub(super) fn nobody_offers(tasks: &Inner, name: &str) -> String {
    tasks.names.nobody_offers(name, Instant::now(), || {
        let mut names = BTreeSet::new();
        for plugin in tasks.plugins.all() {
            let manifest = plugin.manifest();
            names.insert(manifest.name.clone());
            names.extend(manifest.capability_name());
        }
        let peers = tasks.mesh.get().map(Mesh::peers).unwrap_or_default();
        let offers = peers.into_iter().filter_map(|peer| Some(peer.offer?.0));
        (names, offers.collect())
    })
}

/// What is known to be offered anywhere, in reach or not, and what was said of names that nobody in reach offers. It holds for a while:
/// tasks that wait look for a provider at once and again, and in a large mesh there are very many names.
#[derive(Default)]
pub(super) struct KnownNames(Mutex<Option<Names>>);

struct Names {
    gathered: Instant,
    offers: Vec<Arc<Offer>>,
    /// Those of all offers, and of this node.
    all: BTreeSet<String>,
    said: HashMap<String, String>,
}

impl KnownNames {
    /// `gather` gives the names of this node, and the offers of the others.
    fn nobody_offers(
        &self,
        name: &str,
        now: Instant,
        gather: impl FnOnce() -> (BTreeSet<String>, Vec<Arc<Offer>>),
    ) -> String {
        let mut known = self.0.lock();
        let known = match &mut *known {
            Some(known) if now.saturating_duration_since(known.gathered) < GATHERED_FOR => known,
            known => known.insert(Names::new(now, gather())),
        };
        if let Some(said) = known.said.get(name) {
            return said.clone();
        }
        let said = known.of(name);
        known.said.insert(name.to_owned(), said.clone());
        said
    }
}

impl Names {
    fn new(gathered: Instant, (mut all, offers): (BTreeSet<String>, Vec<Arc<Offer>>)) -> Self {
        let tasks = offers.iter().flat_map(|offer| &offer.tasks);
        all.extend(tasks.map(|task| task.name.clone()));
        Self {
            gathered,
            offers,
            all,
            said: HashMap::new(),
        }
    }

    fn of(&self, name: &str) -> String {
        let mut offers = self.offers.iter();
        if let Some(offer) = offers.find(|offer| offer.runs(name).is_some()) {
            let away = offer.node.short();
            return format!("no node in reach offers `{name}`: node {away}, which does, is not there now");
        }
        let meant = nearest(name, self.all.iter().map(String::as_str));
        let meant = meant.map_or_else(String::new, |meant| format!("; did you mean `{meant}`?"));
        format!("no node in reach offers `{name}`{meant}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::{Digest, NodeId, OfferedTask, Tier};

    #[test]
    fn names_are_gathered_once_for_all_that_wait() {
        let (names, start) = (KnownNames::default(), Instant::now());
        let roads = OfferedTask {
            name: "vision/roads".into(),
            version: semver::Version::new(1, 0, 0),
            id: Digest::of(b"a file"),
        };
        let away = Arc::new(Offer {
            node: NodeId::of_key(b"away"),
            tier: Tier::Edge,
            cores: 1,
            memory: 0,
            tasks: vec![roads],
            models: Vec::new(),
        });
        let mut gathered = 0;
        let mut says = |name: &str, now| {
            names.nobody_offers(name, now, || {
                gathered += 1;
                (BTreeSet::from(["classify".to_owned()]), vec![away.clone()])
            })
        };
        let hint = says("clasify", start);
        assert!(hint.ends_with("did you mean `classify`?"), "{hint}");
        assert_eq!(says("clasify", start), hint);
        assert!(says("vision", start).contains(&away.node.short()));
        assert!(says("vision/road", start).contains("`vision/roads`?"));
        says("clasify", start + GATHERED_FOR);
        assert_eq!(gathered, 2);
    }
}
