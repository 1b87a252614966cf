//! What drives the node: one file for each part below that is fed events and whose wishes are carried out.

mod add_model;
mod attempt;
mod away;
mod blobs;
mod bundles;
mod cbor;
mod chances;
mod decisions;
mod deploy;
mod diagnosis;
mod disk;
mod dispatch;
mod fed;
mod flow;
mod incoming;
mod invite;
mod keepers;
mod links;
mod look;
mod mesh;
mod model_tasks;
mod models;
mod names;
mod node_id;
mod own_task;
mod parcels;
mod plugin_policy;
mod providers;
mod remove;
mod revoke;
mod rotate;
mod routes;
mod sample;
mod serve;
mod split;
mod status;
mod swarm;
mod tasks;
mod time;

pub use add_model::HeldModel;
pub(crate) use blobs::Lent;
pub(crate) use bundles::{Bundles, run as hand_on};
pub use decisions::DecisionLog;
pub use deploy::OnNode;
pub use diagnosis::Diagnosis;
pub(crate) use dispatch::Calls;
pub use dispatch::Ran;
pub use fed::{
    FedEvent, FedForgotten, FedModel, FedNews, FedSeen, FedStatus, check_run, not_driven, read_fed_answer,
    read_fed_order, remove_stored_run, simulate, stored_model, stored_onnx, stored_run, stored_runs,
    unknown_run,
};
pub(crate) use fed::{Federated, go_on};
pub use flow::{
    Chosen, EnergyOrigin, Example, FlowCause, FlowEnding, FlowOrder, FlowState, FlowStatus, FlowUndone,
    MeasureOrder, Measured, SloHistory, SloHour, SloMinute, StepStatus, UndoStatus, Wanted,
};
pub(crate) use flow::{FlowEvent, Follower, Known};
pub use invite::InviteOrder;
pub use keepers::{KeeperStatus, KeepersConfig, KeepersStatus};
pub(crate) use links::Links;
pub use links::{LinkMeasure, MeasuredRate};
pub use mesh::{JoinOptions, NextContact, NodeOffer, PeerStatus, Pinged};
pub(crate) use mesh::{join, mesh_of};
pub use models::{Inferred, ModelDescription, TensorDescription};
pub use parcels::{BundleStatus, Sent};
pub use remove::remove_stored_model;
pub use revoke::Revoked;
pub use rotate::Rotated;
pub use split::{
    CutBy, InsideLayer, InsideNode, InsideOrder, InsidePlan, Leg, ModelInParts, NodeProfile, RanInParts,
    SplitOrder, SplitPlan, WholeOnGpu,
};
pub(crate) use split::{Split, resume_all};
pub use status::{TaskState, TaskStatus};
pub(crate) use tasks::Tasks;
