//! Another root key for the mesh, while it lives.

use super::mesh::refused;
use super::mesh_of;
use crate::node::Node;
use karman_mesh::membership::{MeshKey, UnixTime};
use karman_types::TaskError;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The result of a rotation of the mesh's root key.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Rotated {
    /// The mesh by its new root key.
    pub mesh: MeshKey,
    /// The same by the key that was replaced.
    pub before: MeshKey,
    /// The last second that what the old key has signed is good for.
    pub until: UnixTime,
}

impl Node {
    /// Gives the mesh the root key that lies ready beside the present one, and tells everybody in reach. What the old key has signed
    /// is good for `grace` from now.
    ///
    /// # Errors
    /// `unavailable` when this node belongs to no mesh, `denied` when it does not hold its root key, `invalid` when none lies ready.
    pub fn rotate(&self, grace: Duration) -> Result<Rotated, TaskError> {
        let standing = mesh_of(self)?.standing();
        let before = standing.mesh();
        let until = standing.rotate(grace).map_err(refused)?;
        let mesh = standing.mesh();
        tracing::warn!(before = %before.short(), mesh = %mesh.short(), "the mesh has another root key");
        // The keepers go on as they are if this fails, and it is tried again when the node starts.
        if let Err(error) = self.tasks().keepers().sign_again() {
            tracing::error!(%error, "the keepers are not named anew");
        }
        Ok(Rotated { mesh, before, until })
    }
}
