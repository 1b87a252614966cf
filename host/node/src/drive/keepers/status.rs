//! What the operator sees of the keepers, and how he names them.

use super::Inner;
use super::ask::no_keepers;
use super::group::Key;
use super::wire::{Answer, Question};
use crate::drive::mesh::refused;
use crate::drive::mesh_of;
use crate::node::Node;
use futures::future::join_all;
use karman_mesh::membership::Charter;
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// How long new keepers may take until they agree.
const UP: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(100);

/// The keepers of the mesh.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeepersStatus {
    /// How often keepers were named; the latest count.
    pub charter: u64,
    /// Whether a majority of them agrees on a leader.
    pub majority: bool,
    /// How many tasks are kept, forgotten results included, as the leader knows it.
    pub tasks: Option<u64>,
    /// Each of them.
    pub keepers: Vec<KeeperStatus>,
}

/// A keeper.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct KeeperStatus {
    /// Its id.
    pub node: NodeId,
    /// Whether it is this node.
    pub here: bool,
    /// Whether it answers as a keeper.
    pub reachable: bool,
    /// Whether it leads.
    pub leader: bool,
    /// The index of the last entry of its log.
    pub log: Option<u64>,
    /// The index of the last entry that it has applied.
    pub applied: Option<u64>,
}

impl Inner {
    /// How the keepers are.
    ///
    /// # Errors
    /// `unavailable` when this node knows of none.
    pub(crate) async fn status(&self) -> Result<KeepersStatus, TaskError> {
        let charter = self.charter().ok_or_else(no_keepers)?;
        let keys: Vec<Key> = charter.keepers().iter().copied().map(Key).collect();
        let reports = join_all(keys.iter().map(|key| async {
            let asked = self.ask_one(*key, Question::Report);
            match timeout(self.limits.turn(), asked).await {
                Ok(Ok(Answer::Report(report))) => Some(report),
                _ => None,
            }
        }))
        .await;
        let reports = || keys.iter().zip(&reports);
        // The leader itself knows; others may still believe in one that is gone.
        let leader = reports()
            .find(|(key, report)| report.as_ref().is_some_and(|report| report.leader == Some(**key)));
        let keepers = reports().map(|(key, report)| KeeperStatus {
            node: key.node(),
            here: *key == self.me,
            reachable: report.is_some(),
            leader: leader.is_some_and(|(leader, _)| leader == key),
            log: report.as_ref().map(|report| report.log),
            applied: report.as_ref().map(|report| report.applied),
        });
        Ok(KeepersStatus {
            charter: charter.number(),
            majority: leader.is_some(),
            tasks: leader.and_then(|(_, report)| Some(report.as_ref()?.tasks)),
            keepers: keepers.collect(),
        })
    }

    /// Names the keepers by their public keys, and waits until they agree.
    ///
    /// # Errors
    /// `denied` when this node is no issuer; `invalid` when they are not three; `unavailable` while those that were named before
    /// do not all take part, or when these do not agree in time: they go on trying then.
    pub(crate) async fn name(&self, keys: &[[u8; 32]]) -> Result<(), TaskError> {
        let before = self.charter();
        let charter = self.mesh()?.standing().charter(keys, before.as_deref());
        let charter = charter.map_err(refused)?;
        if let Some(before) = &before
            && !(self.agree(before, self.limits.patience).await && self.answers().await)
        {
            return Err(self.no_handover().await);
        }
        self.adopt(&charter.encode())?;
        match self.agree(&charter, UP).await {
            true => Ok(()),
            false => Err(TaskError::unavailable(
                "the keepers are named, and do not agree yet: they go on trying",
            )
            .with_hint("`karman mesh keepers` shows who is there")),
        }
    }

    /// Whether a majority of the keepers answers, after as long as it may take them to find another leader. One that is left may
    /// believe for a while in a leader that is gone.
    async fn answers(&self) -> bool {
        let until = Instant::now() + self.limits.patience.max(8 * self.limits.election);
        while self.alive().await.is_err() {
            if Instant::now() >= until {
                return false;
            }
        }
        true
    }

    /// Why the keepers that were named before hand nothing over, and what to do.
    async fn no_handover(&self) -> TaskError {
        let keepers = self.status().await.map(|status| status.keepers);
        let missing = keepers.unwrap_or_default().into_iter();
        let missing: Vec<String> = missing
            .filter(|keeper| !keeper.reachable)
            .map(|keeper| keeper.node.short())
            .collect();
        if missing.len() < 2 {
            return TaskError::unavailable("the keepers that were named before do not agree yet")
                .with_hint("`karman mesh keepers` shows who is missing; two of the three have to be there");
        }
        TaskError::unavailable(format!(
            "of the three keepers {} are missing, and two have to be there to hand over what is kept",
            missing.join(" and ")
        ))
        .with_hint(
            "start one of them with its own folder, on whatever machine: it goes on where it was; then name others",
        )
    }

    /// Whether those whom the charter names decide, before this time is over.
    async fn agree(&self, charter: &Charter, within: Duration) -> bool {
        let named: BTreeSet<Key> = charter.keepers().iter().copied().map(Key).collect();
        let until = Instant::now() + within;
        while !self.in_place(&named).await {
            if Instant::now() >= until {
                return false;
            }
            sleep(PAUSE).await;
        }
        true
    }
}

impl Node {
    /// Names the keepers of kept tasks, in the place of those that were named before, and answers how they are once they agree.
    ///
    /// # Errors
    /// `denied` when this node is no issuer, `invalid` when they are not three, `unavailable` when one of them has not been met or
    /// they do not agree in time.
    pub async fn name_keepers(&self, nodes: &[NodeId]) -> Result<KeepersStatus, TaskError> {
        let mesh = mesh_of(self)?;
        let own = (self.runtime().id(), mesh.standing().public_key());
        let met = mesh.peers().into_iter().filter_map(|peer| {
            let member = peer.member?;
            Some((member.node, member.key))
        });
        let keys: Vec<(NodeId, [u8; 32])> = met.chain([own]).collect();
        let key_of = |node: &NodeId| {
            let found = keys.iter().find(|(known, _)| known == node);
            let unmet = || TaskError::unavailable(format!("node {} has not been met", node.short()));
            found.map(|(_, key)| *key).ok_or_else(unmet)
        };
        let keys: Vec<[u8; 32]> = nodes.iter().map(key_of).collect::<Result<_, _>>()?;
        let keepers = self.tasks().keepers();
        keepers.name(&keys).await?;
        keepers.status().await
    }
}
