//! Where an attempt at an accepted task can run.

use super::dispatch::free_first;
use super::tasks::Inner;
use super::{away, flow, model_tasks};
use karman_types::{NodeId, TaskId};

/// Nodes that could run the task, the best first: this one where it can, else those of the mesh, the nearest with a core free first;
/// where there is none, those that are out of reach and have a planned contact. Where it goes by bundle is decided here.
pub(super) async fn place(tasks: &Inner, task: TaskId, name: &str, avoid: &[NodeId]) -> Vec<NodeId> {
    let here = tasks.runtime.id();
    let mut nodes = Vec::new();
    if flow::is_one(name) {
        return vec![flow::coordinator(here)];
    }
    let mut later: Vec<NodeId> = tasks.away.is_at(task).into_iter().collect();
    // One that is on its way already is waited for, unless this is to be a second one beside it.
    if later.iter().any(|there| !avoid.contains(there)) {
        tasks.away.decide(task, later.clone());
        return later;
    }
    if runs_here(tasks, name) {
        nodes.push(here);
    }
    if let Some(mesh) = tasks.mesh.get()
        && (nodes.is_empty() || avoid.contains(&here))
    {
        for provider in free_first(mesh, mesh.providers(name).await) {
            nodes.push(provider.offer.node);
            tasks.providers.lock().insert(provider.offer.node, provider);
        }
    }
    if nodes.is_empty() && later.is_empty() {
        later = away::reached_later(tasks, task, name).await;
    }
    tasks.away.decide(task, later.clone());
    nodes.extend(later);
    nodes.sort_by_key(|node| avoid.contains(node));
    nodes
}

/// Whether this node runs the task itself.
pub(super) fn runs_here(tasks: &Inner, name: &str) -> bool {
    tasks.plugins.find(name).is_ok() || model_tasks::find(&tasks.runtime, name).is_some()
}
