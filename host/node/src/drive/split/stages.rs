//! The parts of models that this node runs.

use super::encodings::Encodings;
use super::wire::Cut;
use crate::home::Home;
use crate::services::{Loaded, Meanwhile, NodeModels, blocking, store_error};
use bytes::Bytes;
use karman_engine::capability::nn::Tensors;
use karman_infer::TensorInfo;
use karman_infer::graph::Graph;
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Stages that stay loaded. One more drops the one that was not used for longest.
const MOST_READY: usize = 64;

/// A stage of a cut that is loaded.
type Ready = ((Cut, u8), Arc<Stage>);

/// The stages that this node has ready.
pub(crate) struct Stages {
    home: Home,
    models: Arc<NodeModels>,
    /// The last one was used last.
    ready: Mutex<VecDeque<Ready>>,
}

/// A part of a model, ready to run.
pub(super) struct Stage {
    /// Nothing where no layer is in it: what comes is passed on.
    model: Option<Loaded>,
    takes: Vec<TensorInfo>,
    /// What those after it need, and what is a result already.
    pub(super) passes_on: Vec<String>,
    /// What the whole model gives.
    pub(super) results: Vec<TensorInfo>,
    /// How what it passes on travels.
    pub(super) encodings: Encodings,
    pub(super) is_last: bool,
}

impl Stages {
    pub(crate) fn new(home: Home, models: Arc<NodeModels>) -> Self {
        Self {
            home,
            models,
            ready: Mutex::default(),
        }
    }

    /// The stage, loaded now where it was not.
    pub(super) async fn get(self: &Arc<Self>, cut: &Cut, stage: u8) -> Result<Arc<Stage>, TaskError> {
        let known = |entry: &Ready| entry.0.0 == *cut && entry.0.1 == stage;
        {
            let mut ready = self.ready.lock();
            if let Some(at) = ready.iter().position(known)
                && let Some(entry) = ready.remove(at)
            {
                let stage = entry.1.clone();
                ready.push_back(entry);
                return Ok(stage);
            }
        }
        let on_gpu = self.models.on_gpu_by_file(cut.model).await?.is_some();
        let (stages, key) = (self.clone(), (cut.clone(), stage));
        let (mut loaded, part) = blocking(move || stages.load(&key.0, key.1, on_gpu)).await?;
        if let Some(part) = part {
            loaded.model = Some(self.models.part_on_gpu(cut.model, part).await?);
        }
        let loaded = Arc::new(loaded);
        let mut ready = self.ready.lock();
        if ready.len() >= MOST_READY {
            ready.pop_front();
        }
        ready.push_back(((cut.clone(), stage), loaded.clone()));
        Ok(loaded)
    }

    /// Whether the model's file is here: the operator's own, or visiting.
    pub(super) fn has(&self, model: Digest) -> Result<bool, TaskError> {
        let store = self.home.store()?;
        let visits = store.visiting().get(&model).map_err(store_error)?.is_some();
        let own = || store.models().list().map_err(store_error);
        Ok(visits || own()?.iter().any(|own| own.digest == model))
    }

    /// The graph of a model that is here.
    pub(super) fn graph(&self, model: Digest) -> Result<Graph, TaskError> {
        if !self.has(model)? {
            return Err(TaskError::unavailable(format!(
                "this node does not have model {}",
                model.short()
            )));
        }
        let bytes = self.home.store()?.blobs().read(&model).map_err(store_error)?;
        Graph::read(bytes, self.models.limits()).map_err(crate::services::infer_error)
    }

    /// The stage. What of the model is in it is loaded for the processor, or given back where it is to run on the GPU.
    fn load(&self, cut: &Cut, stage: u8, on_gpu: bool) -> Result<(Stage, Option<Bytes>), TaskError> {
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
        let (here, there) = match on_gpu {
            true => (None, part),
            false => (part, None),
        };
        let stage = Stage {
            takes,
            model: here.map(|part| self.models.load(&part)).transpose()?,
            passes_on,
            results,
            encodings: Encodings::default(),
            is_last: stage == last,
        };
        Ok((stage, there))
    }
}

impl Stage {
    /// Runs it on what has come so far: what those after it need, and how long the model ran.
    pub(super) async fn run(&self, mut held: Tensors) -> Result<(Tensors, Duration), TaskError> {
        let mut inputs = Vec::with_capacity(self.takes.len());
        for info in &self.takes {
            let tensor = held.iter().find(|(name, _)| *name == info.name);
            let (name, tensor) = tensor.ok_or_else(|| wrong(&info.name, "it is missing"))?;
            check(info, tensor)?;
            inputs.push((name.clone(), tensor.clone()));
        }
        let mut took = Duration::ZERO;
        if let Some(model) = &self.model {
            let (outputs, time) = model.run_timed(inputs, Meanwhile::Something).await?;
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
