//! The parts of models that this node runs.

use super::encodings::Encodings;
use super::wire::Cut;
use crate::drive::model_tasks::MODEL;
use crate::home::Home;
use crate::services::{Loaded, Meanwhile, NodeModels, blocking, shutting_down};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use karman_engine::capability::nn::Tensors;
use karman_infer::TensorInfo;
use karman_infer::graph::Graph;
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OnceCell, Semaphore};

/// Stages that stay loaded. One more drops the one that was not used for longest.
const MOST_READY: usize = 64;
/// Their files together are at most this share of this machine's memory; what is larger by itself is kept alone.
const MEMORY_SHARE: u64 = 4;

/// Stages that are loaded at once.
const MOST_LOADS: usize = 2;

/// A stage of a cut.
type Key = (Cut, u8);

/// A stage that is loaded, or is being loaded: whoever asks for it meanwhile gets the same.
type Loading = Shared<BoxFuture<'static, Result<Arc<Stage>, TaskError>>>;

/// The stages that this node has ready.
pub(crate) struct Stages {
    home: Home,
    models: Arc<NodeModels>,
    most_bytes: u64,
    /// Loading takes several times the memory of what is loaded.
    loads: Semaphore,
    /// The last one was used last.
    ready: Mutex<VecDeque<(Key, Loading)>>,
}

/// A part of a model, ready to run.
pub(super) struct Stage {
    /// Nothing where no layer is in it: what comes is passed on.
    model: Option<Loaded>,
    warmed_up: OnceCell<()>,
    takes: Vec<TensorInfo>,
    /// What those after it need, and what is a result already.
    pub(super) passes_on: Vec<String>,
    /// What the whole model gives.
    pub(super) results: Vec<TensorInfo>,
    /// How what it passes on travels.
    pub(super) onward: Arc<Encodings>,
    /// The same of the results, on their way back.
    pub(super) back: Arc<Encodings>,
    pub(super) is_last: bool,
    /// The length of its part of the model's file.
    bytes: u64,
    /// The names under which this node had the model when it was loaded.
    names: Vec<String>,
}

impl Stages {
    /// Those of a machine with so many bytes of memory.
    pub(crate) fn new(home: Home, models: Arc<NodeModels>, memory: u64) -> Self {
        Self {
            home,
            models,
            most_bytes: memory / MEMORY_SHARE,
            loads: Semaphore::new(MOST_LOADS),
            ready: Mutex::default(),
        }
    }

    /// The stage, loaded now where it was not. That goes on where who asked has no time left: the next one finds it ready.
    pub(super) async fn get(self: &Arc<Self>, cut: &Cut, stage: u8) -> Result<Arc<Stage>, TaskError> {
        self.find((cut.clone(), stage)).await
    }

    /// The stage once it has run: requests are to go by it from now on.
    pub(super) async fn get_warm(self: &Arc<Self>, cut: &Cut, stage: u8) -> Result<(), TaskError> {
        self.get(cut, stage).await?.warm_up().await;
        Ok(())
    }

    /// What is known of the stage, used last from now on.
    fn find(self: &Arc<Self>, key: Key) -> Loading {
        let mut ready = self.ready.lock();
        let at = ready.iter().position(|(known, _)| *known == key);
        if let Some(entry) = at.and_then(|at| ready.remove(at)) {
            let loading = entry.1.clone();
            ready.push_back(entry);
            return loading;
        }
        let (stages, wanted) = (self.clone(), key.clone());
        let loading = tokio::spawn(async move { stages.load(wanted).await });
        let failed = |error: tokio::task::JoinError| {
            Err(TaskError::internal(format!("a stage was not loaded: {error}")))
        };
        let loading = loading
            .map(move |loaded| loaded.unwrap_or_else(failed))
            .boxed()
            .shared();
        ready.push_back((key, loading.clone()));
        // Also where nobody waits for it any more: it takes its room.
        let (stages, entry) = (self.clone(), loading.clone());
        tokio::spawn(async move {
            let loaded = entry.clone().await;
            stages.settle(&entry, loaded.as_ref().ok());
        });
        loading
    }

    /// One has been loaded, and takes its room; or not, and is tried again by the next one.
    fn settle(&self, loading: &Loading, loaded: Option<&Arc<Stage>>) {
        match loaded {
            Some(stage) => self.make_room(stage),
            None => self.ready.lock().retain(|(_, known)| !known.ptr_eq(loading)),
        }
    }

    /// Lets go of those that were not used for longest, until there is room for this one.
    fn make_room(&self, loaded: &Arc<Stage>) {
        let mut ready = self.ready.lock();
        let bytes = |ready: &VecDeque<(Key, Loading)>| -> u64 {
            let stages = ready
                .iter()
                .filter_map(|(_, loading)| loading.peek()?.as_ref().ok());
            stages.map(|stage| stage.bytes).sum()
        };
        let is_it = |loading: &Loading| {
            let stage = loading.peek().and_then(|loaded| loaded.as_ref().ok());
            stage.is_some_and(|stage| Arc::ptr_eq(stage, loaded))
        };
        while ready.len() > MOST_READY || bytes(&ready) > self.most_bytes {
            let oldest = ready
                .iter()
                .position(|(_, loading)| loading.peek().is_some() && !is_it(loading));
            match oldest {
                Some(at) => drop(ready.remove(at)),
                None => return,
            }
        }
    }

    /// Lets go of all stages of a model.
    pub(super) fn forget(&self, model: Digest) {
        self.ready.lock().retain(|((cut, _), _)| cut.model != model);
    }

    async fn load(self: Arc<Self>, (cut, stage): Key) -> Result<Arc<Stage>, TaskError> {
        let _turn = self.loads.acquire().await.map_err(|_| shutting_down())?;
        let on_gpu = self.models.on_gpu_by_file(cut.model).await?.is_some();
        let (stages, model) = (self.clone(), cut.model);
        let (mut loaded, part) = blocking(move || stages.read(&cut, stage, on_gpu)).await?;
        if let Some(part) = part {
            loaded.model = Some(self.models.part_on_gpu(model, part).await?);
        }
        Ok(Arc::new(loaded))
    }

    /// Whether this node knows the file under this name, `model/NAME`: as a model of its own, or as one that another node brought.
    pub(super) fn knows_as(&self, name: &str, model: Digest) -> Result<bool, TaskError> {
        Ok(self.names_of(model)?.iter().any(|known| known == name))
    }

    /// The same of a stage, without a look at the disk where it is loaded.
    pub(super) fn knows_stage_as(&self, name: &str, cut: &Cut, stage: u8) -> Result<bool, TaskError> {
        let loaded = {
            let ready = self.ready.lock();
            let known = ready.iter().rev().find(|((of, at), _)| of == cut && *at == stage);
            known.and_then(|(_, loading)| loading.peek()?.as_ref().ok().cloned())
        };
        match loaded {
            Some(stage) if stage.names.iter().any(|known| known == name) => Ok(true),
            _ => self.knows_as(name, cut.model),
        }
    }

    /// The names under which this node has the file; none where it does not.
    pub(super) fn names_of(&self, model: Digest) -> Result<Vec<String>, TaskError> {
        let visitor = self.home.store()?.visiting().get(&model)?;
        let mut names = visitor.map(|visitor| visitor.names).unwrap_or_default();
        let own = self.models.list()?;
        let own = own.iter().filter(|own| own.digest == model);
        names.extend(own.map(|own| format!("{MODEL}{}", own.name)));
        Ok(names)
    }

    /// The graph of a model that is here.
    pub(super) fn graph(&self, model: Digest) -> Result<Graph, TaskError> {
        if self.names_of(model)?.is_empty() {
            return Err(TaskError::unavailable(format!(
                "this node does not have model {}",
                model.short()
            )));
        }
        let bytes = self.home.store()?.blobs().read(&model)?;
        Graph::read(bytes, self.models.limits()).map_err(TaskError::from)
    }

    /// The stage. What of the model is in it is loaded for the processor, or given back where it is to run on the GPU.
    fn read(&self, cut: &Cut, stage: u8, on_gpu: bool) -> Result<(Stage, Option<Bytes>), TaskError> {
        let graph = self.graph(cut.model)?;
        let stages = stages_of_nodes(&graph, cut)?;
        let last = stages.iter().max().copied().unwrap_or_default();
        let stage = usize::from(stage);
        if stage > last {
            return Err(
                TaskError::invalid(format!("stage {stage} of a model that has {}", last + 1))
                    .with_field("stage"),
            );
        }
        let name = |edge: usize| graph.edges()[edge].info.name.clone();
        let crossing = graph.crossing(&stages).map_err(cut_error)?;
        let made = |edge: &usize| graph.edges()[*edge].from.is_none_or(|node| stages[node] <= stage);
        let mut passes_on: Vec<String> = graph
            .outputs()
            .iter()
            .filter(|edge| made(edge))
            .map(|edge| name(*edge))
            .collect();
        for edge in crossing.get(stage).into_iter().flatten() {
            if !passes_on.contains(&name(*edge)) {
                passes_on.push(name(*edge));
            }
        }
        let mut fragments = graph.split(&stages).map_err(cut_error)?;
        let fragment = fragments.iter().position(|fragment| fragment.stage == stage);
        let fragment = fragment.map(|at| fragments.swap_remove(at));
        let results = graph
            .outputs()
            .iter()
            .map(|edge| graph.edges()[*edge].info.clone())
            .collect();
        // What is loaded next needs the room.
        drop((graph, fragments));
        let takes = fragment.iter().flat_map(|fragment| fragment.inputs.clone());
        let takes = takes.collect();
        let part = fragment.map(|fragment| fragment.model);
        let bytes = part.as_ref().map_or(0, |part| part.len() as u64);
        let (here, there) = match on_gpu {
            true => (None, part),
            false => (part, None),
        };
        let stage = Stage {
            takes,
            model: here.map(|part| self.models.load(&part)).transpose()?,
            warmed_up: OnceCell::new(),
            passes_on,
            results,
            onward: Arc::default(),
            back: Arc::default(),
            is_last: stage == last,
            bytes,
            names: self.names_of(cut.model)?,
        };
        Ok((stage, there))
    }
}

impl Stage {
    /// Runs it once on nothing in particular, if nobody has yet.
    async fn warm_up(&self) {
        let Some(model) = &self.model else { return };
        let run = async || {
            if let Err(error) = model.warm_up().await {
                tracing::debug!(%error, "the first request meets a stage that has not run yet");
            }
        };
        self.warmed_up.get_or_init(run).await;
    }

    /// Runs it on what has come so far: what those after it need, and how long the model ran.
    pub(super) async fn run(
        &self,
        mut held: Tensors,
        meanwhile: Meanwhile,
    ) -> Result<(Tensors, Duration), TaskError> {
        let mut inputs = Vec::with_capacity(self.takes.len());
        for info in &self.takes {
            let tensor = held.iter().find(|(name, _)| *name == info.name);
            let (name, tensor) = tensor.ok_or_else(|| wrong(&info.name, "it is missing"))?;
            check(info, tensor)?;
            inputs.push((name.clone(), tensor.clone()));
        }
        let mut took = Duration::ZERO;
        if let Some(model) = &self.model {
            let (outputs, time) = model.run_timed(inputs, meanwhile).await?;
            held.extend(outputs);
            took = time;
        }
        let mut passed_on = Vec::with_capacity(self.passes_on.len());
        for name in &self.passes_on {
            let at = held.iter().position(|(held, _)| held == name);
            passed_on.push(held.swap_remove(at.ok_or_else(|| wrong(name, "it is missing"))?));
        }
        Ok((passed_on, took))
    }

    /// Whether these are what the whole model gives.
    pub(super) fn judge(&self, results: &Tensors) -> Result<(), TaskError> {
        for info in &self.results {
            let result = results.iter().find(|(name, _)| *name == info.name);
            check(info, &result.ok_or_else(|| wrong(&info.name, "it is missing"))?.1)?;
        }
        Ok(())
    }
}

/// The stage of each node of the graph.
fn stages_of_nodes(graph: &Graph, cut: &Cut) -> Result<Vec<usize>, TaskError> {
    let layers = graph.layers();
    let (given, has) = (cut.stage_of_layer.len(), layers.layers.len());
    if given != has {
        return Err(
            TaskError::invalid(format!("{given} stages for a model of {has} layers")).with_field("cut"),
        );
    }
    let of_layer: Vec<usize> = cut.stage_of_layer.iter().copied().map(usize::from).collect();
    layers.stages(&of_layer).map_err(cut_error)
}

fn check(info: &TensorInfo, tensor: &karman_tensor::Tensor) -> Result<(), TaskError> {
    match tensor.element() == info.element && info.accepts(tensor.shape()) {
        true => Ok(()),
        false => Err(wrong(
            &info.name,
            &format!("it is {} {}, not {info}", tensor.element(), tensor.shape()),
        )),
    }
}

fn wrong(tensor: &str, why: &str) -> TaskError {
    TaskError::invalid(format!("tensor `{tensor}`: {why}")).with_field("tensors")
}

pub(super) fn cut_error(error: karman_infer::graph::CutError) -> TaskError {
    TaskError::invalid(error.to_string()).with_field("cut")
}
