use super::{blocking, store_error};
use crate::config::BackendChoice;
use crate::home::Home;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_engine::capability::nn::{Model, Models, Tensors};
use karman_infer::{
    BackendName, BackendOptions, Backends, InferError, LoadOptions, SearchPlaces, UseOnnxRuntime,
};
use karman_types::{Digest, TaskError};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// Models that stay loaded; one more drops all that nobody uses.
const MOST_LOADED: usize = 32;

/// Where back-ends come from: which one, and the program that tries them first.
#[derive(Clone, Debug)]
pub struct ModelSource {
    /// Which back-end.
    pub backend: BackendChoice,
    /// The ONNX Runtime library, when the operator named one.
    pub onnxruntime: Option<PathBuf>,
    /// This program: it is run as a child to try drivers and foreign models before they are let in here.
    pub program: Option<PathBuf>,
}

/// The models of this node, each loaded once and shared.
pub struct NodeModels {
    home: Home,
    source: ModelSource,
    backends: OnceLock<Backends>,
    loaded: Mutex<HashMap<Digest, Arc<Loaded>>>,
}

impl NodeModels {
    pub(crate) fn new(home: Home, source: ModelSource) -> Arc<Self> {
        Arc::new(Self {
            home,
            source,
            backends: OnceLock::new(),
            loaded: Mutex::default(),
        })
    }

    /// What this process runs models with, detected when first asked for.
    pub fn backends(&self) -> &Backends {
        self.backends.get_or_init(|| {
            let onnxruntime = match (&self.source.backend, &self.source.onnxruntime) {
                (BackendChoice::Tract, _) => UseOnnxRuntime::Off,
                (_, Some(path)) => UseOnnxRuntime::At(path.clone()),
                (_, None) => UseOnnxRuntime::Find(SearchPlaces::from_env()),
            };
            Backends::detect(&BackendOptions {
                onnxruntime,
                probe: self.source.program.clone(),
                ..BackendOptions::default()
            })
        })
    }

    fn options(&self) -> LoadOptions {
        let backend = match self.source.backend {
            BackendChoice::Auto => None,
            BackendChoice::OnnxRuntime => Some(BackendName::OnnxRuntime),
            BackendChoice::Tract => Some(BackendName::Tract),
        };
        LoadOptions {
            backend,
            ..LoadOptions::default()
        }
    }

    fn load_named(&self, name: &str) -> Result<Arc<Loaded>, TaskError> {
        let store = self.home.store()?;
        let record = store.models().get(name).map_err(store_error)?.ok_or_else(|| {
            TaskError::unavailable(format!("this node has no model `{name}`"))
                .with_hint(format!("karman model add {name} FILE.onnx"))
        })?;
        if let Some(loaded) = self.loaded.lock().get(&record.digest) {
            return Ok(loaded.clone());
        }
        // The blob's digest is checked as it is read.
        let bytes = store.blobs().read(&record.digest).map_err(store_error)?;
        let model = self
            .backends()
            .load(&bytes, &self.options())
            .map_err(infer_error)?;
        let loaded = Arc::new(Loaded(model));
        let mut all = self.loaded.lock();
        if all.len() >= MOST_LOADED {
            all.retain(|_, loaded| Arc::strong_count(loaded) > 1);
        }
        all.insert(record.digest, loaded.clone());
        Ok(loaded)
    }
}

impl NodeModels {
    /// As [`Models`], with the node kept alive by the returned future.
    pub(crate) fn shared(self: &Arc<Self>) -> Arc<dyn Models> {
        Arc::new(Shared(self.clone()))
    }
}

struct Shared(Arc<NodeModels>);

impl Models for Shared {
    fn by_name(&self, name: String) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let models = self.0.clone();
        blocking(move || models.load_named(&name).map(|loaded| loaded as Arc<dyn Model>)).boxed()
    }

    fn load_bytes(
        &self,
        onnx: Vec<u8>,
        native: bool,
    ) -> BoxFuture<'static, Result<Arc<dyn Model>, TaskError>> {
        let models = self.0.clone();
        blocking(move || {
            let (backends, options) = (models.backends(), models.options());
            let model = match native {
                true => backends.load(&onnx, &options),
                false => backends.load_foreign(&onnx, &options),
            };
            Ok(Arc::new(Loaded(model.map_err(infer_error)?)) as Arc<dyn Model>)
        })
        .boxed()
    }
}

struct Loaded(Arc<dyn karman_infer::Model>);

impl Model for Loaded {
    fn run(self: Arc<Self>, inputs: Tensors) -> BoxFuture<'static, Result<Tensors, TaskError>> {
        blocking(move || self.0.run(inputs).map_err(infer_error)).boxed()
    }

    fn runs_on(&self) -> String {
        format!("{}, cpu", self.0.backend())
    }
}

fn infer_error(error: InferError) -> TaskError {
    TaskError::new(error.kind(), error.to_string())
}
