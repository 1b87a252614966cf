//! Which node runs a task, and how it starts there.
//!
//! A policy ([`Place`]) is asked whenever something has changed: with the jobs that have not ended ([`Job`]) and what is known of
//! the nodes ([`Fleet`]), it says which tasks go where ([`Decision`]), with the runner-up and the reason as plain data. Times are
//! seconds since some start, sizes bytes. What starting costs (warm, one more instance, cold) is measured and comes with each
//! [`Component`]; where data lie, what a node holds and when it can be reached is part of the fleet, so that every policy that
//! looks at it sees the same.
//!
//! | file | policy |
//! |---|---|
//! | `fate` | scores a placement by what it leaves behind for the tasks after it (FATE) |
//! | `triage` | as many jobs in time as can be: sets aside what does not fit, and spares the nodes that others need |
//! | `clusterless` | plans a workflow in its cluster against its deadline; offloads what does not make it (ClusterLess) |
//! | `haf` | slow moves of services behind a critic, fast shares of a node in closed form (HAF) |
//! | `heft` | the earliest finish, the longest way first, on line and with what nodes hold |
//! | `residency_first` | the node that holds the component |
//! | `least_loaded` | the node with the least work waiting |
//! | `edf` | the job with the earliest deadline first |
//! | `kubernetes` | what the default scheduler of Kubernetes weighs |
//! | `round_robin` | each node in turn |
//! | `brought` | whatever a plugin brings, with FATE in reserve |
//!
//! A node asks the same policies ([`BuiltIn`]) where a step of a workflow goes, one at a time, with what it knows of the steps after it and of
//! the nodes in reach ([`Situation`]). A single call that nobody has planned goes by rules of its own ([`crate::call`]).
//!
//! | file | what they share |
//! |---|---|
//! | `fleet`, `job` | what is known |
//! | `decision` | what is decided |
//! | `draft` | what a placement would cost, and a plan in the making |
//! | `list` | tasks in an order, each to the node that a rule likes best |
//!
//! | file | what nodes need |
//! |---|---|
//! | `built_in` | which of the policies a node can ask, and why not the others |
//! | `ahead` | a step, and those after it |
//! | `known` | what a node knows, as the policies are shown it |
//! | `placed` | a decision, and why |
//!
//! ```
//! use karman_sched::place::{Component, Fleet, Heft, Job, Mode, Node, Place, State, Task};
//! use karman_types::NodeId;
//!
//! // Loading the model takes longer than waiting for the node that holds it.
//! let model = Component { bytes: 60 << 20, fetch: 60 << 20, warm: 0.0, scale_out: 0.1, cold: 2.0 };
//! let node = |name: &str| Node::new(NodeId::of_key(name.as_bytes()), 0, 1.0, 10e6, 1 << 30, 1);
//! let mut fleet = Fleet { nodes: vec![node("idle"), node("holds it")], components: vec![model], latency: [0.0, 0.0] };
//! fleet.nodes[1].start(&fleet.components, 0, 0, 0.0, 3.0);
//!
//! let task = Task { component: 0, work: 1.0, inputs: vec![], state: State::Waiting };
//! let job = Job { id: 7, arrived: 0.0, deadline: None, origin: 0, tasks: vec![task] };
//! let decision = &Heft::default().place(0.0, &[job], &fleet)[0];
//! let chosen = decision.chosen.unwrap();
//! assert_eq!((chosen.node, chosen.mode, chosen.finish), (1, Mode::Warm, 4.0));
//! assert_eq!(decision.runner_up.unwrap().node, 0);
//! ```

mod ahead;
mod brought;
mod built_in;
mod clusterless;
mod decision;
mod draft;
mod edf;
mod fate;
mod fleet;
mod haf;
mod heft;
mod job;
mod known;
mod kubernetes;
mod least_loaded;
mod list;
mod placed;
mod residency_first;
mod round_robin;
mod triage;

pub use ahead::{Ahead, Need};
pub use brought::{Brought, Placement};
pub use built_in::BuiltIn;
pub use clusterless::{ClusterLess, ClusterLessSettings, Offload};
pub use decision::{Candidate, Decision, Reason};
pub use edf::EarliestDeadline;
pub use fate::{Fate, FateSettings};
pub use fleet::{Component, Fleet, Mode, Node, Resident, Slot, Window};
pub use haf::{
    Critic, CriticSettings, Forecast, Haf, Host, Move, MoveReason, Must, Service, Share, ShareError, Shares,
    shares,
};
pub use heft::Heft;
pub use job::{Input, Job, State, Task};
pub use known::{Known, Situation};
pub use kubernetes::Kubernetes;
pub use least_loaded::LeastLoaded;
pub use list::{Binding, Order};
pub use placed::Placed;
pub use residency_first::ResidencyFirst;
pub use round_robin::RoundRobin;
pub use triage::{Triage, TriageSettings};

/// A policy that places tasks on nodes.
///
/// Its inputs have been checked by the caller ([`Fleet::check`], [`Job::check`]).
pub trait Place {
    /// Its name, as tables and logs write it.
    fn name(&self) -> &str;

    /// Where tasks go that have no node and whose inputs are all there: asked when a job has come and when a task has ended, with the
    /// jobs that this concerns. A task that is not named, or named without a node, waits.
    fn place(&mut self, now: f64, jobs: &[Job], fleet: &Fleet) -> Vec<Decision>;

    /// How often it wants to be woken, in seconds; never by default.
    fn period(&self) -> Option<f64> {
        None
    }

    /// The same as [`Place::place`], asked once a period with all jobs that have not ended.
    fn wake(&mut self, _now: f64, _jobs: &[Job], _fleet: &Fleet) -> Vec<Decision> {
        Vec::new()
    }
}

/// Input that no policy can work with.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// A number that is none, or out of its bounds.
    #[error("{field} is {value}, which nothing can be placed by")]
    Number {
        /// Which.
        field: String,
        /// Its value.
        value: f64,
    },
    /// There is nothing to place on.
    #[error("there are no nodes to place on")]
    NoNodes,
    /// A node that is not there.
    #[error("there is no node {node}")]
    NoNode {
        /// Its place.
        node: usize,
    },
    /// A component that is not there.
    #[error("there is no component {component}")]
    NoComponent {
        /// Its place.
        component: usize,
    },
    /// A task that stands before one whose output it takes.
    #[error("task {task} of job {job} stands before a task whose output it takes")]
    Order {
        /// The job.
        job: u64,
        /// The task.
        task: usize,
    },
}
