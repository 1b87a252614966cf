//! ONNX Runtime, loaded when the process starts if its library is there.

use crate::apart::{catching, short};
use crate::graph::Sizes;
use crate::outline::Outline;
use crate::{Backend, BackendName, InferError, LoadOptions, Model, ModelLimits, TensorInfo, inputs};
use karman_tensor::{Element, ElementType, Shape, Tensor, bf16, f16};
use ort::session::{Session, SessionInputValue};
use ort::value::{DynValue, PrimitiveTensorElementType, TensorRef};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// ONNX Runtime. A process loads one library, once; later calls with the same path share it.
#[derive(Clone)]
pub struct OnnxRuntime(Arc<Library>);

struct Library {
    environment: ort::environment::Environment,
    path: PathBuf,
    version: String,
}

static LOADED: Mutex<Option<OnnxRuntime>> = Mutex::new(None);

impl OnnxRuntime {
    /// Loads the library from this path. A broken one may end the process: probe it in a child first
    /// ([`karman_gpu::child::ask`]).
    ///
    /// # Errors
    /// [`InferError::Unavailable`] when it cannot be loaded, is older than version 1.24, or another one was loaded before.
    pub fn load(path: &Path) -> Result<Self, InferError> {
        let path = &path
            .canonicalize()
            .map_err(|error| unavailable(format!("{} cannot be opened: {error}", path.display())))?;
        let mut loaded = LOADED.lock();
        if let Some(there) = &*loaded {
            return match there.path() == path {
                true => Ok(there.clone()),
                false => Err(unavailable(format!(
                    "this process already uses {}: restart it to use {}",
                    there.path().display(),
                    path.display()
                ))),
            };
        }
        let library = catching(BackendName::OnnxRuntime, || {
            let environment = ort::init_from(path)
                .map_err(unavailable)?
                .with_name("karman")
                .with_telemetry(false)
                .build()
                .map_err(unavailable)?;
            Ok(Library {
                environment,
                path: path.into(),
                version: version(path, ort::info()),
            })
        })?;
        Ok(loaded.insert(Self(Arc::new(library))).clone())
    }

    /// The library that was loaded.
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// Its environment, of which a process has one: for a study that calls the library without this crate in between.
    pub fn environment(&self) -> &ort::environment::Environment {
        &self.0.environment
    }

    fn session(&self, bytes: &[u8], options: &LoadOptions) -> Result<Session, InferError> {
        let failed = |error: &dyn std::fmt::Display| InferError::Rejected {
            backend: BackendName::OnnxRuntime,
            reason: short(&error.to_string()),
        };
        catching(BackendName::OnnxRuntime, || {
            Session::builder(&self.0.environment)
                .map_err(|e| failed(&e))?
                .with_intra_threads(options.threads.get())
                .map_err(|e| failed(&e))?
                .with_inter_threads(1)
                .map_err(|e| failed(&e))?
                // A thread that spins while it waits takes a core from the other tasks of a node.
                .with_config_entry("session.intra_op.allow_spinning", "0")
                .map_err(|e| failed(&e))?
                .with_config_entry("session.load_model_format", "ONNX")
                .map_err(|e| failed(&e))?
                .with_log_level(ort::logging::LogLevel::Fatal)
                .map_err(|e| failed(&e))?
                .commit_from_memory(bytes)
                .map_err(|e| failed(&e))
        })
    }
}

impl std::fmt::Debug for OnnxRuntime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ONNX Runtime {} at {}", self.0.version, self.0.path.display())
    }
}

impl Backend for OnnxRuntime {
    fn name(&self) -> BackendName {
        BackendName::OnnxRuntime
    }

    fn version(&self) -> &str {
        &self.0.version
    }

    fn load(&self, bytes: &[u8], options: &LoadOptions) -> Result<Arc<dyn Model>, InferError> {
        let outline = Outline::read(bytes, &options.limits)?;
        let sizes = match Sizes::read(bytes, &outline, &options.limits) {
            Ok(sizes) => sizes,
            Err(error @ InferError::Limit { .. }) => return Err(error),
            Err(error) => {
                // It has no name here: `karman model add` shows it by what it takes and gives, too.
                let list = |infos: &[TensorInfo]| {
                    let infos: Vec<String> = infos.iter().map(ToString::to_string).collect();
                    infos.join(", ")
                };
                let model = format!("{} -> {}", list(&outline.inputs), list(&outline.outputs));
                tracing::warn!(
                    model,
                    %error,
                    "what a run of a model makes cannot be told beforehand: no limit bounds its memory"
                );
                Sizes::default()
            }
        };
        let session = self.session(bytes, options)?;
        let further = options.sessions.get() - 1;
        Ok(Arc::new(OrtModel {
            runtime: self.clone(),
            bytes: if further > 0 { bytes.into() } else { Box::default() },
            outline,
            sizes,
            pool: Mutex::new(Pool {
                idle: vec![session],
                further,
            }),
            returned: Condvar::new(),
            options: options.clone(),
        }))
    }
}

struct OrtModel {
    runtime: OnnxRuntime,
    /// Kept only where further sessions may be made.
    bytes: Box<[u8]>,
    outline: Outline,
    /// Of what a run makes: the library bounds none of it.
    sizes: Sizes,
    pool: Mutex<Pool>,
    returned: Condvar,
    options: LoadOptions,
}

struct Pool {
    idle: Vec<Session>,
    /// Sessions that may still be made.
    further: usize,
}

impl Model for OrtModel {
    fn backend(&self) -> BackendName {
        BackendName::OnnxRuntime
    }

    fn inputs(&self) -> &[TensorInfo] {
        &self.outline.inputs
    }

    fn outputs(&self) -> &[TensorInfo] {
        &self.outline.outputs
    }

    fn run(&self, given: Vec<(String, Tensor)>) -> Result<Vec<(String, Tensor)>, InferError> {
        let given = inputs::arrange(&self.outline.inputs, given, &self.options.limits)?;
        let items = inputs::items(&self.outline.inputs, &given);
        self.sizes.check(items, &self.options.limits)?;
        let mut session = self.take()?;
        let result = catching(BackendName::OnnxRuntime, || {
            let values = self
                .outline
                .inputs
                .iter()
                .zip(&given)
                .map(|(info, tensor)| Ok((info.name.as_str(), to_ort(tensor)?)))
                .collect::<Result<Vec<_>, ort::Error>>()
                .map_err(run_error)?;
            let values = session.run(values).map_err(run_error)?;
            self.outline
                .outputs
                .iter()
                .map(|info| {
                    let value = values
                        .get(&info.name)
                        .ok_or_else(|| run_error(format!("output `{}` did not come", info.name)))?;
                    Ok((info.name.clone(), from_ort(value, info, &self.options.limits)?))
                })
                .collect()
        });
        self.pool.lock().idle.push(session);
        self.returned.notify_one();
        result
    }
}

impl OrtModel {
    /// An idle session, or a new one, or the next that comes back.
    fn take(&self) -> Result<Session, InferError> {
        let mut pool = self.pool.lock();
        loop {
            if let Some(session) = pool.idle.pop() {
                return Ok(session);
            }
            if pool.further > 0 {
                pool.further -= 1;
                drop(pool);
                return self.runtime.session(&self.bytes, &self.options).inspect_err(|_| {
                    self.pool.lock().further += 1;
                    self.returned.notify_one();
                });
            }
            self.returned.wait(&mut pool);
        }
    }
}

/// The runtime reads the elements where they are.
fn to_ort(tensor: &Tensor) -> Result<SessionInputValue<'_>, ort::Error> {
    fn borrow<T>(tensor: &Tensor) -> Result<SessionInputValue<'_>, ort::Error>
    where
        T: Element + PrimitiveTensorElementType + std::fmt::Debug + 'static,
    {
        let dims: Vec<i64> = tensor.shape().dims().iter().map(|dim| i64::from(*dim)).collect();
        let elements = tensor.view::<T>().map_err(|e| ort::Error::new(e.to_string()))?;
        Ok(TensorRef::from_array_view((dims, elements))?.into())
    }
    match tensor.element() {
        ElementType::F16 => borrow::<f16>(tensor),
        ElementType::Bf16 => borrow::<bf16>(tensor),
        ElementType::F32 => borrow::<f32>(tensor),
        ElementType::F64 => borrow::<f64>(tensor),
        ElementType::I8 => borrow::<i8>(tensor),
        ElementType::U8 => borrow::<u8>(tensor),
        ElementType::I32 => borrow::<i32>(tensor),
        ElementType::I64 => borrow::<i64>(tensor),
        ElementType::Bool => borrow::<bool>(tensor),
    }
}

fn from_ort(value: &DynValue, info: &TensorInfo, limits: &ModelLimits) -> Result<Tensor, InferError> {
    fn copy<T>(value: &DynValue, info: &TensorInfo, limits: &ModelLimits) -> Result<Tensor, InferError>
    where
        T: Element + PrimitiveTensorElementType,
    {
        let (dims, elements) = value.try_extract_tensor::<T>().map_err(run_error)?;
        InferError::over("tensor", limits.tensor.0, size_of_val(elements) as u64, || {
            format!("output `{}` in bytes", info.name)
        })?;
        Shape::from_dims(dims)
            .and_then(|shape| Tensor::from_slice(shape, elements))
            .map_err(|reason| InferError::Output {
                name: info.name.clone(),
                reason,
            })
    }
    match info.element {
        ElementType::F16 => copy::<f16>(value, info, limits),
        ElementType::Bf16 => copy::<bf16>(value, info, limits),
        ElementType::F32 => copy::<f32>(value, info, limits),
        ElementType::F64 => copy::<f64>(value, info, limits),
        ElementType::I8 => copy::<i8>(value, info, limits),
        ElementType::U8 => copy::<u8>(value, info, limits),
        ElementType::I32 => copy::<i32>(value, info, limits),
        ElementType::I64 => copy::<i64>(value, info, limits),
        ElementType::Bool => copy::<bool>(value, info, limits),
    }
}

/// `libonnxruntime.so.1.31.1` says it; else the branch it was built from does: `git-branch=rel-1.31.1`.
fn version(path: &Path, info: &str) -> String {
    let file = path
        .canonicalize()
        .ok()
        .and_then(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .unwrap_or_default();
    file.split_once(".so.")
        .map(|(_, version)| version)
        .filter(|version| version.contains('.'))
        .or_else(|| info.split("git-branch=rel-").nth(1)?.split(',').next())
        .unwrap_or("of unknown version")
        .trim()
        .to_owned()
}

fn unavailable(reason: impl std::fmt::Display) -> InferError {
    InferError::Unavailable {
        backend: BackendName::OnnxRuntime,
        reason: short(&reason.to_string()),
    }
}

fn run_error(reason: impl std::fmt::Display) -> InferError {
    InferError::Run {
        backend: BackendName::OnnxRuntime,
        reason: short(&reason.to_string()),
    }
}
