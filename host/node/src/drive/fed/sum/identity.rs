//! Who a client is to the others of a sum. The roster must not be the driver's word: whoever writes it could put nodes of its own on
//! it, and take the sum of all of them off again. So each shows its membership, and each looks at all of them.

use crate::drive::mesh_of;
use crate::node::Node;
use ed25519_compact::{KeyPair, Seed};
use karman_types::{NodeId, TaskError};
use serde::{Deserialize, Serialize};

/// What a client shows. The number tells this sum from all others: whoever shows it has drawn it for this one, and joins once with it.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(in crate::drive::fed) struct Credential {
    /// Its Ed25519 key.
    #[serde(with = "serde_bytes")]
    pub(super) key: [u8; 32],
    /// Its membership of the mesh, which is bound to that key.
    #[serde(with = "serde_bytes")]
    pub(super) membership: Vec<u8>,
    /// A number that it uses for one sum only.
    #[serde(with = "serde_bytes")]
    pub(super) once: [u8; 32],
}

/// A node, as far as a sum needs one.
pub(in crate::drive::fed) trait Identity: Send + Sync {
    /// What it shows, with this number.
    fn credential(&self, once: [u8; 32]) -> Result<Credential, TaskError>;

    /// What it signs with.
    fn pair(&self) -> Result<KeyPair, TaskError>;

    /// Whose this is, if it is a member.
    fn check(&self, credential: &Credential) -> Result<NodeId, TaskError>;
}

impl Identity for Node {
    fn credential(&self, once: [u8; 32]) -> Result<Credential, TaskError> {
        let standing = mesh_of(self)?.standing();
        let none = || TaskError::unavailable("this node is no member of its mesh yet");
        Ok(Credential {
            key: standing.public_key(),
            membership: standing.shown().ok_or_else(none)?,
            once,
        })
    }

    fn pair(&self) -> Result<KeyPair, TaskError> {
        let store = self.runtime().home().store()?;
        Ok(KeyPair::from_seed(Seed::new(*store.node_key().seed())))
    }

    fn check(&self, credential: &Credential) -> Result<NodeId, TaskError> {
        let member = mesh_of(self)?
            .standing()
            .member_by(&credential.membership, &credential.key)
            .map_err(|error| {
                let node = NodeId::of_key(&credential.key);
                TaskError::denied(format!("{} is no member of this mesh: {error}", node.short()))
                    .with_field("invited")
            })?;
        Ok(member.node)
    }
}
