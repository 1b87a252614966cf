//! Times layers, fragments and models on a back-end.

use super::{LayerProfile, Origin, Profile, Timing};
use crate::graph::{CutError, Graph};
use crate::{Backend, InferError, LoadOptions, Model, Named};
use fastrand::Rng;
use karman_tensor::encode::{Encoded, Encoding};
use karman_tensor::{ElementType, Tensor};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// How something is timed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ProfileOptions {
    /// Runs that do not count. Default 5.
    pub warm_up: u32,
    /// Runs that do, at least 1. Default 20.
    pub runs: u32,
    /// Before each run of the whole that counts. Requests come one by one: between them others use the caches, and the clock of the
    /// processor slows down. A model that is timed run after run looks faster than it is when it is asked: `digits-l` takes 0.06 ms on
    /// tract then, and 0.27 ms after a pause. Default 20 ms.
    pub pause: Duration,
    /// Items in each run. Default 1.
    pub batch: u32,
    /// Of the random input. Default 1.
    pub seed: u64,
}

impl Default for ProfileOptions {
    fn default() -> Self {
        Self {
            warm_up: 5,
            runs: 20,
            pause: Duration::from_millis(20),
            batch: 1,
            seed: 1,
        }
    }
}

impl Profile {
    /// Times every layer of a model alone, on what it takes in the whole, and the whole. Blocks for as long as that takes: about
    /// twice `warm_up + runs` runs, the pauses before those of the whole, and loading every layer once. One of them is loaded at a time.
    ///
    /// A layer that its back-end does not run alone is in the profile with the reason.
    ///
    /// # Errors
    /// Those of [`Backend::load`] and [`Model::run`] on the whole.
    pub fn measure(
        graph: &Graph,
        backend: &dyn Backend,
        load: &LoadOptions,
        options: &ProfileOptions,
    ) -> Result<Self, InferError> {
        let (inputs, whole) = whole(graph, backend, load, options)?;
        let held = activations(graph, backend, load, inputs)?;
        let mut times = alone(graph, backend, load, options, &held)?.into_iter();
        let next = |_: &LayerProfile| times.next().unwrap_or_else(|| Timing::unavailable("not timed"));
        let (layers, mut edges) = Self::sized(graph, options.batch, next);
        // What the inputs of a model are like, its samples do not say.
        for edge in edges.iter_mut().filter(|edge| edge.from.is_some()) {
            edge.packed_bytes = held.get(&edge.name).and_then(packed);
        }
        Ok(Self {
            model: graph.digest(),
            backend: backend.name(),
            version: backend.version().into(),
            threads: u32::try_from(load.threads.get()).unwrap_or(u32::MAX),
            batch: options.batch,
            layers,
            edges,
            whole,
        })
    }
}

/// Inputs for the whole model, and its time on them.
fn whole(
    graph: &Graph,
    backend: &dyn Backend,
    load: &LoadOptions,
    options: &ProfileOptions,
) -> Result<(Named, Timing), InferError> {
    let model = backend.load(&graph.whole().model, load)?;
    let inputs = sample_inputs(&*model, options.batch, options.seed)?;
    let timing = time(&*model, &inputs, options)?;
    Ok((inputs, timing))
}

/// These inputs and all that crosses between layers, computed once by the whole.
fn activations(
    graph: &Graph,
    backend: &dyn Backend,
    load: &LoadOptions,
    inputs: Named,
) -> Result<HashMap<String, Tensor>, InferError> {
    let layers = graph.layers();
    let inner: Vec<usize> = layers
        .edges
        .iter()
        .filter(|edge| edge.from.is_some() && !edge.to.is_empty())
        .map(|edge| edge.edge)
        .collect();
    let mut held: HashMap<String, Tensor> = inputs.into_iter().collect();
    if !inner.is_empty() {
        let tapped = graph.tapped(&inner);
        let tapped = tapped.map_err(|error| rejected(backend, &error))?;
        let tapped = backend.load(&tapped.model, load)?;
        held.extend(tapped.run(pick(&*tapped, &held))?);
    }
    Ok(held)
}

/// The bytes that are left of a tensor when it is packed without loss.
fn packed(tensor: &Tensor) -> Option<u64> {
    let numbers = tensor.view::<f32>().ok()?;
    let bytes = |encoding| {
        let array = Encoded::encode(tensor.shape(), numbers, encoding).ok()?;
        Some(array.pack().wire_bytes() as u64)
    };
    let least = bytes(Encoding::F32)?.min(bytes(Encoding::NonZero)?);
    Some(least.min(tensor.bytes().len() as u64))
}

fn rejected(backend: &dyn Backend, error: &CutError) -> InferError {
    InferError::Rejected {
        backend: backend.name(),
        reason: error.to_string(),
    }
}

/// The time of each layer on what it takes in the whole.
fn alone(
    graph: &Graph,
    backend: &dyn Backend,
    load: &LoadOptions,
    options: &ProfileOptions,
    held: &HashMap<String, Tensor>,
) -> Result<Vec<Timing>, InferError> {
    let wrong = |error: CutError| rejected(backend, &error);
    // Only their shares in the whole count.
    let options = &ProfileOptions {
        pause: Duration::ZERO,
        ..options.clone()
    };
    let layers = graph.layers();
    let stages: Vec<usize> = (0..layers.layers.len()).collect();
    let one = |model: &[u8]| {
        let model = backend.load(model, load)?;
        time(&*model, &pick(&*model, held), options)
    };
    // A layer that only dequantises is done again wherever its result is used, and takes no time of its own.
    let mut times = vec![Timing::of(vec![0.0]); stages.len()];
    let stages = layers.stages(&stages).map_err(wrong)?;
    for fragment in graph.fragments(&stages).map_err(wrong)? {
        let timed = one(&fragment.model);
        times[fragment.stage] = timed.unwrap_or_else(|error| Timing::unavailable(error.to_string()));
    }
    Ok(times)
}

/// What a model takes, out of what is there.
fn pick(model: &dyn Model, held: &HashMap<String, Tensor>) -> Named {
    let names = model.inputs().iter().map(|info| &info.name);
    names
        .filter_map(|name| Some((name.clone(), held.get(name)?.clone())))
        .collect()
}

/// Runs a model on these inputs and gives the median time of a run.
///
/// # Errors
/// Those of [`Model::run`].
#[expect(
    clippy::disallowed_methods,
    reason = "it blocks for as long as the runs take anyway, and says so"
)]
pub fn time(model: &dyn Model, inputs: &Named, options: &ProfileOptions) -> Result<Timing, InferError> {
    for _ in 0..options.warm_up {
        model.run(inputs.clone())?;
    }
    let mut seconds = Vec::new();
    for _ in 0..options.runs.max(1) {
        std::thread::sleep(options.pause);
        let start = Instant::now();
        model.run(inputs.clone())?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(Timing::of(seconds))
}

impl Timing {
    /// The median of measured times and their quartiles.
    pub fn of(mut seconds: Vec<f64>) -> Self {
        seconds.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = seconds.len().saturating_sub(1) as f64;
            let time = seconds.get((last * share).round() as usize);
            time.copied().unwrap_or_default()
        };
        match u32::try_from(seconds.len()) {
            Ok(0) => Self::unavailable("not timed"),
            runs => Self {
                seconds: at(0.5),
                low: at(0.25),
                high: at(0.75),
                origin: Origin::Measured {
                    runs: runs.unwrap_or(u32::MAX),
                },
            },
        }
    }
}

/// Inputs of the right type and shape: numbers of mean 0 and variance 1, whole numbers that are 0. Open dimensions get this
/// size.
///
/// # Errors
/// [`InferError::OpenDimension`] when the model does not say how many dimensions an input has.
pub fn sample_inputs(model: &dyn Model, batch: u32, seed: u64) -> Result<Named, InferError> {
    sample(model.inputs(), batch, seed)
}

/// The same for a model that takes these.
///
/// # Errors
/// Those of [`sample_inputs`].
pub fn sample(inputs: &[crate::TensorInfo], batch: u32, seed: u64) -> Result<Named, InferError> {
    let mut rng = Rng::with_seed(seed);
    let one = |info: &crate::TensorInfo| {
        let open = || InferError::OpenDimension {
            input: info.name.clone(),
            dimension: String::new(),
        };
        let shape = info.shape_with(Some(batch)).ok_or_else(open)?;
        let elements = shape.elements().unwrap_or_default();
        let given = |reason| InferError::Output {
            name: info.name.clone(),
            reason,
        };
        let bytes = Tensor::bytes_of(info.element, shape).map_err(given)?;
        let tensor = match info.element {
            ElementType::F32 => {
                let reach = 3f32.sqrt();
                let values: Vec<f32> = (0..elements).map(|_| reach * (2.0 * rng.f32() - 1.0)).collect();
                Tensor::from_slice(shape, &values)
            }
            other => Tensor::new(other, shape, &vec![0; bytes]),
        };
        Ok((info.name.clone(), tensor.map_err(given)?))
    };
    inputs.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendName, ModelLimits, TensorInfo, Tract};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Counts the models that are loaded, and the most that were at once.
    #[derive(Clone, Default)]
    struct Counted(Arc<[AtomicUsize; 2]>);

    struct One {
        model: Arc<dyn Model>,
        counted: Counted,
    }

    impl Backend for Counted {
        fn name(&self) -> BackendName {
            BackendName::Tract
        }

        fn version(&self) -> &str {
            Tract.version()
        }

        fn load(&self, bytes: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError> {
            let model = Tract.load(bytes, options)?;
            let [now, most] = &*self.0;
            most.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            let counted = self.clone();
            Ok(Arc::new(One { model, counted }))
        }
    }

    impl Model for One {
        fn backend(&self) -> BackendName {
            self.model.backend()
        }

        fn inputs(&self) -> &[TensorInfo] {
            self.model.inputs()
        }

        fn outputs(&self) -> &[TensorInfo] {
            self.model.outputs()
        }

        fn run(&self, inputs: Named) -> Result<Named, InferError> {
            self.model.run(inputs)
        }
    }

    impl Drop for One {
        fn drop(&mut self) {
            self.counted.0[0].fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn one_model_is_loaded_at_a_time() {
        let file = crate::zoo::Architecture::AlexNet.generate(&crate::zoo::Variant {
            input: 64,
            narrower: 16,
            classes: 10,
            ..crate::zoo::Variant::default()
        });
        let graph = Graph::read(file, &ModelLimits::default()).unwrap();
        let options = ProfileOptions {
            warm_up: 0,
            runs: 1,
            ..ProfileOptions::default()
        };
        let counted = Counted::default();
        let profile = Profile::measure(&graph, &counted, &LoadOptions::default(), &options).unwrap();
        assert!(profile.is_measured());
        let [now, most] = &*counted.0;
        assert_eq!(
            (now.load(Ordering::Relaxed), most.load(Ordering::Relaxed)),
            (0, 1)
        );
    }

    #[test]
    fn the_median_counts_and_not_the_mean() {
        let time = Timing::of(vec![9.0, 1.0, 2.0, 4.0, 3.0]);
        assert_eq!((time.low, time.seconds, time.high), (2.0, 3.0, 4.0));
        assert_eq!(time.origin, Origin::Measured { runs: 5 });
        let none = Timing::of(Vec::new());
        assert!(matches!(none.origin, Origin::Unavailable { .. }), "{none:?}");
    }
}
