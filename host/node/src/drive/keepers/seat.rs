//! This node as a keeper.

use super::group::{Group, Key, Raft};
use super::limits::KeepersConfig;
use super::log::Log;
use super::network::Network;
use super::replica::Replica;
use super::shorten::shorten;
use super::wire::Report;
use super::write::Writer;
use futures::future::join_all;
use karman_mesh::Mesh;
use karman_store::Store;
use karman_tasks::{Effect, Entry, Instant, Signs};
use karman_types::{NodeId, TaskError};
use openraft::{Config, EmptyNode, RaftMetrics, ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// How long a new keeper may take to learn what is kept before its place is offered again.
const CATCH_UP: Duration = Duration::from_secs(60);

/// A keeper's log, what it has applied, and what it has heard of owners.
pub(super) struct Seat {
    pub(super) me: Key,
    pub(super) raft: Raft,
    pub(super) replica: Replica,
    pub(super) writer: Writer,
    store: Store,
    log_bytes: watch::Receiver<u64>,
    signs: Mutex<(Option<u64>, Signs)>,
    started: std::time::Instant,
    limits: KeepersConfig,
}

impl Seat {
    /// Takes up the log where the node left it.
    ///
    /// # Errors
    /// When the store cannot be read, or the limits make no sense.
    pub(super) async fn take(
        me: Key,
        mesh: Mesh,
        store: Store,
        limits: KeepersConfig,
        effects: mpsc::UnboundedSender<Effect>,
    ) -> Result<Self, TaskError> {
        let replica = Replica::open(store.clone(), effects).await?;
        let config = config(&limits).validate().map_err(|error| {
            TaskError::invalid(format!("keepers: {error}"))
                .with_hint("in node.toml `keepers.election` has to be longer than `keepers.heartbeat`")
        })?;
        let pause = limits.heartbeat;
        let (network, log) = (Network { mesh, pause }, Log::new(store.clone(), me));
        let log_bytes = log.bytes();
        let raft = openraft::Raft::<Group>::new(me, Arc::new(config), network, log, replica.clone())
            .await
            .map_err(|error| TaskError::internal(format!("the keepers' log: {error}")))?;
        let signs = Mutex::new((None, Signs::new(limits.takeover)));
        Ok(Self {
            me,
            writer: Writer::start(raft.clone(), limits.turn()),
            raft,
            replica,
            store,
            log_bytes,
            signs,
            started: std::time::Instant::now(),
            limits,
        })
    }

    /// Begins the log of a new group. Each of its keepers does so, with the same members; where there is a log nothing happens.
    pub(super) async fn found(&self, keepers: &BTreeSet<Key>) {
        let members: BTreeMap<Key, EmptyNode> =
            keepers.iter().map(|key| (*key, EmptyNode::default())).collect();
        if let Err(error) = self.raft.initialize(members).await {
            tracing::debug!(%error, "the keepers have a log already");
        }
    }

    /// Gives the new keepers a place, and takes that of the former ones, if this keeper leads and that is still to be done.
    ///
    /// # Errors
    /// `unavailable` when no majority takes part; it goes on at the next call then.
    pub(super) async fn change(&self, keepers: &BTreeSet<Key>) -> Result<(), TaskError> {
        let members = self.members();
        if !self.leads() || members.as_ref() == Some(keepers) {
            return Ok(());
        }
        let failed = |error: &dyn std::fmt::Display| TaskError::unavailable(format!("new keepers: {error}"));
        let changed = async {
            for key in keepers {
                if members.as_ref().is_none_or(|members| !members.contains(key)) {
                    let added = self.raft.add_learner(*key, EmptyNode::default(), true).await;
                    added.map_err(|error| failed(&error))?;
                }
            }
            let changed = self.raft.change_membership(keepers.clone(), false).await;
            changed.map(drop).map_err(|error| failed(&error))
        };
        tokio::time::timeout(CATCH_UP, changed)
            .await
            .unwrap_or_else(|_| Err(TaskError::unavailable("new keepers do not catch up in time")))
    }

    /// Why it works no more, if it does not: its disk has failed, or the library.
    pub(super) fn broken(&self) -> Option<String> {
        let ended = self.raft.metrics().has_changed().is_err();
        let running = self.metrics().running_state;
        let why = running.err().map(|error| error.to_string());
        why.or_else(|| ended.then(|| "it has ended".into()))
    }

    fn metrics(&self) -> RaftMetrics<Key, EmptyNode> {
        self.raft.metrics().borrow().clone()
    }

    /// Whether it leads, and a majority has said so a moment ago.
    pub(super) fn leads(&self) -> bool {
        let metrics = self.metrics();
        let lease = 2 * self.limits.election;
        metrics.state == ServerState::Leader
            && metrics
                .millis_since_quorum_ack
                .is_some_and(|ago| Duration::from_millis(ago) < lease)
    }

    /// Who leads, as far as it knows.
    pub(super) fn leader(&self) -> Option<Key> {
        self.metrics().current_leader
    }

    /// Who decides, as far as it knows; nothing while that is being changed.
    pub(super) fn members(&self) -> Option<BTreeSet<Key>> {
        let members = self.metrics().membership_config;
        let membership = members.membership();
        let decided = membership.get_joint_config().len() == 1;
        decided.then(|| membership.voter_ids().collect())
    }

    /// Whether it decides, did or will.
    pub(super) fn knows(&self, key: &Key) -> bool {
        let members = self.metrics().membership_config;
        members.nodes().any(|(known, _)| known == key)
    }

    pub(super) fn report(&self) -> Report {
        let metrics = self.metrics();
        Report {
            leader: match metrics.state {
                ServerState::Leader => self.leads().then_some(self.me),
                _ => metrics.current_leader,
            },
            log: metrics.last_log_index.unwrap_or(0),
            applied: metrics.last_applied.map_or(0, |id| id.index),
            tasks: self.replica.kept().len() as u64,
            members: self.members().map(|members| members.into_iter().collect()),
        }
    }

    /// Waits until whatever was committed before is applied here, and no other keeper leads.
    ///
    /// # Errors
    /// `unavailable` when no majority confirms that this keeper leads.
    pub(super) async fn linearizable(&self) -> Result<(), TaskError> {
        let read = self.raft.ensure_linearizable().await;
        read.map(drop)
            .map_err(|error| TaskError::unavailable(format!("the keepers' log: {error}")))
    }

    /// Has other results forgotten where a task has ended with one for which there is too little room.
    pub(super) async fn make_room(&self, entry: &Entry) {
        let trims = self.replica.kept().making_room(entry, self.limits.bytes.0);
        if !trims.is_empty() {
            let results = trims.len();
            tracing::warn!(
                results,
                "results of kept tasks are forgotten before their time: `keepers.bytes` leaves newer ones no room"
            );
        }
        // Where one is not written, the room is found missing.
        join_all(trims.into_iter().map(|trim| self.writer.write(trim))).await;
    }

    /// Bytes of its log, as of the last change.
    pub(super) fn log_bytes(&self) -> u64 {
        *self.log_bytes.borrow()
    }

    /// Follows the bytes of its log.
    pub(super) fn watch_log(&self) -> watch::Receiver<u64> {
        self.log_bytes.clone()
    }

    /// Lets a log that is too long give way to a snapshot.
    ///
    /// # Errors
    /// When the store cannot be read, or this keeper has stopped.
    pub(super) async fn shorten(&self) -> Result<(), TaskError> {
        shorten(&self.raft, &self.store, self.limits.log_bytes.0 / 2).await
    }

    fn now(&self) -> Instant {
        Instant(self.started.elapsed().as_millis() as u64)
    }

    /// A sign of life of this node.
    pub(super) fn heard(&self, node: NodeId) {
        self.signs.lock().1.heard(node, self.now());
    }

    /// Owners that are lost, where this keeper leads. What it had heard before it led does not count.
    pub(super) fn lost(&self) -> Vec<NodeId> {
        let mut signs = self.signs.lock();
        let term = self.leads().then(|| self.metrics().current_term);
        if signs.0 != term {
            *signs = (term, Signs::new(self.limits.takeover));
        }
        if term.is_none() {
            return Vec::new();
        }
        signs.1.heard(self.me.node(), self.now());
        let owners = self.replica.kept().owners();
        signs.1.lost(owners, self.now())
    }

    /// Ends its work.
    pub(super) async fn leave(&self) {
        if let Err(error) = self.raft.shutdown().await {
            tracing::warn!(%error, "the keepers' log");
        }
    }
}

fn config(limits: &KeepersConfig) -> Config {
    let millis = |time: Duration| time.as_millis() as u64;
    Config {
        cluster_name: "keepers".into(),
        heartbeat_interval: millis(limits.heartbeat),
        election_timeout_min: millis(limits.election),
        election_timeout_max: millis(2 * limits.election),
        install_snapshot_timeout: millis(CATCH_UP),
        snapshot_policy: SnapshotPolicy::LogsSinceLast(limits.log),
        replication_lag_threshold: 2 * limits.log,
        max_in_snapshot_log_to_keep: limits.log / 2,
        ..Config::default()
    }
}
