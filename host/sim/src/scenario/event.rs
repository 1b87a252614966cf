use crate::Instant;

/// What happens in a scenario.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Event {
    /// A request comes.
    Come {
        /// Of which stream: a workload at a node.
        stream: u32,
    },
    /// A request has come to the node that serves it, from another one.
    Reach {
        /// Which node.
        node: u32,
        /// What.
        request: Request,
    },
    /// A batch is done.
    Done {
        /// Where.
        node: u32,
        /// Which of those that run there.
        slot: u32,
        /// In which life of the node it began.
        life: u32,
    },
    /// The policy that chose the model of a request hears its outcome.
    Heard {
        /// Which request.
        request: Request,
    },
    /// A policy that waits wants to be asked again.
    Wake {
        /// At which node.
        node: u32,
    },
    /// Every node tells its load.
    Sample,
    /// A node stops.
    Fail {
        /// Which.
        node: u32,
        /// Until when.
        until: Instant,
    },
    /// A node works again.
    Recover {
        /// Which.
        node: u32,
    },
    /// From now on it counts.
    WarmedUp,
}

/// A request on its way.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// Which workload.
    pub workload: u32,
    /// The node at which it came, and to which the answer goes.
    pub home: u32,
    /// When it came.
    pub came: Instant,
    /// The model that serves it, by its place among those that its workload names.
    pub candidate: u32,
}
