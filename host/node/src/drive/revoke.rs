//! How a node is put out of the mesh.

use super::mesh::refused;
use super::mesh_of;
use crate::node::Node;
use karman_mesh::membership::Member;
use karman_package::PublicKey;
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};

/// A node that was put out.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Revoked {
    /// Its id.
    pub node: NodeId,
    /// Whether it is a keeper: what is kept is one loss away from standing still, until another is named.
    pub keeper: bool,
    /// Whether it may not count: this node has no root key, and has not met that one since it was started, which may hold it.
    pub doubtful: bool,
}

impl Node {
    /// Puts a node that this one has met out of the mesh.
    ///
    /// # Errors
    /// `unavailable` when this node has not met the other; those of [`revoke_key`](Self::revoke_key).
    pub fn revoke(&self, id: NodeId) -> Result<Revoked, TaskError> {
        let mesh = mesh_of(self)?;
        let mut peers = mesh.peers().into_iter();
        let is_there = peers.find_map(|peer| peer.member.filter(|member| member.node == id));
        // It may have been met long ago only, before this node was started.
        let key = is_there.map(|member| member.key).or_else(|| mesh.key_of(id));
        let unknown = || {
            TaskError::unavailable(format!("node {} has not been met", id.short())).with_hint(
                "a node's id does not tell its key: revoke it by that, as `karman mesh peers --json` shows it on a node that has met it",
            )
        };
        self.revoke_key(&PublicKey::from_bytes(key.ok_or_else(unknown)?))
    }

    /// Puts the node with this key out of the mesh, whether or not this one has met it.
    ///
    /// # Errors
    /// `unavailable` when this node belongs to no mesh; `denied` when it is no issuer, or may not put out that one.
    pub fn revoke_key(&self, key: &PublicKey) -> Result<Revoked, TaskError> {
        let mesh = mesh_of(self)?;
        mesh.standing().revoke(key.as_bytes()).map_err(refused)?;
        let is_it = |member: &Member| member.key == *key.as_bytes();
        let mut members = mesh.peers().into_iter().filter_map(|peer| peer.member);
        let doubtful = !mesh.standing().holds_root() && !members.any(|member| is_it(&member));
        let node = NodeId::of_key(key.as_bytes());
        tracing::warn!(node = %node.short(), "a node is revoked");
        let keeper = self.tasks().keepers().nodes().contains(&node);
        Ok(Revoked {
            node,
            keeper,
            doubtful,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::NodeConfig;
    use crate::drive::JoinOptions;
    use crate::logs::LogRing;
    use crate::runtime::RuntimeOptions;
    use karman_mesh::membership::{Issuer, RootKey, Terms};
    use karman_store::{NodeKeys, Store};
    use karman_types::Tier;
    use serde_bytes::ByteBuf;
    use std::time::Duration;

    /// As a node remembers another.
    #[derive(Serialize)]
    struct Known {
        key: ByteBuf,
        addresses: Vec<String>,
        seen: u64,
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn who_was_met_before_a_node_was_started_can_be_revoked() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        let [root, other] = [(); 2].map(|()| RootKey::generate().unwrap());
        let key = *other.public().as_bytes();
        NodeKeys::open(&state)
            .unwrap()
            .keep_mesh_root(root.seed())
            .unwrap();
        let known = Known {
            key: ByteBuf::from(key),
            addresses: Vec::new(),
            seen: 0,
        };
        let store = Store::open(&state).unwrap();
        store.mesh().put("acquaintances", &[known]).unwrap();
        drop(store);

        let mut config = NodeConfig::default();
        config.mesh.listen = "127.0.0.1:0".parse().unwrap();
        config.mesh.find_neighbours = false;
        let options = RuntimeOptions {
            cache: folder.path().join("cache"),
            state,
            program: None,
        };
        let node = Node::start(config, options, LogRing::default()).await.unwrap();
        let mesh = node.join(JoinOptions::default()).await.unwrap().unwrap();
        let standing = mesh.standing();
        let hour = Duration::from_secs(3600);
        let terms = Terms::usual(Tier::Edge, standing.now().after(hour));
        let membership = Issuer::root(&root).issue(&key, &terms, standing.now()).unwrap();
        let judged = || standing.member_by(&membership.encode(), &key);
        let id = judged().unwrap().node;
        assert!(!node.revoke(id).unwrap().keeper);
        assert!(judged().is_err());
        let unknown = NodeId::of_key(b"nobody");
        assert!(node.revoke(unknown).unwrap_err().message.contains("not been met"));
        // Whose key is known need not have been met.
        let lost = RootKey::generate().unwrap().public();
        let lost = PublicKey::from_bytes(*lost.as_bytes());
        let put_out = node.revoke_key(&lost).unwrap().node;
        assert_eq!(put_out, NodeId::of_key(lost.as_bytes()));
    }
}
