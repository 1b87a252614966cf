//! A model that was cut, run as a whole.

use crate::graph::{Fragment, Graph};
use crate::{Backend, BackendName, InferError, LoadOptions, Model, TensorInfo, inputs};
use karman_tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// The fragments of a model, loaded on one back-end and run one after the other. It takes and gives what the whole model does.
/// Each fragment keeps its own sessions and plans, which serve every run.
pub struct Staged {
    backend: BackendName,
    options: LoadOptions,
    stages: Vec<Arc<dyn Model>>,
    inputs: Vec<TensorInfo>,
    outputs: Vec<TensorInfo>,
}

impl Staged {
    /// Loads the fragments of this graph, each with these options.
    ///
    /// # Errors
    /// Those of [`Backend::load`].
    pub fn load(
        graph: &Graph,
        fragments: &[Fragment],
        backend: &dyn Backend,
        options: &LoadOptions,
    ) -> Result<Self, InferError> {
        let infos = |edges: &[usize]| {
            edges
                .iter()
                .map(|edge| graph.edges()[*edge].info.clone())
                .collect()
        };
        Ok(Self {
            backend: backend.name(),
            options: options.clone(),
            stages: fragments
                .iter()
                .map(|fragment| backend.load(&fragment.model, options))
                .collect::<Result<_, _>>()?,
            inputs: infos(graph.inputs()),
            outputs: infos(graph.outputs()),
        })
    }

    /// The fragments, in order.
    pub fn stages(&self) -> &[Arc<dyn Model>] {
        &self.stages
    }
}

impl Model for Staged {
    fn backend(&self) -> BackendName {
        self.backend
    }

    fn inputs(&self) -> &[TensorInfo] {
        &self.inputs
    }

    fn outputs(&self) -> &[TensorInfo] {
        &self.outputs
    }

    fn run(&self, given: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, InferError> {
        let given = inputs::arrange(&self.inputs, given, &self.options.limits)?;
        let names = self.inputs.iter().map(|info| info.name.clone());
        // A tensor's clone shares its elements.
        let mut held: HashMap<String, Tensor> = names.zip(given).collect();
        let take = |held: &HashMap<String, Tensor>, info: &TensorInfo| {
            let tensor = held.get(&info.name).cloned();
            let tensor = tensor.ok_or_else(|| InferError::Run {
                backend: self.backend,
                reason: format!("no fragment gives `{}`", info.name),
            })?;
            Ok((info.name.clone(), tensor))
        };
        for stage in &self.stages {
            let inputs = stage.inputs().iter().map(|info| take(&held, info));
            held.extend(stage.run(inputs.collect::<Result<_, InferError>>()?)?);
        }
        self.outputs.iter().map(|info| take(&held, info)).collect()
    }
}
