//! Models that are brought to nodes of the mesh: they are told what it is, fetch the file from this node, and run it from then on.

use super::model_tasks::MODEL;
use crate::node::Node;
use crate::services::{blocking, store_error};
use bytes::Bytes;
use futures::future::join_all;
use karman_mesh::{Ask, CallHead, PeerId, Provider, Wanted, pack_tensors, unpack_tensors};
use karman_store::{Model, ModelInfo};
use karman_types::{Digest, NodeId, TaskError};
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
    /// Why requests for it are refused: it is to run on the GPU, and cannot.
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

/// The result of adding a model on one of its target nodes.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ModelOn {
    /// The node.
    pub node: NodeId,
    /// What it has now, or why not.
    pub outcome: Result<HeldModel, TaskError>,
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
    /// Gives this node a model, or replaces the one of this name: requests from now on get the new one.
    ///
    /// # Errors
    /// `invalid` for a name that is none, `limit` for too many bytes, `unavailable` with the operator for which the GPU has no kernel where
    /// it is to run there; what the disk refuses.
    pub async fn add_model(&self, name: &str, file: Bytes, info: ModelInfo) -> Result<HeldModel, TaskError> {
        let (home, name) = (self.runtime().home().clone(), name.to_owned());
        let models = self.runtime().models().clone();
        let added = blocking(move || {
            models.check_one_for_gpu(&name, &file)?;
            let store = home.store()?;
            store.models().add(&name, &file, None, info).map_err(store_error)
        });
        let added = added.await?;
        self.runtime().models().changed();
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
    ) -> Result<Vec<ModelOn>, TaskError> {
        let (here, elsewhere) = match self.met(selector) {
            Some(node) => (false, vec![node]),
            None => self.selected(selector).await?,
        };
        let mut outcomes = Vec::new();
        if here {
            outcomes.push(ModelOn {
                node: self.runtime().id(),
                outcome: self.add_model(name, file.clone(), info.clone()).await,
            });
        }
        let loan = &self.lend(format!("{MODEL}{name}"), file).await?;
        let ask = &Ask::AddModel {
            digest: loan.digest,
            size: loan.size,
        };
        let info = &info;
        let elsewhere = elsewhere.iter().map(|node| async move {
            let added = async {
                let brought = Brought {
                    ticket: loan.ticket(node.offer.node)?.to_vec(),
                    info: info.clone(),
                };
                let body = pack_tensors(&brought, &[])
                    .map_err(|error| TaskError::limit(error.to_string()).with_field("info"))?;
                let response = self
                    .order(node, ask.clone(), &loan.name, body.into_bytes())
                    .await?;
                serde_json::from_slice(&response.body)
                    .map_err(|error| TaskError::internal(format!("its answer does not read: {error}")))
            };
            ModelOn {
                node: node.offer.node,
                outcome: added.await,
            }
        });
        outcomes.extend(join_all(elsewhere).await);
        Ok(outcomes)
    }

    /// The node with this very id, where it can be reached now: nobody else has to be asked then.
    fn met(&self, id: &str) -> Option<Provider> {
        let peers = self.mesh()?.peers().into_iter();
        let mut peers = peers.filter(|peer| peer.path.is_some());
        peers.find_map(|peer| {
            let (offer, _) = peer.offer?;
            (offer.node.to_string() == id).then_some(Provider {
                id: peer.id,
                offer,
                busy: peer.busy,
            })
        })
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
        let models = self.runtime().models().clone();
        let most = models.limits().model.0;
        if size > most {
            let says = format!("the model has {size} bytes; `models.model` of this node is {most}");
            return Err(TaskError::limit(says).with_field("size"));
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
        // What does not run here does not take the place of what does. Who has the right is trusted with what a back-end's library does
        // to this process, as the operator is: raw models of guests, which nobody vouches for, go another way.
        let tried = file.clone();
        blocking(move || models.load(&tried).map(drop)).await?;
        self.add_model(name, file, info).await
    }

    /// A file that is here need not be sent, so a caller that knows its digest could have it under a name that it may call.
    async fn is_no_other_model(&self, name: &str, digest: Digest) -> Result<(), TaskError> {
        let home = self.runtime().home().clone();
        let held = blocking(move || home.store()?.models().list().map_err(store_error)).await?;
        let mut same = held.iter().filter(|model| model.digest == digest).peekable();
        match same.peek().is_some() && !same.any(|model| model.name == name) {
            true => Err(TaskError::denied("this node has that model under another name")
                .with_field("name")
                .with_hint("call it by that name, or let this node's operator add it under a second one")),
            false => Ok(()),
        }
    }
}
