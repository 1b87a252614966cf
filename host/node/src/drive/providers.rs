//! Where an attempt at an accepted task can run.

use super::tasks::Inner;
use super::{away, flow, model_tasks};
use karman_mesh::{Mesh, Provider};
use karman_types::{NodeId, TaskId};

/// Nodes that could run the task, the best first: this one where it can, else those of the mesh in the order of its policy;
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
        decide(tasks, task, &later);
        return later;
    }
    if runs_here(tasks, name) {
        nodes.push(here);
    }
    if let Some(mesh) = tasks.mesh.get()
        && (nodes.is_empty() || avoid.contains(&here))
    {
        let found = in_reach(mesh, name).await;
        for provider in tasks.routes.of_task(mesh, (name, task), found, avoid) {
            nodes.push(provider.offer.node);
            tasks.providers.lock().insert(provider.offer.node, provider);
        }
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
    tasks.plugins.find(name).is_ok() || model_tasks::find(&tasks.runtime, name).is_some()
}
