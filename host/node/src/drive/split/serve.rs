//! Stages that this node runs for others. A member's rights are for names of models, and what it asks for is a file: it gets no file that
//! this node has under other names, unless it has a right to one of these, too.

use super::encodings::{Suits, pack_for};
use super::journey::travel;
use super::unpacked::Unpacked;
use super::wire::{Journey, Prepare, unpack};
use crate::drive::serve::peer_of;
use crate::node::Node;
use crate::services::Meanwhile;
use bytes::Bytes;
use karman_mesh::membership::{Member, Pattern, Right, Rights};
use karman_mesh::{Ask, CallHead, RemoteReport, Wanted};
use karman_store::Store;
use karman_types::{Digest, TaskError, TaskResponse};
use std::time::Instant;

/// Makes a stage ready that another node wants to have run here.
pub(crate) async fn prepare(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: &Bytes,
) -> Result<TaskResponse, TaskError> {
    let Ask::PrepareStage { digest, size } = head.ask else {
        return Err(TaskError::internal("no stage is to be prepared"));
    };
    let (Prepare { cut, stage, ticket }, _) = unpack(body)?;
    if cut.model != digest {
        return Err(TaskError::invalid("the cut is of another model").with_field("cut"));
    }
    take_in(node, from, head, (digest, size), ticket).await?;
    node.split().stages().get_warm(&cut, stage).await?;
    Ok(TaskResponse::default())
}

/// Runs a stage on what another node sent, and has those after it run.
pub(crate) async fn run(
    node: &Node,
    from: &Member,
    head: &CallHead,
    body: &Bytes,
) -> Result<(TaskResponse, RemoteReport), TaskError> {
    let started = Instant::now();
    let Unpacked {
        head: journey,
        tensors,
        room: _room,
    } = node.split().room().unpack::<Journey>(body).await?;
    journey.check()?;
    let (stages, cut) = (node.split().stages(), &journey.cut);
    if !stages.knows_stage_as(&head.name, cut, journey.stage)? {
        must_cover(
            &from.rights,
            &head.name,
            &stages.names_of(cut.model)?,
            Right::Call,
        )?;
    }
    let stage = stages.get(cut, journey.stage).await?;
    let suits = Suits {
        rate_mbit_s: journey.back_mbit_s,
        max_error: 0.0,
    };
    let (node, name) = (node.clone(), head.name.clone());
    let (results, legs) = travel(node, name, journey, tensors, Meanwhile::Nothing).await?;
    let packed = pack_for(suits, &stage.back, legs, &results).await?;
    let response = TaskResponse::from(packed.body.into_bytes());
    let report = RemoteReport {
        took_us: started.elapsed().as_micros() as u64,
        ..RemoteReport::default()
    };
    Ok((response, report))
}

/// Fetches a model that a member brings, where it is not here.
pub(super) async fn take_in(
    node: &Node,
    from: &Member,
    head: &CallHead,
    (digest, size): (Digest, u64),
    ticket: Vec<u8>,
) -> Result<(), TaskError> {
    let names = node.split().stages().names_of(digest)?;
    if !names.is_empty() {
        must_cover(&from.rights, &head.name, &names, Right::Deploy)?;
        let used = node
            .runtime()
            .home()
            .with(move |store| store.visiting().used(&digest));
        if let Err(error) = used.await {
            // It is here all the same.
            tracing::warn!(model = %digest.short(), %error, "that a model is used is not written down");
        }
        return Ok(());
    }
    let wanted = Wanted {
        digest,
        size,
        name: head.name.clone(),
        ticket: Bytes::from(ticket),
        anywhere: false,
    };
    let file = node.fetch(wanted, peer_of(from)?).await?;
    let name = head.name.clone();
    let take_in = move |store: &Store| store.visiting().take_in(&name, &file);
    node.runtime().home().with(take_in).await?;
    Ok(())
}

/// Refuses a member a file that is here under other names only, none of which its rights are for.
fn must_cover(
    rights: &Rights,
    name: &str,
    names: &[String],
    right: fn(Pattern) -> Right,
) -> Result<(), TaskError> {
    let covers = |known: &String| {
        let is_covered = |known| rights.allows(&right(known));
        known == name || known.parse().is_ok_and(is_covered)
    };
    match names.is_empty() || names.iter().any(covers) {
        true => Ok(()),
        false => {
            let error = TaskError::denied(format!(
                "this node does not know the file that is asked for as `{name}`"
            ));
            let hint = "give the model the same name on both nodes, or the member a right to the name that it has here";
            Err(error.with_field("model").with_hint(hint))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_to_one_model_opens_no_other() {
        let rights = |text: &str| -> Rights { [text.parse().unwrap()].into_iter().collect() };
        let may = |right: &str, asked: &str, known: &[&str]| {
            let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
            must_cover(&rights(right), asked, &known, Right::Call).is_ok()
        };
        assert!(may("call:model/a", "model/a", &["model/a"]));
        assert!(may("call:model/a", "model/a", &["model/b", "model/a"]));
        assert!(!may("call:model/a", "model/a", &["model/b"]));
        assert!(!may("deploy:*", "model/a", &["model/b"]));
        // The same file has another name here.
        assert!(may("call:*", "model/a", &["model/b"]));
        // What is not here is told by who looks for it.
        assert!(may("call:model/a", "model/a", &[]));
    }
}
