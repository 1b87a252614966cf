//! Runs ONNX models on the back-ends that are there.
//!
//! [`Backends::detect`] finds out once what this process has: [`Tract`] always, [`OnnxRuntime`] when its library is
//! installed. [`Backends::load`] makes a [`Model`] from the bytes of an ONNX file; a model says what it takes and gives
//! ([`TensorInfo`]) and runs on named tensors, from any number of threads. Loading and running block: call them where
//! blocking is fine.
//!
//! Bytes from outside are hostile. Before a back-end sees a model, the file is walked once without building anything:
//! [`ModelLimits`] bound what it may hold, every constant must be whole, and nothing may point to another file. tract then
//! works out every size before it allocates, and a panic of a back-end is an [`InferError`]. What could still end the
//! process is tried in a child first ([`BackendOptions::probe`]): a driver before it is loaded, and with
//! [`Backends::load_foreign`] a model that anyone may have made.
//!
//! ```
//! use karman_infer::{Backends, BackendOptions, LoadOptions};
//! use karman_tensor::Tensor;
//!
//! # let model = std::fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/models/digits-s.onnx")).unwrap();
//! let backends = Backends::detect(&BackendOptions::default());
//! let digits = backends.load(&model, &LoadOptions::default())?;
//! assert_eq!(digits.inputs()[0].to_string(), "image f32 [N, 1, 8, 8]");
//!
//! let image = Tensor::from_slice([1, 1, 8, 8], &[0.0f32; 64])?;
//! let outputs = digits.run(vec![("image".into(), image)])?;
//! assert_eq!(outputs[0].0, "probabilities");
//! assert_eq!(outputs[0].1.view::<f32>()?.len(), 10);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod apart;
mod backends;
mod batch;
mod error;
mod find;
pub mod graph;
mod inputs;
pub mod inspect;
mod limits;
mod model;
mod onnxruntime;
mod outline;
mod probe;
pub mod profile;
mod screen;
mod staged;
mod tract;
mod wire;
pub mod zoo;

pub use backends::{BackendOptions, Backends, UseOnnxRuntime};
pub use batch::{Named, is_batched, run_batch};
pub use error::InferError;
pub use find::SearchPlaces;
pub use limits::ModelLimits;
pub use model::{Backend, BackendName, Dim, LoadOptions, Model, TensorInfo};
pub use onnxruntime::OnnxRuntime;
pub use probe::{ProbeError, feed_child, probe_in_child, probe_model, probe_onnxruntime};
pub use staged::Staged;
pub use tract::Tract;
