//! Where an attempt at an accepted task can run.

use super::own_task::OwnTask;
use super::tasks::Inner;
use super::{away, flow};
use karman_mesh::{Mesh, Provider};
use karman_types::{NodeId, Offer, TaskId, nearest};
use parking_lot::Mutex;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a provider that was found is known. An attempt begins there at once, or when the keepers have written down that it will.
const KNOWN_FOR: Duration = Duration::from_secs(600);

/// How long hints to tasks that nobody offers go by the same names.
const GATHERED_FOR: Duration = Duration::from_secs(5);

/// The providers that were found lately: where attempts are placed by the ids of nodes, this is how those are called.
#[derive(Default)]
pub(super) struct FoundLately(Mutex<HashMap<NodeId, (Provider, Instant)>>);

impl FoundLately {
    /// Remembers those that were found now, and forgets who was not found again for long.
    fn note(&self, found: Vec<Provider>, now: Instant) {
        let mut known = self.0.lock();
        known.retain(|_, (_, when)| now.saturating_duration_since(*when) < KNOWN_FOR);
        known.extend(
            found
                .into_iter()
                .map(|provider| (provider.offer.node, (provider, now))),
        );
    }

    /// The provider on this node, as it was found last.
    pub(super) fn get(&self, node: NodeId) -> Option<Provider> {
        let known = self.0.lock();
        known.get(&node).map(|(provider, _)| provider.clone())
    }
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

/// Nodes that could run the task, the best first: this one where it can, else those of the mesh in the order of its policy;
/// where there is none, those that are out of reach and have a planned contact. Where it goes by bundle is decided here. Before all others
/// is the node where a policy places it, if it is a step of a workflow.
pub(super) async fn place(tasks: &Arc<Inner>, task: TaskId, name: &str, avoid: &[NodeId]) -> Vec<NodeId> {
    let here = tasks.runtime.id();
    let mut nodes = Vec::new();
    if flow::is_one(name) {
        return vec![flow::coordinator(here)];
    }
    let mut later: Vec<NodeId> = tasks.away.is_at(task).into_iter().collect();
    // One that is on its way already is waited for, unless this is to be a second one beside it.
    if later.iter().any(|there| !avoid.contains(there)) {
        decide(tasks, task, &later);
        return later;
    }
    let runs_here = runs_here(tasks, name);
    if runs_here {
        nodes.push(here);
    }
    let step = flow::step_of(tasks, task);
    if let Some(mesh) = tasks.mesh.get()
        && (nodes.is_empty() || avoid.contains(&here) || step.is_some())
    {
        let found = in_reach(mesh, name).await;
        let found = tasks.routes.of_task(mesh, (name, task), found, avoid).await;
        nodes.extend(found.iter().map(|provider| provider.offer.node));
        if let Some(step) = step
            && let Some(first) = step
                .first(tasks, (mesh, found.as_slice()), (runs_here, avoid))
                .await
        {
            nodes.sort_by_key(|node| *node != first);
        }
        tasks.providers.note(found, Instant::now());
    }
    // One bundle at a time, also where it is just being sealed.
    if nodes.is_empty() && later.is_empty() && !tasks.away.is_under_way(task) {
        later = away::reached_later(tasks, task, name).await;
    }
    decide(tasks, task, &later);
    nodes.extend(later);
    nodes.sort_by_key(|node| avoid.contains(node));
    nodes
}

/// At these nodes the next attempt goes by bundle.
fn decide(tasks: &Inner, task: TaskId, later: &[NodeId]) {
    tasks.away.decide(task, later.to_vec());
    // It may have ended meanwhile, and nobody else would forget what was decided.
    if !tasks.is_open(task) {
        tasks.away.decide(task, Vec::new());
    }
}

/// The nodes that offer the task and are there: what one has said a moment ago does not say that it still is.
pub(super) async fn in_reach(mesh: &Mesh, name: &str) -> Vec<Provider> {
    let mut providers = mesh.providers(name).await;
    providers.retain(|provider| mesh.is_connected(&provider.id));
    providers
}

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

/// Whether this node runs the task itself.
pub(super) fn runs_here(tasks: &Inner, name: &str) -> bool {
    OwnTask::find(&tasks.plugins, name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_mesh::PeerId;
    use karman_types::{Digest, OfferedTask, Tier};

    fn provider(node: &str) -> Provider {
        let offer = Offer {
            node: NodeId::of_key(node.as_bytes()),
            tier: Tier::Edge,
            cores: 1,
            memory: 0,
            tasks: Vec::new(),
            models: Vec::new(),
        };
        Provider {
            id: PeerId::random(),
            offer: Arc::new(offer),
            busy: 0,
        }
    }

    #[test]
    fn names_are_gathered_once_for_all_that_wait() {
        let (names, start) = (KnownNames::default(), Instant::now());
        let mut away = provider("away").offer;
        Arc::make_mut(&mut away).tasks.push(OfferedTask {
            name: "vision/roads".into(),
            version: semver::Version::new(1, 0, 0),
            id: Digest::of(b"a file"),
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

    #[test]
    fn who_is_not_found_again_is_forgotten() {
        let (known, start) = (FoundLately::default(), Instant::now());
        let [stays, goes] = ["stays", "goes"].map(provider);
        let id = |provider: &Provider| known.get(provider.offer.node).map(|known| known.id);
        known.note(vec![stays.clone(), goes.clone()], start);
        assert_eq!([id(&stays), id(&goes)], [Some(stays.id), Some(goes.id)]);
        // It has another key to be called by now.
        let again = provider("stays");
        known.note(vec![again.clone()], start + KNOWN_FOR);
        assert_eq!([id(&stays), id(&goes)], [Some(again.id), None]);
        assert_eq!(known.0.lock().len(), 1);
    }
}
