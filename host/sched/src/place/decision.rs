use super::Mode;
use serde::{Deserialize, Serialize};

/// The placement of a task.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Decision {
    /// The job, by its id.
    pub job: u64,
    /// The task, by its place in the job.
    pub task: usize,
    /// The node; nothing when it had better wait, or must.
    pub chosen: Option<Candidate>,
    /// What would have been chosen otherwise.
    pub runner_up: Option<Candidate>,
    /// Why.
    pub reason: Reason,
}

/// A node that a task could go to, with what is expected of it there.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Candidate {
    /// The node, by its place in [`super::Fleet::nodes`].
    pub node: usize,
    /// How it starts there.
    pub mode: Mode,
    /// When a slot and its input are there.
    pub begin: f64,
    /// When it is done.
    pub finish: f64,
    /// What the policy ranks by: less is better.
    pub score: f64,
}

/// Why a task goes where it goes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[non_exhaustive]
pub enum Reason {
    /// It is done there first.
    EarliestFinish,
    /// The node holds what it runs.
    Resident,
    /// The least waits there.
    LeastLoaded,
    /// The most of the node is free, or it holds what the task runs.
    MostFree,
    /// It is the node's turn.
    Turn,
    /// Its job has the earliest deadline, and it is done there first.
    EarliestDeadline,
    /// It costs this many seconds there, and makes what comes after this many seconds dearer than it has to be.
    FutureState {
        /// Until it is done.
        cost: f64,
        /// For what comes after.
        future: f64,
    },
    /// The job meets its deadline so, with this many seconds to spare.
    InTime {
        /// Seconds.
        slack: f64,
    },
    /// The job would miss its deadline by this many seconds, and every other way is later still.
    Late {
        /// Seconds.
        by: f64,
    },
    /// The job cannot make its deadline any more, so the task takes the slowest node on which nothing runs, if there is one.
    Lost,
    /// No node is free on which its job would be in time; it waits for one.
    NoneInTime,
    /// More jobs make their deadlines if this one leaves its place to them.
    SetAside,
    /// Another cluster is done with it earlier than its own, which would need until then.
    Offloaded {
        /// The cluster.
        cluster: usize,
        /// When it would be done at home.
        home: f64,
    },
    /// It asks for a place in another cluster, and waits for the next epoch.
    AsksElsewhere,
    /// The best node for it is busy until then.
    Waits {
        /// The node.
        node: usize,
        /// Until when.
        until: f64,
    },
    /// No node that can be reached has room for it.
    NoRoom,
    /// The policy of a plugin says this.
    Said(String),
}
