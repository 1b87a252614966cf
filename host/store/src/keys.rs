use crate::{StoreError, files};
use ed25519_compact::{KeyPair, Noise, Seed};
use karman_types::NodeId;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// 32 random bytes, wiped from memory when they are dropped.
pub type Key = Zeroizing<[u8; 32]>;

const MESH_ROOT: &str = "mesh-root.key";
const NEXT_MESH_ROOT: &str = "mesh-root.next.key";

/// The keys of a node: files under `keys/`, each 32 random bytes, readable by this user only. They are read apart from the
/// [`Store`](crate::Store), which only one process can have open.
pub struct NodeKeys {
    dir: PathBuf,
    pub(crate) node: NodeKey,
    mac: Key,
}

impl NodeKeys {
    /// Reads the keys of the node whose folder this is, and makes those that are not there.
    ///
    /// # Errors
    /// [`StoreError::Key`] when a key's file is open to others or has another length, else what the disk refused.
    pub fn open(home: impl AsRef<Path>) -> Result<Self, StoreError> {
        files::private_dir(home.as_ref())?;
        let dir = home.as_ref().join("keys");
        files::private_dir(&dir)?;
        // Commands make keys as the node does, and all of them have to go by the same.
        let _alone = files::alone(&dir)?;
        files::sweep(&dir)?;
        let node = NodeKey::new(&*load_or_make(&dir, "node.key")?);
        let mac = load_or_make(&dir, "mac.key")?;
        Ok(Self { dir, node, mac })
    }

    /// The identity of the node.
    pub const fn node(&self) -> &NodeKey {
        &self.node
    }

    /// The key under which the node marks what only it may have written.
    pub fn mac(&self) -> &[u8; 32] {
        &self.mac
    }

    /// The key that secrets are encrypted with; nothing before there is a secret.
    pub(crate) fn secrets(&self) -> Result<Option<Key>, StoreError> {
        load(&self.secrets_path())
    }

    /// Makes the key that secrets are encrypted with.
    pub(crate) fn make_secrets(&self) -> Result<Key, StoreError> {
        load_or_make(&self.dir, "secrets.key")
    }

    /// The seed of the mesh's root key, where this is the machine that it was made on.
    ///
    /// # Errors
    /// Those of [`NodeKeys::open`].
    pub fn mesh_root(&self) -> Result<Option<Key>, StoreError> {
        load(&self.dir.join(MESH_ROOT))
    }

    /// Keeps the seed of a mesh's root key, durably.
    ///
    /// # Errors
    /// [`StoreError::Key`] when there is one already: it is not overwritten.
    pub fn keep_mesh_root(&self, seed: &[u8; 32]) -> Result<(), StoreError> {
        let _alone = files::alone(&self.dir)?;
        if self.mesh_root()?.is_some() {
            return Err(StoreError::Key {
                path: self.dir.join(MESH_ROOT),
                problem: "is there already; a machine holds the root key of one mesh",
            });
        }
        files::write(&self.dir, MESH_ROOT, seed)
    }

    /// The seed that is to take the place of the mesh's root key, if there is one.
    ///
    /// # Errors
    /// Those of [`NodeKeys::open`].
    pub fn next_mesh_root(&self) -> Result<Option<Key>, StoreError> {
        load(&self.dir.join(NEXT_MESH_ROOT))
    }

    /// Keeps the seed that is to take the place of the mesh's root key, durably, in the place of one that never did.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn keep_next_mesh_root(&self, seed: &[u8; 32]) -> Result<(), StoreError> {
        files::write(&self.dir, NEXT_MESH_ROOT, seed)
    }

    /// Puts the next seed in the place of the mesh's root key, durably. The one that was is gone then.
    ///
    /// # Errors
    /// What the disk refused; that there is no next one.
    pub fn promote_mesh_root(&self) -> Result<(), StoreError> {
        let next = self.dir.join(NEXT_MESH_ROOT);
        let moved = fs::rename(&next, self.dir.join(MESH_ROOT));
        moved
            .and_then(|()| files::sync_dir(&self.dir))
            .map_err(StoreError::io(&next))
    }

    pub(crate) fn secrets_path(&self) -> PathBuf {
        self.dir.join("secrets.key")
    }
}

/// The identity of a node: an Ed25519 key pair. Its file `keys/node.key` holds the 32 bytes of the seed.
pub struct NodeKey {
    seed: Key,
    pair: KeyPair,
}

impl NodeKey {
    fn new(seed: &[u8; 32]) -> Self {
        Self {
            seed: Zeroizing::new(*seed),
            pair: KeyPair::from_seed(Seed::new(*seed)),
        }
    }

    /// The public key.
    pub fn public(&self) -> [u8; 32] {
        *self.pair.pk
    }

    /// The id that follows from the public key.
    pub fn id(&self) -> NodeId {
        NodeId::of_key(&*self.pair.pk)
    }

    /// Signs a message (RFC 8032).
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        *self.pair.sk.sign(message, None::<Noise>)
    }

    /// The seed, for a network stack that wants the key pair itself. Never to be logged.
    pub fn seed(&self) -> &[u8; 32] {
        &self.seed
    }
}

impl std::fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("NodeKey").field(&self.id()).finish()
    }
}

/// Fresh random bytes of the system.
pub(crate) fn random<const N: usize>() -> Result<Zeroizing<[u8; N]>, StoreError> {
    let mut bytes = Zeroizing::new([0; N]);
    getrandom::fill(bytes.as_mut()).map_err(|_| StoreError::Key {
        path: "/dev/urandom".into(),
        problem: "gives no random bytes; the system is not ready yet",
    })?;
    Ok(bytes)
}

fn load_or_make(dir: &Path, name: &str) -> Result<Key, StoreError> {
    let path = dir.join(name);
    match load(&path)? {
        Some(key) => Ok(key),
        None => {
            let key = random()?;
            files::write(dir, name, key.as_ref())?;
            Ok(key)
        }
    }
}

fn load(path: &Path) -> Result<Option<Key>, StoreError> {
    let error = |problem| {
        Err(StoreError::Key {
            path: path.into(),
            problem,
        })
    };
    let bytes = match fs::read(path) {
        Ok(bytes) => Zeroizing::new(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::io(path)(error)),
    };
    let mode = fs::metadata(path)
        .map_err(StoreError::io(path))?
        .permissions()
        .mode();
    if mode & 0o077 != 0 {
        return error("can be read by other users; if none of them has read it, `chmod 600` it");
    }
    match <[u8; 32]>::try_from(bytes.as_slice()) {
        Ok(key) => Ok(Some(Zeroizing::new(key))),
        Err(_) => error("does not have 32 bytes; restore it from a backup"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn all_who_open_a_new_folder_at_once_have_the_same_keys() {
        for _ in 0..20 {
            let folder = tempfile::tempdir().unwrap();
            let open = || {
                let keys = NodeKeys::open(folder.path()).unwrap();
                (keys.node().id(), *keys.mac())
            };
            let all: Vec<_> = thread::scope(|scope| {
                let opened: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
                opened.into_iter().map(|opened| opened.join().unwrap()).collect()
            });
            assert!(all.iter().all(|keys| *keys == all[0]), "{:?}", folder.path());
        }
    }
}
