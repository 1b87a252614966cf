mod for_plugins;
mod found;

pub(crate) use found::Found;

use super::batches::Batches;
use super::gpu_models::{Unfit, no_gpu_for};
use super::pace::Pace;
use super::turns::Turns;
use super::{GpuUse, Loaded, NodeCompute, blocking};
use crate::config::{BackendChoice, BatchConfig, ComputeProfile, ModelDevice};
use crate::home::Home;
use found::Known;
use karman_engine::capability::nn::Model;
use karman_infer::{Backend, BackendName, Backends, LoadOptions, ModelLimits};
use karman_store::ModelExit;
use karman_tensor::ElementType;
use karman_types::{Digest, TaskError};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Models that stay loaded; one more drops all that nobody uses.
const MOST_LOADED: usize = 32;
/// What all sessions or plans of one model may take together, by the length of its file: each has its own copy of the weights. A
/// larger model has one: its runs follow one another on ONNX Runtime, and tract plans anew where inputs of another shape come.
const MOST_IN_COPIES: u64 = 64 << 20;
/// Plans of a model, one for each set of input shapes, besides those for each size of its batches.
const PLANS: usize = 4;
/// Models that are loaded for the processor at the same time, at most: each takes several times its memory until it is.
const LOADS: usize = 4;

/// Where back-ends come from: which one, and the program that tries them first.
#[derive(Clone, Debug)]
pub struct ModelSource {
    /// Which back-end.
    pub backend: BackendChoice,
    /// The ONNX Runtime library, when the operator named one.
    pub onnxruntime: Option<PathBuf>,
    /// This program: it is run as a child to try drivers and foreign models before they are let in here.
    pub program: Option<PathBuf>,
    /// What a model of this node may ask of the machine.
    pub limits: ModelLimits,
    /// How fast it is made to be.
    pub pace: ComputeProfile,
    /// Which models of this node run in batches.
    pub batches: BTreeMap<String, BatchConfig>,
}

/// The models of this node, each loaded once and shared.
pub struct NodeModels {
    home: Home,
    source: ModelSource,
    backends: OnceLock<Backends>,
    loaded: Mutex<HashMap<Key, Loaded>>,
    /// Held by who loads a model for the processor, by the first byte of its digest: who asks for the same model meanwhile finds it ready then.
    loads: [Arc<tokio::sync::Mutex<()>>; LOADS],
    known: RwLock<Known>,
    pace: Arc<Pace>,
    /// The GPU, and which models run on it.
    pub(super) compute: Arc<NodeCompute>,
    /// Held by who makes a model ready that does not simply run on the processor.
    pub(super) readying: tokio::sync::Mutex<()>,
    /// Models that the GPU cannot run and the processor may not.
    unfit: RwLock<Unfit>,
    /// Why models did not load when they were last asked for, by name, each with what was to be loaded.
    failed: RwLock<HashMap<String, (Digest, TaskError)>>,
    /// Where requests for the same model are run together; nothing where its operator has none so.
    pub(super) batches: Option<Batches>,
    /// Models that are run in parts, over several nodes.
    diverted: RwLock<HashMap<String, Arc<dyn Model>>>,
}

/// The file of a model or an exit of it, and what its operator has it run on.
pub(super) type Key = (Digest, Option<ModelDevice>);

impl NodeModels {
    pub(crate) fn new(home: Home, source: ModelSource, compute: Arc<NodeCompute>) -> Arc<Self> {
        // A node that is made slower does one thing after the other.
        let at_once = match source.pace.slowdown > 1.0 {
            true => 1,
            false => (cores().get() / source.pace.threads.get()).max(1),
        };
        Arc::new(Self {
            home,
            compute,
            batches: Batches::new(&source.batches, at_once),
            readying: tokio::sync::Mutex::default(),
            unfit: RwLock::default(),
            failed: RwLock::default(),
            pace: Arc::new(Pace::new(&source.pace)),
            diverted: RwLock::default(),
            source,
            backends: OnceLock::new(),
            loaded: Mutex::default(),
            loads: Default::default(),
            known: RwLock::default(),
        })
    }

    /// How much the node's GPU is used: by its models and by plugins, which share it.
    pub fn gpu_use(&self) -> GpuUse {
        self.compute.used()
    }

    /// What this process runs models with, detected when first asked for.
    pub fn backends(&self) -> &Backends {
        self.backends.get_or_init(|| {
            let (library, program) = (self.source.onnxruntime.as_deref(), self.source.program.clone());
            Backends::detect(&self.source.backend.options(library, program))
        })
    }

    fn options(&self) -> LoadOptions {
        LoadOptions {
            backend: self.source.backend.name(),
            threads: match self.slowdown() > 1.0 {
                true => NonZeroUsize::MIN,
                false => self.source.pace.threads,
            },
            limits: self.source.limits.clone(),
            ..LoadOptions::default()
        }
    }

    /// The same for a file of this length: as many runs at once as two for each core, and a plan for each size of a batch, where that
    /// takes not too much memory.
    fn options_for(&self, bytes: u64) -> LoadOptions {
        let fit = copies(bytes);
        LoadOptions {
            sessions: fit.min(at_once()),
            plans: fit.min(self.plans()),
            ..self.options()
        }
    }

    /// A batch has one of the sizes that are measured, each about twice the one before.
    fn plans(&self) -> NonZeroUsize {
        let largest = self.batches.as_ref().map_or(1, Batches::most);
        let plans = PLANS + largest.ilog2() as usize;
        NonZeroUsize::new(plans).unwrap_or(NonZeroUsize::MIN)
    }

    /// What a model of this node may ask of the machine.
    pub(crate) const fn limits(&self) -> &ModelLimits {
        &self.source.limits
    }

    /// Loads a model that is no task's own: a part of one.
    pub(crate) fn load(&self, onnx: &[u8]) -> Result<Loaded, TaskError> {
        let options = self.options_for(onnx.len() as u64);
        let model = self.backends().load(onnx, &options)?;
        Ok(self.paced(model, onnx, &options))
    }

    /// A model that was loaded from this file, at the pace of this node.
    fn paced(&self, model: Arc<dyn karman_infer::Model>, onnx: &[u8], options: &LoadOptions) -> Loaded {
        // tract runs as many as it is asked to, on the cores that there are.
        let at_once = match model.backend() {
            BackendName::OnnxRuntime => options.sessions,
            BackendName::Tract => at_once(),
        };
        let undisturbed = self.pace.undisturbed(onnx, model.backend());
        let turns = Turns::new(at_once.get(), cores().get()).knowing(undisturbed);
        Loaded::on_processor(model, self.pace.clone(), Arc::new(turns))
    }

    /// The back-end of choice, and how it is to load.
    pub(crate) fn chosen(&self) -> Result<(&dyn Backend, LoadOptions), TaskError> {
        let options = self.options();
        Ok((self.backends().get(options.backend)?, options))
    }

    /// What this node has under a name, ready where its operator has it run, loaded now where it was not; and the digest of its file.
    pub(crate) async fn named(self: &Arc<Self>, name: &str) -> Result<(Loaded, Digest), TaskError> {
        let found = self.found(name)?;
        let loaded = self.alone(name, found.clone()).await?;
        let digest = found.model.digest;
        Ok((self.in_batches(name, &found, loaded), digest))
    }

    /// The same, each of whose requests runs by itself.
    pub(super) async fn alone(self: &Arc<Self>, name: &str, found: Arc<Found>) -> Result<Loaded, TaskError> {
        let (digest, device) = (found.digest, self.device_of(name));
        if let Some(loaded) = self.ready((digest, device)) {
            if loaded.is_due() {
                self.measure_again(name, found, loaded.clone());
            }
            return Ok(loaded);
        }
        let loaded = self.load_now(name, found, device).await;
        self.note(name, digest, loaded.as_ref().err());
        loaded
    }

    async fn load_now(
        self: &Arc<Self>,
        name: &str,
        found: Arc<Found>,
        device: Option<ModelDevice>,
    ) -> Result<Loaded, TaskError> {
        let models = self.clone();
        let Some(device) = device else {
            let turn = usize::from(found.digest.as_bytes()[0]) % LOADS;
            let alone = self.loads[turn].clone().lock_owned().await;
            return blocking(move || {
                // Also where nobody waits for it any more.
                let _alone = alone;
                models.load_found(&found)
            })
            .await;
        };
        let name = name.to_owned();
        // It goes on where who asked has no time left: the next one finds it ready.
        let loading = tokio::spawn(async move { models.load_for(device, &name, found).await });
        let failed = |error: tokio::task::JoinError| {
            Err(TaskError::internal(format!(
                "a model was not made ready: {error}"
            )))
        };
        loading.await.unwrap_or_else(failed)
    }

    /// What came of loading a model.
    fn note(&self, name: &str, digest: Digest, failed: Option<&TaskError>) {
        let mut all = self.failed.write();
        match failed {
            Some(error) => drop(all.insert(name.to_owned(), (digest, error.clone()))),
            None => drop(all.remove(name)),
        }
    }

    /// What the operator has a model run on; nothing said: the processor. Up to an exit it runs where all of it does.
    pub(crate) fn device_of(&self, name: &str) -> Option<ModelDevice> {
        let said = |name: &str| self.compute.config().model(name);
        said(name).or_else(|| said(ModelExit::parse(name)?.0))
    }

    /// Whether the processor of this node does all of its runs: it is neither run in parts nor on a GPU.
    pub(crate) fn is_on_processor(&self, name: &str) -> bool {
        self.device_of(name).is_none() && !self.diverted.read().contains_key(name)
    }

    /// What keeps a model of this node from the GPU on which its operator has it run: requests for it are refused.
    pub(super) fn unfit(&self, name: &str, digest: Digest) -> Option<TaskError> {
        self.unfit.read().get(&(name.to_owned(), digest)).cloned()
    }

    /// Why requests for a model of this node are refused, as far as that is known: nothing is tried for it.
    pub(crate) fn refused(&self, name: &str, digest: Digest) -> Option<TaskError> {
        if self.diverted.read().contains_key(name) {
            return None;
        }
        let device = self.device_of(name);
        let absent = || {
            let error = (device == Some(ModelDevice::Gpu)).then(|| self.compute.absent())??;
            Some(no_gpu_for(name, &error))
        };
        let failed = || {
            let failed = self.failed.read();
            let (of, error) = failed.get(name)?;
            (*of == digest && self.ready((digest, device)).is_none()).then(|| error.clone())
        };
        self.unfit(name, digest).or_else(absent).or_else(failed)
    }

    pub(super) fn set_unfit(&self, unfit: Unfit) {
        *self.unfit.write() = unfit;
    }

    /// What a model of this node runs on, in words, as far as it was ever asked for.
    pub(crate) fn runs_on(&self, name: &str, digest: Digest) -> String {
        if let Some(model) = self.diverted.read().get(name) {
            return model.runs_on();
        }
        let device = self.device_of(name);
        let on = match (self.ready((digest, device)), device) {
            (Some(loaded), _) => loaded.words(),
            (None, None) => "cpu".to_owned(),
            (None, Some(ModelDevice::Gpu)) => "gpu".to_owned(),
            (None, Some(ModelDevice::Auto)) => "gpu or cpu (auto: not measured yet)".to_owned(),
        };
        match self.batches.as_ref().and_then(|batches| batches.words(name)) {
            Some(batches) => format!("{on}; {batches}"),
            None => on,
        }
    }

    /// The inputs of a model of this node, each with its type.
    pub(crate) async fn inputs_of(
        self: &Arc<Self>,
        name: &str,
    ) -> Result<Vec<(String, ElementType)>, TaskError> {
        let (loaded, _) = self.named(name).await?;
        let inputs = loaded.signature().0.iter();
        Ok(inputs.map(|input| (input.name.clone(), input.element)).collect())
    }

    /// How many times slower than the machine it is made to be.
    pub(crate) fn slowdown(&self) -> f64 {
        self.pace.slowdown()
    }

    /// From now on tasks that load this model get another one; or its own file again.
    pub(crate) fn divert(&self, name: &str, to: Option<Arc<dyn Model>>) {
        let mut diverted = self.diverted.write();
        match to {
            Some(to) => drop(diverted.insert(name.to_owned(), to)),
            None => drop(diverted.remove(name)),
        }
    }

    /// A model for the processor.
    fn load_found(&self, found: &Found) -> Result<Loaded, TaskError> {
        let key = (found.digest, None);
        if let Some(loaded) = self.ready(key) {
            return Ok(loaded);
        }
        let loaded = self.load(&self.onnx(found)?)?.up_to(found.depth());
        self.keep(key, &loaded);
        Ok(loaded)
    }

    /// A model that was loaded before.
    pub(super) fn ready(&self, key: Key) -> Option<Loaded> {
        self.loaded.lock().get(&key).cloned()
    }

    /// Keeps a model for who asks next.
    pub(super) fn keep(&self, key: Key, loaded: &Loaded) {
        let mut all = self.loaded.lock();
        if all.len() >= MOST_LOADED {
            all.retain(|_, loaded| loaded.is_used());
        }
        all.insert(key, loaded.clone());
    }

    /// The node's folder.
    pub(super) const fn home(&self) -> &Home {
        &self.home
    }
}

/// How many copies there may be of the weights of a file of this length, at least one.
fn copies(bytes: u64) -> NonZeroUsize {
    let fit = usize::try_from(MOST_IN_COPIES / bytes.max(1)).unwrap_or(usize::MAX);
    NonZeroUsize::new(fit).unwrap_or(NonZeroUsize::MIN)
}

fn cores() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Runs of a model at once: one for each core that others do, and one for each core of those that are done where they are asked for.
fn at_once() -> NonZeroUsize {
    cores().saturating_mul(const { NonZeroUsize::new(2).unwrap() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::logs::LogRing;
    use crate::node::Node;
    use crate::runtime::RuntimeOptions;
    use futures::future::join_all;
    use karman_store::ModelInfo;
    use std::collections::HashSet;

    #[test]
    fn a_large_model_has_few_copies_of_its_weights() {
        assert_eq!(
            [14 << 20, 64 << 20, 100 << 20].map(|bytes| copies(bytes).get()),
            [4, 1, 1]
        );
        assert!(copies(0).get() >= 1 << 20);
    }
    #[tokio::test(flavor = "multi_thread")]
    async fn who_asks_at_once_gets_the_same_model() {
        let folder = tempfile::tempdir().unwrap();
        let options = RuntimeOptions {
            state: folder.path().join("state"),
            cache: folder.path().join("cache"),
            program: None,
        };
        let node = Node::start(NodeConfig::default(), options, LogRing::default());
        let node = node.await.unwrap();
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/digits-s.onnx");
        let file = std::fs::read(file).unwrap();
        let added = node.add_model("digits-s", file.into(), ModelInfo::default());
        added.await.unwrap();
        let models = node.runtime().models();
        let asked = join_all((0..8).map(|_| models.named("digits-s"))).await;
        let asked: Vec<Loaded> = asked.into_iter().map(|loaded| loaded.unwrap().0).collect();
        let places = asked.iter().map(|loaded| loaded.signature().0.as_ptr());
        assert_eq!(places.collect::<HashSet<_>>().len(), 1);
    }
}
