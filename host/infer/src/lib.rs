//! Runs ONNX models on the back-ends that are there, and takes them apart.
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
//! A model too large or too slow for one node is cut: [`graph::Graph`] says what each node costs and each edge carries, and
//! makes any stage of it a model of its own; [`profile::Profile`] says how long each layer takes here, measured or predicted;
//! [`inspect::Inspection`] shows all of it to people. [`Staged`] runs the fragments in one place, and [`Joined`] makes several
//! requests one run. Where the cuts belong is decided elsewhere (`karman-sched`).
//!
//! [`DeviceModel`] makes a whole model one program of kernels (`karman-gpu`), for a GPU; an operator without a kernel is refused by its
//! name.
//!
//! | file | what |
//! |---|---|
//! | `backends`, `find`, `probe` | what this process can run models with |
//! | `model` | the two traits: a back-end, a model that is ready |
//! | `tract`, `onnxruntime` | the back-ends |
//! | `wire`, `screen`, `outline`, `limits` | bytes from outside: read, bounded, described |
//! | `inputs`, `apart` | what a caller gives; what may panic |
//! | `graph` | nodes, edges, costs, layers, cuts, fragments |
//! | `staged`, `batch` | fragments as one model; several requests as one run |
//! | `weights` | what learning changes, out of a file and into one |
//! | `shapes` | dimensions that a file leaves open, closed |
//! | `profile` | times, measured and predicted |
//! | `inspect` | the table and the drawing |
//! | `integer` | the layers of a quantised model in whole numbers, to be split inside |
//! | `operator` | one operator: its cost, its model, which runner would be done first |
//! | `program` | a whole model as one program for a GPU |
//! | `zoo` | published networks with random weights |
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
//!
//! // The same in two halves, which could lie on two nodes.
//! use karman_infer::graph::Graph;
//! use karman_infer::{ModelLimits, Model, Staged};
//!
//! let graph = Graph::read(model, &ModelLimits::default())?;
//! let layers = graph.layers();
//! let halves = graph.split(&layers.stages_of_chain(&[1]))?;
//! assert_eq!(halves[0].outputs, halves[1].inputs);
//! let staged = Staged::load(&graph, &halves, backends.get(None)?, &LoadOptions::default())?;
//! let image = Tensor::from_slice([1, 1, 8, 8], &[0.0f32; 64])?;
//! assert_eq!(staged.run(vec![("image".into(), image)])?[0].0, "probabilities");
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
pub mod integer;
mod limits;
mod model;
mod onnxruntime;
pub mod operator;
mod outline;
mod probe;
pub mod profile;
mod program;
mod screen;
mod shapes;
mod staged;
mod tract;
mod weights;
mod wire;
pub mod zoo;

pub use backends::{BackendOptions, Backends, UseOnnxRuntime};
pub use batch::{Joined, Named, can_batch, differs};
pub use error::InferError;
pub use find::SearchPlaces;
pub use limits::ModelLimits;
pub use model::{Backend, BackendName, Dim, LoadOptions, Model, TensorInfo};
pub use onnxruntime::OnnxRuntime;
pub use probe::{probe_model, probe_onnxruntime};
pub use program::{DeviceModel, DeviceRun};
pub use shapes::{InputShape, with_shapes};
pub use staged::Staged;
pub use tract::Tract;
pub use weights::{Weight, weights, with_weights};
