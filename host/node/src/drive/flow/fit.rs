//! Who may answer: a task of a workflow, or a request that belongs to none.

use super::implementations::{all_known, is_below, known};
use crate::drive::tasks::Inner;
use karman_sched::select::{Bound, Bounds};
use karman_types::{Binding, Implementation, Slo, TaskError};

/// What a request brings.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(super) enum Brings {
    /// Tensors, which only models take.
    Tensors,
    /// A body as tasks have it, which anybody takes.
    Body,
}

/// Who may serve a task of a workflow: measured, as accurate as is wanted, and of known energy where that is limited.
pub(super) async fn for_task(
    tasks: &Inner,
    capability: &str,
    slo: &Slo,
) -> Result<Vec<Implementation>, TaskError> {
    let known = known(tasks, capability).await?;
    if known.is_empty() {
        return Err(TaskError::unavailable(format!(
            "nobody that does `{capability}` is measured on this node"
        ))
        .with_hint("`karman flow measure FILE TASK --data EXAMPLES` measures who is there"));
    }
    let mut fit = Bounds::of_each(slo).met_by(known).map_err(|unmet| {
        TaskError::unavailable(format!("`{capability}`: {unmet}")).with_hint(
            "lower `accuracy` in the `slo` of the workflow, add a better model, or measure with labelled examples",
        )
    })?;
    if slo.energy.is_some() {
        fit.retain(|known| known.profile.energy.is_some());
    }
    match fit.is_empty() {
        false => Ok(fit),
        true => Err(TaskError::unavailable(format!(
            "what those draw that do `{capability}` is not known, so no limit on energy can be kept"
        ))
        .with_hint(
            "state `busy` and `idle` under `[power]` in node.toml and measure again, or say it: `karman flow measure … --energy NAME=JOULES`",
        )),
    }
}

/// Who may answer a request: measured, and within every bound.
pub(super) async fn candidates(
    tasks: &Inner,
    name: &str,
    bounds: &Bounds,
    brings: Brings,
) -> Result<Vec<Implementation>, TaskError> {
    let takes = |known: &Implementation| brings == Brings::Body || takes_tensors(tasks, &known.binding);
    let mut fit: Vec<Implementation> = Vec::new();
    for (capability, known) in all_known(tasks).await? {
        let does = is_below(&capability, name);
        let named = known
            .into_iter()
            .filter(|known| does || is_named(&known.binding, name));
        fit.extend(named.filter(takes));
    }
    // Who does two things was measured twice, under the same name.
    fit.sort_by(|one, other| one.name.cmp(&other.name));
    fit.dedup_by(|one, other| one.name == other.name);
    if fit.is_empty() {
        return Err(TaskError::unavailable(format!(
            "nobody that does `{name}` is measured on this node, so there is nobody to choose"
        ))
        .with_field("model")
        .with_hint("`karman flow measure FILE TASK --data EXAMPLES` measures who is there"));
    }
    bounds.met_by(fit).map_err(|unmet| {
        let hint = match unmet.bound {
            Bound::Accuracy => "ask for less, or add a better model and measure it",
            Bound::Cost => "allow more, or add a cheaper one and measure it",
            Bound::P95 => "allow more, or measure again if nodes and links have become faster",
        };
        TaskError::unavailable(format!("`{name}`: {unmet}"))
            .with_field(unmet.bound.to_string())
            .with_hint(hint)
    })
}

/// Whether it is this model or plugin, wherever it is.
fn is_named(binding: &Binding, name: &str) -> bool {
    match binding {
        Binding::Plugin(known) | Binding::Model(known) => known == name,
        Binding::Remote { task, .. } => last(task) == name,
        Binding::Endpoint { model, .. } => model == name,
    }
}

/// Whether it is a model. Of a node that is not in reach nobody knows; it is not chosen either.
fn takes_tensors(tasks: &Inner, binding: &Binding) -> bool {
    match binding {
        Binding::Model(_) | Binding::Endpoint { .. } => true,
        Binding::Remote { node, task } => {
            let peers = tasks.mesh.get().map(|mesh| mesh.peers()).unwrap_or_default();
            let offers = peers.into_iter().filter_map(|peer| Some(peer.offer?.0));
            let mut offers = offers.filter(|offer| offer.node == *node);
            offers
                .next()
                .is_none_or(|offer| offer.models.iter().any(|model| model == last(task)))
        }
        Binding::Plugin(_) => false,
    }
}

/// The name of a model or plugin, of the task by which it is called.
pub(super) fn last(task: &str) -> &str {
    task.rsplit('/').next().unwrap_or(task)
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::NodeId;

    #[test]
    fn a_model_is_known_by_the_last_part_of_its_task() {
        let remote = |task: &str| Binding::Remote {
            node: NodeId::of_key(b"a"),
            task: task.to_owned(),
        };
        assert!(is_named(&remote("vision/digits/digits-s"), "digits-s"));
        assert!(is_named(&Binding::Plugin("classify".into()), "classify"));
        assert!(!is_named(&remote("vision/digits/digits-s"), "digits"));
    }
}
