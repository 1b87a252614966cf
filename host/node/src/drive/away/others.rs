//! A bundle waits for a contact, perhaps for hours. If another node that could run its task comes into reach before it has left, or
//! this node itself is given the task, the bundle is called back, and the task runs there.

use crate::contacts;
use crate::drive::mesh_of;
use crate::drive::providers::{in_reach, runs_here};
use crate::drive::tasks::Inner;
use crate::services::blocking;
use karman_store::BundleState;
use karman_types::{Digest, NodeId, TaskError, TaskId};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// How often one looks where nothing was heard: not every node that begins to offer a task comes into reach with it.
const LOOK: Duration = Duration::from_secs(30);

/// Tasks of one name, and their bundles.
type Waiting = BTreeMap<Arc<str>, Vec<(TaskId, Digest)>>;

/// Looks for others for as long as the node is there.
pub(in crate::drive) async fn look_for_others(tasks: Weak<Inner>) {
    loop {
        let Some(here) = tasks.upgrade() else { return };
        let changed = here.away.providers_changed.clone();
        drop(here);
        let _ = tokio::time::timeout(LOOK, changed.notified()).await;
        let Some(here) = tasks.upgrade() else { return };
        if let Err(error) = call_back(&here).await {
            tracing::warn!(%error, "tasks that are away are not called back");
        }
    }
}

async fn call_back(tasks: &Arc<Inner>) -> Result<(), TaskError> {
    let waiting = waiting(tasks).await?;
    let Some(node) = tasks.away.node().filter(|_| !waiting.is_empty()) else {
        return Ok(());
    };
    let (here, plan) = (node.runtime().id(), node.bundles().plan(contacts::now()));
    // A node that comes and goes is what the bundle waits for; the task does not run on its connection instead.
    let planned: BTreeSet<NodeId> = plan
        .contacts_of(here)
        .flat_map(|contact| [contact.from, contact.to])
        .collect();
    for (name, bundles) in waiting {
        let stays = |provider: &karman_mesh::Provider| !planned.contains(&provider.offer.node);
        if !runs_here(tasks, &name) && !in_reach(mesh_of(&node)?, &name).await.iter().any(stays) {
            continue;
        }
        for (task, bundle) in bundles {
            let called = tasks
                .away
                .with_ledger(move |ledger| ledger.call_back(task, &bundle));
            if called.await? {
                tracing::info!(%task, bundle = %bundle.short(), "a task is called back: it can run in reach");
            }
        }
    }
    Ok(())
}

/// What has not left yet.
async fn waiting(tasks: &Inner) -> Result<Waiting, TaskError> {
    let (store, unanswered) = (tasks.away.store.clone(), tasks.away.ledger.unanswered());
    if unanswered.is_empty() {
        return Ok(Waiting::new());
    }
    blocking(move || {
        let mut waiting = Waiting::new();
        for (task, name, bundle) in unanswered {
            let known = store.bundles().get(&bundle)?;
            if known.is_some_and(|known| known.state == BundleState::Waiting) {
                waiting.entry(name).or_default().push((task, bundle));
            }
        }
        Ok(waiting)
    })
    .await
}
