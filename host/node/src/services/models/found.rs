//! What this node has under a name: a model, or one up to an early exit.

use super::NodeModels;
use bytes::Bytes;
use karman_infer::graph::Graph;
use karman_store::{Model, ModelExit, ModelInfo};
use karman_types::{Digest, TaskError};
use std::collections::HashMap;
use std::sync::Arc;

/// A model of this node, all of it or up to an early exit.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// What the disk says of it.
    pub(crate) model: Model,
    /// Under which it is loaded: the digest of its file, where it is all of that.
    pub(in crate::services) digest: Digest,
    /// The same, and of what is said of its exits: what was measured of batches holds as long as this stays.
    pub(in crate::services) as_measured: Digest,
    exit: Option<Exit>,
}

/// Where a model stops.
#[derive(Clone, Debug)]
struct Exit {
    depth: u32,
    output: String,
    /// The output for which it stands.
    answer: String,
    accuracy: f64,
}

/// What the disk says of models that were asked for, until one changes there.
#[derive(Default)]
pub(super) struct Known {
    changes: u64,
    by_name: HashMap<String, Arc<Found>>,
    /// All models, once somebody has asked for them.
    all: Option<Arc<[Model]>>,
}

impl Found {
    fn whole(model: Model) -> Self {
        let said = ModelExit::all_of(&model.info);
        Self {
            digest: model.digest,
            as_measured: match said.is_empty() {
                true => model.digest,
                false => Digest::of(format!("{} with {said:?}", model.digest).as_bytes()),
            },
            model,
            exit: None,
        }
    }

    /// The model up to this exit, 1 the shallowest; nothing where it has none there, or it is the last.
    pub(in crate::services) fn up_to(model: Model, depth: u32) -> Option<Self> {
        let exits = ModelExit::all_of(&model.info);
        let (answer, early) = exits.split_last()?;
        let exit = early.get((depth as usize).checked_sub(1)?)?;
        let (output, answer, accuracy) = (exit.output.clone(), answer.output.clone(), exit.accuracy);
        let digest = Digest::of(format!("{} {output} as {answer}", model.digest).as_bytes());
        Some(Self {
            model,
            digest,
            as_measured: digest,
            exit: Some(Exit {
                depth,
                output,
                answer,
                accuracy,
            }),
        })
    }

    /// Up to which of its exits, 1 the shallowest; nothing where it is all of the model.
    pub(in crate::services) fn depth(&self) -> Option<u32> {
        self.exit.as_ref().map(|exit| exit.depth)
    }

    /// Its exits from shallow to deep, the last of which is all of it; empty where it is no more than one of them.
    pub(in crate::services) fn exits(&self) -> Vec<ModelExit> {
        ModelExit::all_of(&self.info())
    }

    /// What is known of it: of one exit its own accuracy, and no others.
    pub(crate) fn info(&self) -> ModelInfo {
        let mut info = self.model.info.clone();
        if let Some(exit) = &self.exit {
            info.remove(ModelExit::KEY);
            info.insert("accuracy".to_owned(), exit.accuracy.into());
        }
        info
    }
}

impl NodeModels {
    /// Models on the disk have changed.
    pub(crate) fn changed(&self) {
        let mut known = self.known.write();
        known.changes += 1;
        known.by_name.clear();
        known.all = None;
    }

    /// All models of this node, by name.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(crate) fn list(&self) -> Result<Arc<[Model]>, TaskError> {
        let changes = {
            let known = self.known.read();
            if let Some(all) = &known.all {
                return Ok(all.clone());
            }
            known.changes
        };
        let store = self.home.store()?;
        let all: Arc<[Model]> = store.models().list()?.into();
        let mut known = self.known.write();
        // What changed while it was read may be newer.
        if known.changes == changes {
            known.all = Some(all.clone());
        }
        Ok(all)
    }

    /// A model is on the disk no longer: nothing of it stays loaded for who asks next.
    pub(crate) fn forget(&self, model: &Model) {
        self.changed();
        let early = (1..).map_while(|depth| Found::up_to(model.clone(), depth));
        let gone: Vec<Digest> = early.map(|found| found.digest).chain([model.digest]).collect();
        self.loaded.lock().retain(|(digest, _), _| !gone.contains(digest));
        self.failed.write().remove(&model.name);
    }

    /// Why requests for what this node has under a name are refused, as far as that is known.
    pub(crate) fn refusal(&self, name: &str) -> Option<TaskError> {
        let found = self.find(name).ok().flatten()?;
        self.refused(name, found.digest)
    }

    /// What this node has under a name, if anything: a model, or `MODEL:1` for one up to the first of its exits.
    ///
    /// # Errors
    /// What the disk refuses.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Arc<Found>>, TaskError> {
        let changes = {
            let known = self.known.read();
            if let Some(found) = known.by_name.get(name) {
                return Ok(Some(found.clone()));
            }
            known.changes
        };
        // A look at the table takes microseconds, less than a way to another thread and back.
        let Some(found) = self.look_up(name)?.map(Arc::new) else {
            return Ok(None);
        };
        let mut known = self.known.write();
        // What changed while it was read may be newer.
        if known.changes == changes {
            known.by_name.insert(name.to_owned(), found.clone());
        }
        Ok(Some(found))
    }

    fn look_up(&self, name: &str) -> Result<Option<Found>, TaskError> {
        let store = self.home.store()?;
        let get = |name: &str| store.models().get(name).map_err(TaskError::from);
        if let Some(model) = get(name)? {
            return Ok(Some(Found::whole(model)));
        }
        let Some((model, depth)) = ModelExit::parse(name) else {
            return Ok(None);
        };
        Ok(get(model)?.and_then(|model| Found::up_to(model, depth)))
    }

    /// The same where there has to be something.
    ///
    /// # Errors
    /// `unavailable` where there is nothing; what the disk refuses.
    pub(super) fn found(&self, name: &str) -> Result<Arc<Found>, TaskError> {
        self.find(name)?.ok_or_else(|| {
            let hint = match ModelExit::parse(name) {
                Some((model, _)) => {
                    format!("karman model add {model} FILE.onnx --exit OUTPUT=SHARE --exit …")
                }
                None => format!("karman model add {name} FILE.onnx"),
            };
            TaskError::unavailable(format!("this node has no model `{name}`")).with_hint(hint)
        })
    }

    /// The file of a model, checked against its digest, and cut where it is one up to an exit. Blocks.
    ///
    /// # Errors
    /// What the disk refuses; `invalid` for an exit that the file does not have.
    pub(in crate::services) fn onnx(&self, found: &Found) -> Result<Bytes, TaskError> {
        let store = self.home.store()?;
        let file = store.blobs().read(&found.model.digest)?;
        let Some(exit) = &found.exit else {
            return Ok(file);
        };
        let graph = Graph::read(file, self.limits())?;
        graph.up_to(&exit.output, &exit.answer).map_err(|error| {
            let says = format!("exit {} of model `{}`: {error}", exit.depth, found.model.name);
            TaskError::invalid(says).with_hint("`karman model add` with other `--exit` says it anew")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_model_and_each_of_its_early_exits_are_loaded_apart() {
        let exit = |output: &str| json!({ "output": output, "accuracy": 0.9 });
        let with = |exits: &[&str]| {
            let exits = exits.iter().copied().map(exit).collect::<Vec<_>>();
            Model {
                name: "digits-l".into(),
                digest: Digest::of(b"file"),
                bytes: 4,
                info: ModelInfo::from([("exits".to_owned(), json!(exits))]),
            }
        };
        let model = with(&["a", "b", "c"]);
        let whole = Found::whole(model.clone());
        assert_eq!((whole.digest, whole.depth()), (model.digest, None));
        assert_eq!(whole.exits().len(), 3);
        assert_ne!(
            whole.as_measured,
            Found::whole(with(&["b", "a", "c"])).as_measured
        );
        let [first, second] = [1, 2].map(|depth| Found::up_to(model.clone(), depth).unwrap());
        assert_eq!((first.depth(), second.depth()), (Some(1), Some(2)));
        assert!(first.digest != second.digest && first.digest != whole.digest);
        assert!(first.exits().is_empty());
        assert_eq!(
            first.info(),
            ModelInfo::from([("accuracy".to_owned(), json!(0.9))])
        );
        for none in [0, 3, u32::MAX] {
            assert!(Found::up_to(model.clone(), none).is_none());
        }
        // Another output under the same number is another exit.
        let other = Found::up_to(with(&["b", "a", "c"]), 1).unwrap();
        assert_ne!(other.digest, first.digest);
        assert!(Found::up_to(with(&[]), 1).is_none());
    }
}
