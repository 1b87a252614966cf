//! A member of a mesh that is no node: it answers and asks what a test wants.

use crate::mesh::FOUND;
use crate::support::pause;
use karman_mesh::membership::Invitation;
use karman_mesh::{Mesh, MeshOptions, Serve, Standing};
use karman_store::{NodeKey, Store};
use karman_types::{NodeId, Tier};
use std::sync::Arc;
use std::time::Instant;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) struct Member {
    pub(crate) mesh: Mesh,
    pub(crate) runtime: Runtime,
    _folder: TempDir,
}

impl Member {
    /// Joins by an invitation, on the edge.
    pub(crate) fn join<S: Serve>(invitation: &str, serve: impl FnOnce(&NodeKey) -> S) -> Self {
        let invitation: Invitation = invitation.parse().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let store = Store::open(folder.path()).unwrap();
        let (seed, serve) = (*store.node_key().seed(), serve(store.node_key()));
        let options = MeshOptions {
            listen: "127.0.0.1:0".parse().unwrap(),
            entrances: invitation
                .addresses()
                .iter()
                .map(|address| address.parse().unwrap())
                .collect(),
            find_neighbours: false,
            links: None,
        };
        let standing = Standing::open(store, Tier::Edge, Some(invitation), None).unwrap();
        let runtime = Runtime::new().unwrap();
        let mesh = runtime.block_on(async {
            let mesh = Mesh::start(options, &seed, Arc::new(standing), Arc::new(serve)).unwrap();
            mesh.admitted(FOUND).await.unwrap();
            mesh.announce().await;
            mesh
        });
        Self {
            mesh,
            runtime,
            _folder: folder,
        }
    }

    /// Waits until it has this node in reach.
    pub(crate) fn meets(&self, node: &str) {
        let (node, started): (NodeId, Instant) = (node.parse().unwrap(), Instant::now());
        while self.runtime.block_on(self.mesh.node(node)).is_none() {
            assert!(started.elapsed() < FOUND, "the node is not found");
            pause();
        }
    }
}
