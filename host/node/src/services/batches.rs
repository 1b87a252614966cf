//! Requests to a model that wait at the same time, run as one: where the operator allows it for that model, and the policy says so.
//!
//! | file | what |
//! |---|---|
//! | `member` | a model that runs in batches, and which requests may join one |
//! | `measure` | how long its batches take, and whether they answer what runs of one answer |
//! | `lane` | a device: what waits for it and what runs next, by the policy |
//! | `together` | a batch: several inputs as one, and the answer of each |
//! | `exits` | the early exits that may answer in the place of a model |
//!
//! The policy is EdgeServing ([`EdgeServing`](karman_sched::serve::EdgeServing)), over all models of a device that run in batches. A model
//! without `[batches.NAME]` in node.toml takes none of this way.

mod exits;
mod lane;
mod measure;
mod member;
mod together;

pub(crate) use member::BatchCounts;
pub(super) use member::{Asked, Member};

use super::{Found, Loaded, NodeModels};
use crate::config::{BatchConfig, batch_of};
use exits::Exits;
use futures::FutureExt;
use karman_store::ModelExit;
use karman_types::{Digest, TaskError};
use lane::Lane;
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The models of this node that run in batches.
pub(super) struct Batches {
    allowed: BTreeMap<String, BatchConfig>,
    processor: Arc<Lane>,
    gpu: Arc<Lane>,
    /// By name, those that were asked for.
    members: RwLock<HashMap<String, Arc<Member>>>,
}

impl Batches {
    /// For a processor that runs so many batches at once; nothing where no model is to run in batches.
    pub(super) fn new(allowed: &BTreeMap<String, BatchConfig>, at_once: usize) -> Option<Self> {
        (!allowed.is_empty()).then(|| Self {
            allowed: allowed.clone(),
            processor: Lane::new(at_once),
            // Its work is done one after the other.
            gpu: Lane::new(1),
            members: RwLock::default(),
        })
    }

    /// The largest batch that any model may have.
    pub(super) fn most(&self) -> usize {
        self.allowed
            .values()
            .map(|batch| batch.at_most)
            .max()
            .unwrap_or(1)
    }

    /// A model under this name, which from now on runs in batches where that is allowed. `exits` is told how accurate an early one has to
    /// be.
    fn enter(
        &self,
        name: &str,
        digest: Digest,
        loaded: Loaded,
        exits: impl FnOnce(Option<f64>) -> Exits,
    ) -> Loaded {
        let Some(allowed) = batch_of(&self.allowed, name) else {
            return loaded;
        };
        let file = (digest, loaded.is_on_gpu());
        let known = self.members.read().get(name).cloned();
        let known = known.filter(|member| member.file() == file);
        let member = known.unwrap_or_else(|| self.member(name, file, allowed, exits(allowed.accuracy)));
        loaded.in_batches(member)
    }

    fn member(&self, name: &str, file: (Digest, bool), allowed: &BatchConfig, exits: Exits) -> Arc<Member> {
        let mut members = self.members.write();
        let before = members.get(name);
        if let Some(member) = before.filter(|member| member.file() == file) {
            return member.clone();
        }
        let lane = match file.1 {
            true => &self.gpu,
            false => &self.processor,
        };
        let counts = before.map_or_else(Arc::default, |member| member.counts().clone());
        let member = Member::new(name, file, allowed.clone(), exits, lane.clone(), counts);
        members.insert(name.to_owned(), member.clone());
        member
    }

    /// How a model runs in batches, in words; nothing where it does not.
    pub(super) fn words(&self, name: &str) -> Option<String> {
        let allowed = batch_of(&self.allowed, name)?;
        let members = self.members.read();
        let member = members.get(name);
        Some(member.map_or_else(
            || format!("in batches of up to {}, once measured", allowed.at_most),
            |member| member.words(),
        ))
    }

    /// What each has run together so far.
    pub(super) fn counts(&self) -> Vec<BatchCounts> {
        let members = self.members.read();
        let mut counts: Vec<BatchCounts> = members.values().map(|member| member.counted()).collect();
        counts.sort_by(|one, other| one.model.cmp(&other.model));
        counts
    }
}

impl NodeModels {
    /// What was found under a name, as it is to be run.
    pub(super) fn in_batches(self: &Arc<Self>, name: &str, found: &Found, loaded: Loaded) -> Loaded {
        match &self.batches {
            Some(batches) => batches.enter(name, found.as_measured, loaded, |least| {
                self.exits_of(name, found, least)
            }),
            None => loaded,
        }
    }

    /// Where it may stop, if it is to be at least so accurate.
    fn exits_of(self: &Arc<Self>, name: &str, found: &Found, least: Option<f64>) -> Exits {
        let (models, model, name) = (Arc::downgrade(self), found.model.clone(), name.to_owned());
        Exits::new(&found.exits(), least, move |depth| {
            let found = models.upgrade().zip(Found::up_to(model.clone(), depth));
            let name = ModelExit::name(&name, depth);
            async move {
                let gone = || TaskError::unavailable(format!("there is no `{name}` any more"));
                let (models, found) = found.ok_or_else(gone)?;
                models.alone(&name, Arc::new(found)).await
            }
            .boxed()
        })
    }

    /// What was run together so far, of each model that runs in batches and was asked for.
    pub(crate) fn batch_counts(&self) -> Vec<BatchCounts> {
        self.batches.as_ref().map_or_else(Vec::new, Batches::counts)
    }
}

#[cfg(test)]
mod tests;
