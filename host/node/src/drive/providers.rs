//! Where an attempt at an accepted task can run.

use super::own_task::OwnTask;
use super::tasks::Inner;
use super::{away, flow};
use karman_mesh::{Mesh, Provider};
use karman_types::{NodeId, TaskId};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a provider that was found is known. An attempt begins there at once, or when the keepers have written down that it will.
const KNOWN_FOR: Duration = Duration::from_secs(600);

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

/// Whether this node runs the task itself.
pub(super) fn runs_here(tasks: &Inner, name: &str) -> bool {
    OwnTask::find(&tasks.plugins, name).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_mesh::PeerId;
    use karman_types::{Offer, Tier};

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
