//! The list of all models and tasks, from what is known here of each: the mesh is searched once in half a minute at most, however many ask, and
//! nothing is loaded.

use super::{Inference, right};
use crate::access::{Caller, Right};
use crate::refusal::Refusal;
use karman_types::{Digest, Offer, TaskError};
use std::collections::HashMap;

/// Before the name of a model, where it is offered as a task.
const MODEL: &str = "model/";

/// A model or task of the mesh.
#[derive(Clone, Debug)]
pub(super) struct Listed {
    pub(super) name: String,
    /// Nothing where it is not known.
    pub(super) version: String,
    /// Why requests for it are refused, as far as that is known: what nobody has asked for yet counts as ready.
    refused: Option<TaskError>,
}

impl Listed {
    /// Its state in the words of the protocol's extension, and why it is not ready.
    pub(super) fn state(&self) -> (&'static str, String) {
        match &self.refused {
            None => ("READY", String::new()),
            Some(error) => ("UNAVAILABLE", error.message.clone()),
        }
    }
}

impl Inference {
    /// Every model and task of the nodes in reach that the caller may run; only those that are ready, where that is asked for.
    pub(super) async fn list(&self, caller: &Caller, ready: bool) -> Result<Vec<Listed>, Refusal> {
        // The mesh is searched for what may be on the list, not for a list of nothing, which anybody may ask for.
        if !caller.holds_some(|right| matches!(right, Right::Infer(_))) {
            return Ok(Vec::new());
        }
        let may = |name: &str| right(name).is_ok_and(|right| caller.holds(&right));
        let models = self.node.models_of_mesh().await?.into_keys();
        // This node is the first: what it has it runs itself.
        let offers: Vec<Offer> = match self.node.mesh() {
            Some(_) => {
                let offers = self.node.offers_lately().await?.into_iter();
                offers.map(|offer| offer.offer).collect()
            }
            None => vec![self.node.offer()],
        };
        let tasks = || offers.iter().flat_map(|offer| &offer.tasks);
        let mut files: HashMap<&str, Digest> = HashMap::new();
        for task in tasks() {
            if let Some(model) = task.name.strip_prefix(MODEL) {
                files.entry(model).or_insert(task.id);
            }
        }
        let models = models.filter(|name| may(name)).map(|name| Listed {
            version: files.get(&name[..]).map(Digest::short).unwrap_or_default(),
            refused: self.node.refused_model(&name),
            name,
        });
        let mut all: Vec<Listed> = models.collect();
        // Models as tasks are there already, by their own names.
        let tasks = tasks().filter(|task| !task.name.starts_with(MODEL) && may(&task.name));
        all.extend(tasks.map(|task| Listed {
            name: task.name.clone(),
            version: task.version.to_string(),
            refused: None,
        }));
        all.retain(|listed| !ready || listed.refused.is_none());
        all.sort_by(|one, other| (&one.name, &one.version).cmp(&(&other.name, &other.version)));
        all.dedup_by(|one, other| (&one.name, &one.version) == (&other.name, &other.version));
        Ok(all)
    }
}
