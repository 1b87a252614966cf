//! One running node: its folder, its plugins, and the listeners that answer for them.
//!
//! A [`Runtime`] is the engine with this node's store, models and settings behind it: enough to run one plugin
//! (`karman run`, `karman serve`). A [`Node`] adds the [`Plugins`] that stay: deployed once, loaded at every start, upgraded
//! while calls go on. It answers `POST /tasks/NAME`, `/http/NAME/…`, `/healthz`, `/readyz` and `/metrics` on its address,
//! and its operator on a Unix socket in its folder. [`Node::join`] takes it into its mesh: what it does not have, the nodes
//! around it may. A task that is accepted is on the disk before its caller hears so, and is run until it has an outcome. Nothing
//! here decides or computes: it wires the crates below together.
//!
//! | file | what |
//! |---|---|
//! | `node`, `runtime`, `home` | the node, what runs a plugin, the folder |
//! | `config`, `logs` | `node.toml`; the last events |
//! | `plugins` | what is deployed |
//! | `services` | what plugins reach: models, GPUs, buckets, settings |
//! | `drive` | one file for each machine of the crates below: feeds it events, performs its actions |
//! | `listener` | HTTP: callers, and the operator's socket |
//! | `inference` | requests of the Open Inference Protocol |
//! | `contacts`, `ahead` | when other nodes can be reached, and what an operator sees of it |
//! | `power`, `battery` | energy |
//! | `roots` | by which certificates other servers are judged |
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use karman_node::{LogRing, Node, NodeConfig, RuntimeOptions};
//!
//! let folder = tempfile::tempdir().unwrap();
//! let options =
//!     RuntimeOptions { state: folder.path().join("state"), cache: folder.path().join("cache"), program: None };
//! let node = Node::start(NodeConfig::default(), options, LogRing::default()).await.unwrap();
//! assert!(node.status().plugins.is_empty());
//! # });
//! ```
#![forbid(unsafe_code)]

mod ahead;
mod battery;
mod config;
mod contacts;
mod drive;
mod home;
pub mod inference;
mod listener;
mod logs;
mod node;
mod plugins;
mod power;
mod roots;
mod runtime;
mod services;

pub use ahead::{ContactStatus, ContactsAhead, Place, SatelliteNode, StationNode};
pub use config::MeshConfig;
pub use config::{
    BackendChoice, BatchConfig, Ceiling, ComputeProfile, ConfigError, EndpointConfig, EndpointUrl,
    EndpointUrlError, FederatedConfig, Foreign, GpuChoice, GpuConfig, GroundStation, HostName, HostNameError,
    ModelDevice, NodeConfig, Orbits, PoliciesConfig, StatedPower, TelemetryConfig, Time,
};
pub use contacts::contact_plan;
pub use drive::{
    BundleStatus, Chosen, CutBy, DecisionLog, Diagnosis, EnergyOrigin, Example, FedEvent, FedForgotten,
    FedModel, FedNews, FedSeen, FedStatus, FlowCause, FlowEnding, FlowOrder, FlowState, FlowStatus,
    FlowUndone, HeldModel, Inferred, InsideLayer, InsideNode, InsideOrder, InsidePlan, InviteOrder,
    JoinOptions, KeeperStatus, KeepersConfig, KeepersStatus, Leg, LinkMeasure, MeasureOrder, Measured,
    MeasuredRate, ModelDescription, ModelInParts, NextContact, NodeOffer, NodeProfile, OnNode, PeerStatus,
    Pinged, Ran, RanInParts, Revoked, Rotated, Sent, SloHistory, SloHour, SloMinute, SplitOrder, SplitPlan,
    StepStatus, TaskState, TaskStatus, TensorDescription, UndoStatus, Wanted, WholeOnGpu, check_run,
    not_driven, read_fed_answer, read_fed_order, remove_stored_model, remove_stored_run, simulate,
    stored_model, stored_onnx, stored_run, stored_runs, unknown_run,
};
pub use home::Home;
pub use karman_sched::call::TaskDemand;
pub use karman_sched::select::Bounds;
pub use karman_store::{BundleState, MOST_AHEAD};
pub use listener::{
    Awake, InPath, InQuery, Listener, Refusal, ShutDown, attend, error_json, error_status, health,
    is_of_another_page, must_name_one_host, other_host, plain_host, plugin_path, serve_plugin, set_apart,
};
pub use logs::{LogEvent, LogRing};
pub use node::{Node, NodeStatus};
pub use plugins::{DeployOptions, Deployed, MOST_PLUGIN_BYTES, PluginStatus, Plugins};
pub use power::{Channel as PowerChannel, PowerProfile};
pub use roots::trusted_roots;
pub use runtime::{Runtime, RuntimeOptions};
pub use services::{
    GpuUse, ModelSource, NodeModels, Unfit, check_for_gpu, check_gpu, no_gpu_for, unfit_for_gpu,
};
