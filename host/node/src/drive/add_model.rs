//! Models that are brought to nodes of the mesh: they are told what it is, fetch the file from this node, and run it from then on.

use super::deploy::{OnNode, read};
use super::model_tasks::MODEL;
use crate::node::Node;
use crate::services::{blocking, to_the_end};
use bytes::Bytes;
use karman_mesh::{Ask, CallHead, PeerId, Wanted, pack_tensors, unpack_tensors};
use karman_store::{Model, ModelInfo, check_model_name};
use karman_types::{ByteSize, Digest, TaskError, format_bytes};
use serde::{Deserialize, Serialize};

/// A model as `karman model list` shows it.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct HeldModel {
    /// By which tasks load it.
    pub name: String,
    /// The digest of its file.
    pub digest: Digest,
    /// The length of its file in bytes.
    pub bytes: u64,
    /// What else is known of it.
    pub info: ModelInfo,
    /// The back-end and device that run it, where a node was asked, and as far as it was ever loaded there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runs_on: Option<String>,
    /// Why requests for it are refused, as far as that is known: it is to run on the GPU and cannot, or did not load when it was last asked
    /// for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<TaskError>,
}

impl From<Model> for HeldModel {
    fn from(
        Model {
            name,
            digest,
            bytes,
            info,
        }: Model,
    ) -> Self {
        Self {
            name,
            digest,
            bytes,
            info,
            runs_on: None,
            refused: None,
        }
    }
}

/// What a node is told of a model besides its digest.
#[derive(Debug, Deserialize, Serialize)]
struct Brought {
    /// Allows to read the file.
    #[serde(with = "serde_bytes")]
    ticket: Vec<u8>,
    info: ModelInfo,
}

impl Node {
    /// Gives this node a model, or replaces the one of this name: requests from now on get the new one. It is loaded once to see that it
    /// runs: what does not takes the place of nothing that does.
    ///
    /// # Errors
    /// `invalid` for a name that is none, `limit` for too many bytes, `unavailable` where its back-end does not run it, or with the operator
    /// for which the GPU has no kernel where it is to run there; what the disk refuses.
    pub async fn add_model(&self, name: &str, file: Bytes, info: ModelInfo) -> Result<HeldModel, TaskError> {
        let (node, name) = (self.clone(), name.to_owned());
        // Once it is on the disk it is the one that runs, whoever waits for it.
        to_the_end(async move { node.add_model_now(name, file, info).await }).await
    }

    async fn add_model_now(
        &self,
        name: String,
        file: Bytes,
        info: ModelInfo,
    ) -> Result<HeldModel, TaskError> {
        let home = self.runtime().home().clone();
        let models = self.runtime().models().clone();
        let added = blocking(move || {
            check_model_name(&name)?;
            models.check_one(&name, &file)?;
            let store = home.store()?;
            store
                .models()
                .add(&name, &file, None, info)
                .map_err(TaskError::from)
        });
        let added = added.await?;
        self.runtime().models().changed();
        tokio::spawn(self.runtime().models().clone().look_for_gpu());
        self.replaced(&added.name, added.digest);
        self.announce().await;
        Ok(added.into())
    }

    /// The same on every node that the selector names. A node that cannot run it keeps what it has.
    ///
    /// # Errors
    /// `invalid` when the selector does not read, `unavailable` when it names no node in reach.
    pub async fn add_model_on(
        &self,
        selector: &str,
        name: &str,
        file: Bytes,
        info: ModelInfo,
    ) -> Result<Vec<OnNode<HeldModel>>, TaskError> {
        let (here, elsewhere) = self.selected(selector).await?;
        let mut outcomes = Vec::new();
        if here {
            outcomes.push(OnNode {
                node: self.runtime().id(),
                outcome: self.add_model(name, file.clone(), info.clone()).await,
            });
        }
        let loan = &self.lend(format!("{MODEL}{name}"), file).await?;
        let ask = &Ask::AddModel {
            digest: loan.digest,
            size: loan.size,
        };
        let answers = self.order_each(&elsewhere, (ask, &loan.name), |node| {
            let brought = Brought {
                ticket: loan.ticket(node)?.to_vec(),
                info: info.clone(),
            };
            let body = pack_tensors(&brought, &[])
                .map_err(|error| TaskError::limit(error.to_string()).with_field("info"))?;
            Ok(body.into_bytes())
        });
        outcomes.extend(answers.await.into_iter().map(|(node, answer)| OnNode {
            node,
            outcome: read(answer),
        }));
        Ok(outcomes)
    }

    /// Takes a model that a member brings, with its file from that member.
    pub(super) async fn take_model(
        &self,
        from: PeerId,
        head: &CallHead,
        body: &Bytes,
    ) -> Result<HeldModel, TaskError> {
        let Ask::AddModel { digest, size } = head.ask else {
            return Err(TaskError::internal("no model is brought"));
        };
        let name = head.name.strip_prefix(MODEL).ok_or_else(|| {
            TaskError::invalid(format!("`{}` is no name of a model", head.name)).with_field("name")
        })?;
        let (Brought { ticket, info }, _) =
            unpack_tensors(body).map_err(|error| TaskError::invalid(error.to_string()).with_field("body"))?;
        let most = self.runtime().models().limits().model;
        if size > most.0 {
            return Err(too_long(size, most));
        }
        self.is_no_other_model(name, digest).await?;
        let wanted = Wanted {
            digest,
            size,
            name: head.name.clone(),
            ticket: ticket.into(),
            anywhere: false,
        };
        let file = self.fetch(wanted, from).await?;
        if file.len() as u64 != size {
            let says = format!("the model has {} bytes, {size} were announced", file.len());
            return Err(TaskError::invalid(says).with_field("size"));
        }
        // Who has the right is trusted with what a back-end's library does to this process, as the operator is: raw models of guests, which
        // nobody vouches for, go another way.
        self.add_model(name, file, info).await
    }

    /// A file that is here need not be sent, so a caller that knows its digest could have it under a name that it may call.
    async fn is_no_other_model(&self, name: &str, digest: Digest) -> Result<(), TaskError> {
        let held = self.runtime().models().list()?;
        let mut same = held.iter().filter(|model| model.digest == digest).peekable();
        match same.peek().is_some() && !same.any(|model| model.name == name) {
            true => Err(TaskError::denied("this node has that model under another name")
                .with_field("name")
                .with_hint("call it by that name, or let this node's operator add it under a second one")),
            false => Ok(()),
        }
    }
}

/// The error that a member brings a model that is longer than this node takes. Whoever reads it may be at another node.
fn too_long(size: u64, most: ByteSize) -> TaskError {
    let size = format_bytes(size);
    TaskError::limit(format!(
        "the model has {size}, and this node takes {most} at most"
    ))
    .with_field("models.model")
    .with_hint(
        "raise `models.model` in that node's node.toml and start the node again: it reads it when it starts",
    )
}
