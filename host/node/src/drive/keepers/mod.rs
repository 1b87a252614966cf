//! The keepers of kept tasks: three nodes that agree, by a consensus library (openraft), on which tasks are kept, who owns each
//! and how it ended. What they agree on is [`karman_tasks::KeptState`], pure; here it is driven.
//!
//! | file | what |
//! |---|---|
//! | `charter` | which nodes are the keepers: signed where the mesh was made, told from node to node |
//! | `ask`, `serve`, `wire` | what any node asks the keepers, and what they answer |
//! | `tend` | what goes on by itself: taking and leaving the seat, signs of life, taking over from the lost |
//! | `seat`, `write`, `shorten` | a keeper at work |
//! | `group`, `log`, `replica`, `network` | the library's view of ours: names, disk, state, messages |
//! | `status` | what the operator sees and orders |
//! | `limits` | the times and sizes that a node keeps to |

mod ask;
mod charter;
mod group;
mod limits;
mod log;
mod network;
mod replica;
mod seat;
mod serve;
mod shorten;
mod status;
mod tend;
mod wire;
mod write;

pub use limits::KeepersConfig;
pub use status::{KeeperStatus, KeepersStatus};

use self::ask::no_majority;
use self::group::Key;
use self::seat::Seat;
use crate::drive::tasks;
use crate::runtime::Runtime;
use karman_mesh::Mesh;
use karman_mesh::membership::Charter;
use karman_store::Store;
use karman_tasks::Effect;
use karman_types::{NodeId, TaskError};
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// The way to the keepers, for this node; and its own seat among them, where it has one.
pub(crate) struct Inner {
    runtime: Runtime,
    limits: KeepersConfig,
    me: Key,
    charter: watch::Sender<Option<Arc<Charter>>>,
    adopting: Mutex<()>,
    /// The latest charter that each node has shown, by its number.
    shown: Mutex<HashMap<NodeId, u64>>,
    /// The keeper that answered last.
    answered: Mutex<Option<Key>>,
    seat: RwLock<Option<Arc<Seat>>>,
    effects: mpsc::UnboundedSender<Effect>,
    mesh: OnceLock<Mesh>,
    tasks: Weak<tasks::Inner>,
}

/// The way to the keepers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Keepers(Arc<Inner>);

impl std::ops::Deref for Keepers {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Keepers {
    /// None are known yet.
    pub(crate) fn new(runtime: &Runtime, store: &Store, tasks: Weak<tasks::Inner>) -> Self {
        let (effects, done) = mpsc::unbounded_channel();
        tokio::spawn(tend::tell(tasks.clone(), done));
        Self(Arc::new(Inner {
            limits: runtime.config().keepers.clone(),
            me: Key(store.node_key().public()),
            runtime: runtime.clone(),
            charter: watch::Sender::new(None),
            adopting: Mutex::default(),
            shown: Mutex::default(),
            answered: Mutex::default(),
            seat: RwLock::default(),
            effects,
            mesh: OnceLock::new(),
            tasks,
        }))
    }

    /// From now on keepers can be found, and this node can be one.
    pub(crate) fn join(&self, mesh: Mesh) {
        let inner = || Arc::downgrade(&self.0);
        if let Err(error) = self.remember(&mesh) {
            tracing::error!(%error, "the keepers that this node knew");
        }
        let _ = self.0.mesh.set(mesh);
        if let Err(error) = self.sign_again() {
            tracing::error!(%error, "the keepers are not named anew");
        }
        tokio::spawn(charter::spread(inner()));
        tokio::spawn(tend::sit(inner()));
        tokio::spawn(tend::claim(inner()));
        tokio::spawn(tend::take_over(inner()));
    }
}

impl Inner {
    /// Whether the mesh has keepers, as far as this node knows.
    pub(crate) fn known(&self) -> bool {
        self.charter.borrow().is_some()
    }

    /// The nodes that are the keepers, as far as this node knows.
    pub(crate) fn nodes(&self) -> Vec<NodeId> {
        let charter = self.charter();
        let keys = charter.iter().flat_map(|charter| charter.keepers());
        keys.map(|key| NodeId::of_key(key)).collect()
    }

    /// How long one that is handed a kept task may take to say whether it has it.
    pub(crate) fn handover(&self) -> Duration {
        self.limits.handover()
    }

    /// The longest message that a keeper takes.
    pub(crate) fn most(&self, snapshot: bool) -> u64 {
        match snapshot {
            true => self.limits.snapshot(),
            false => self.limits.frame(),
        }
    }

    fn mesh(&self) -> Result<&Mesh, TaskError> {
        let alone = || TaskError::unavailable("this node belongs to no mesh");
        self.mesh.get().ok_or_else(alone)
    }

    /// Counts what was refused.
    fn refused(&self, reason: &'static str) {
        if let Some(mesh) = self.mesh.get() {
            mesh.standing().refused(reason);
        }
    }

    fn tasks(&self) -> Option<Arc<tasks::Inner>> {
        self.tasks.upgrade()
    }

    fn seat(&self) -> Result<Arc<Seat>, TaskError> {
        self.seat.read().clone().ok_or_else(no_majority)
    }
}
