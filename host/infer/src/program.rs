//! A model as one program of kernels, for a GPU.
//!
//! [`DeviceModel::read`] translates every operator of a graph, or none: what no kernel computes is refused by its name, and nothing
//! runs on the processor in its place. Weights become constants of the program, which a device is given once; batch normalisation goes
//! into the weights of its convolution, and what is done to every element into the kernel before it, where that can.
//!
//! | file | what |
//! |---|---|
//! | `translate` | node by node; which kernel an operator is |
//! | `layers`, `products`, `norms` | convolutions and pools; products of matrices; norms, softmax and what folds axes |
//! | `elements`, `activations` | arithmetic on elements; functions of one of them |
//! | `concat`, `rearrange` | tensors one after the other; their elements in another order |
//! | `feed` | from the inputs of a model to those of its program |
//! | `draft` | the program while it is written |

mod activations;
mod concat;
mod draft;
mod elements;
mod feed;
mod layers;
mod norms;
mod products;
mod rearrange;
mod translate;

use crate::graph::Graph;
use crate::outline::Outline;
use crate::{InferError, ModelLimits, TensorInfo, inputs};
use bytes::Bytes;
use feed::Feed;
use karman_gpu::{Device, GpuError, Program, Words, Work, floats};
use karman_tensor::{Shape, Tensor};
use karman_types::ByteSize;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Programs that are kept, one for each size of the batch.
const MOST_PROGRAMS: usize = 4;

/// A model whose every operator a device computes: a program for each size of the batch, made when it is first asked for.
pub struct DeviceModel {
    graph: Graph,
    outline: Outline,
    limits: ModelLimits,
    /// Of one program on its device.
    most: ByteSize,
    /// The latest used last.
    programs: Mutex<Vec<(u32, Translated)>>,
}

#[derive(Clone)]
struct Translated {
    program: Arc<Program>,
    /// What each input of the program is.
    feeds: Arc<[Feed]>,
    /// Of each output.
    shapes: Arc<[Shape]>,
}

/// One run of a [`DeviceModel`]: what a device is to do, and on what.
#[derive(Clone, Debug)]
pub struct DeviceRun {
    /// The program.
    pub program: Arc<Program>,
    /// Its inputs.
    pub inputs: Vec<Words>,
    shapes: Arc<[Shape]>,
}

impl DeviceModel {
    /// Translates a model whose programs may each take so much memory of a device. That for a batch of one is made now, so that what no
    /// kernel computes is known before anything runs.
    ///
    /// # Errors
    /// [`InferError::NotOnGpu`] for the first operator, type or size for which there is no kernel, [`InferError::Gpu`] for too much
    /// memory; those of [`Graph::read`].
    pub fn read(model: impl Into<Bytes>, limits: &ModelLimits, most: ByteSize) -> Result<Self, InferError> {
        let file = model.into();
        let model = Self {
            outline: Outline::read(&file, limits)?,
            graph: Graph::read(file, limits)?,
            limits: limits.clone(),
            most,
            programs: Mutex::default(),
        };
        model.translated(1)?;
        Ok(model)
    }

    /// What it takes, in the order of the model.
    pub fn inputs(&self) -> &[TensorInfo] {
        &self.outline.inputs
    }

    /// What it gives, in the order of the model.
    pub fn outputs(&self) -> &[TensorInfo] {
        &self.outline.outputs
    }

    /// What a device is to do for these inputs, given by name in any order.
    ///
    /// # Errors
    /// [`InferError::UnknownInput`], [`InferError::MissingInput`], [`InferError::Input`], [`InferError::EmptyDimension`],
    /// [`InferError::NoSuchRow`] and [`InferError::Limit`] when the inputs do not fit; those of [`DeviceModel::read`] for another batch than those before.
    pub fn prepare(&self, given: Vec<(String, Tensor)>) -> Result<DeviceRun, InferError> {
        let given = inputs::arrange(&self.outline.inputs, given, &self.limits)?;
        inputs::refuse_empty(&self.outline.inputs, &given)?;
        self.refuse_other_batch(&given)?;
        let first = given.first().map(Tensor::shape);
        let batch = match (self.graph.batch(), first) {
            (Some(_), Some(shape)) => shape.dims().first().copied().unwrap_or(1),
            _ => 1,
        };
        let Translated {
            program,
            feeds,
            shapes,
        } = self.translated(batch)?;
        let words = |feed: &Feed| feed.words(&given[feed.input], &self.outline.inputs[feed.input]);
        let inputs: Vec<Words> = feeds.iter().map(words).collect::<Result<_, _>>()?;
        let borrowed: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        program.check_inputs(&borrowed)?;
        Ok(DeviceRun {
            program,
            inputs,
            shapes,
        })
    }

    /// The outputs of a run by name, of what the device gave.
    ///
    /// # Errors
    /// [`InferError::Output`] when it gave something else than was asked for.
    pub fn finish(&self, run: &DeviceRun, given: &[Words]) -> Result<Vec<(String, Tensor)>, InferError> {
        let outputs = self.outline.outputs.iter().zip(run.shapes.iter()).zip(given);
        outputs
            .map(|((info, shape), words)| {
                let tensor = Tensor::from_slice(*shape, floats(words));
                let wrong = |reason| InferError::Output {
                    name: info.name.clone(),
                    reason,
                };
                Ok((info.name.clone(), tensor.map_err(wrong)?))
            })
            .collect()
    }

    /// Runs it on a device of one's own. Blocks.
    ///
    /// # Errors
    /// Those of [`DeviceModel::prepare`], and [`InferError::Gpu`] when the device fails.
    pub fn run(
        &self,
        device: &mut dyn Device,
        given: Vec<(String, Tensor)>,
        within: Duration,
    ) -> Result<Vec<(String, Tensor)>, InferError> {
        let run = self.prepare(given)?;
        let inputs: Vec<&[u32]> = run.inputs.iter().map(Vec::as_slice).collect();
        let done = device.run(&Work::Program(run.program.clone()), &inputs, within)?;
        self.finish(&run, &done.outputs)
    }

    /// Refuses another batch than one where the model says that it is open and the graph has fixed it.
    fn refuse_other_batch(&self, given: &[Tensor]) -> Result<(), InferError> {
        for (edge, tensor) in self.graph.inputs().iter().zip(given) {
            let input = &self.graph.edges()[*edge].info;
            if self.graph.batch().is_none() && !input.accepts(tensor.shape()) {
                return Err(InferError::Input {
                    input: input.clone(),
                    given: format!("{} {}", tensor.element(), tensor.shape()),
                });
            }
        }
        Ok(())
    }

    /// The program for this batch.
    fn translated(&self, batch: u32) -> Result<Translated, InferError> {
        let mut programs = self.programs.lock();
        if let Some(at) = programs.iter().position(|(of, _)| *of == batch) {
            programs[at..].rotate_left(1);
            return Ok(programs[programs.len() - 1].1.clone());
        }
        drop(programs);
        let translated = translate::translate(&self.graph, batch, &self.limits, self.most)?;
        let bytes = translated.program.bytes();
        if bytes > self.most.0 {
            return Err(too_large(bytes, self.most).into());
        }
        let mut programs = self.programs.lock();
        if programs.len() >= MOST_PROGRAMS {
            programs.remove(0);
        }
        programs.push((batch, translated.clone()));
        Ok(translated)
    }
}

/// More memory than a program may take on its device.
fn too_large(asked: u64, most: ByteSize) -> GpuError {
    GpuError::Memory {
        what: "the model with all its buffers".into(),
        asked,
        most: most.0,
    }
}

impl fmt::Debug for DeviceModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceModel")
            .field("outline", &self.outline)
            .finish_non_exhaustive()
    }
}
