use crate::disk::{Disk, Faults};
use crate::keys::{Key, NodeKeys};
use crate::room::{Ballast, Room};
use crate::tables::{FORMAT, KEEPERS, MESH, PROFILES, RUNS, Records, Tables};
use crate::{
    Blobs, Bucket, Bundles, Decisions, Grants, Keepers, Mesh, Models, Named, NodeKey, OpenError, Plugins,
    Policies, Secrets, Slices, StoreError, StoreLimits, Tasks, Visiting, database, files, limits, partial,
};
use karman_types::Digest;
use parking_lot::Mutex;
use redb::backends::FileBackend;
use redb::{Database, DatabaseError, StorageError};
use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One node's folder. Cheap to clone; the folder stays locked until the last clone is gone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    // Fields drop in this order: the database is closed before the folder is unlocked.
    tables: Tables,
    dir: PathBuf,
    limits: StoreLimits,
    keys: NodeKeys,
    /// Held while a file under `blobs/` and its record come and go together.
    files: Mutex<()>,
    /// Blobs that are being received, and their bytes.
    receiving: Mutex<HashMap<Digest, u64>>,
    /// Blobs that others read, the one that was first asked for longest ago in front.
    sliced: Mutex<VecDeque<Arc<Slices>>>,
    /// Held while one is made ready for that: several at once would be no sooner on one disk, and most ask for the same.
    slicing: Mutex<()>,
    lock: File,
}

impl Store {
    /// Opens the store in this folder, which is made when it is not there, with the default limits.
    ///
    /// # Errors
    /// See [`Store::open_with`].
    pub fn open(dir: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(dir, StoreLimits::default())
    }

    /// Opens the store in this folder, which is made when it is not there; only this user can enter it. After a crash
    /// the database repairs itself, which takes time in proportion to its size, and unfinished files are swept away.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while another process (or another `Store`) has it, [`OpenError::Corrupt`] when the
    /// database is damaged, [`OpenError::Newer`] when a later version wrote it, else what the disk refused.
    pub fn open_with(dir: impl AsRef<Path>, limits: StoreLimits) -> Result<Self, OpenError> {
        let dir = dir.as_ref();
        files::private_dir(dir)?;
        let dir = dir.canonicalize().map_err(StoreError::io(dir))?;
        let lock = lock(&dir)?;
        let ballast = Ballast::of(&dir);
        // The start writes a little.
        if !ballast.has_floor() {
            ballast.let_go();
        }
        let blobs = dir.join("blobs");
        files::private_dir(&blobs)?;
        files::sweep(&blobs)?;
        let (tables, found) = tables(&dir, &limits)?;
        if found > FORMAT {
            return Err(OpenError::Newer {
                dir,
                found,
                known: FORMAT,
            });
        }
        let keys = NodeKeys::open(&dir)?;
        let store = Self(Arc::new(Inner {
            tables,
            dir,
            limits,
            keys,
            files: Mutex::new(()),
            receiving: Mutex::default(),
            sliced: Mutex::default(),
            slicing: Mutex::new(()),
            lock,
        }));
        store.bundles().mend()?;
        store.blobs().settle()?;
        partial::collect(&store)?;
        ballast.hold();
        Ok(store)
    }

    /// Gives back to the disk what the database does not need, where it has 64 MiB or more and holds less than a third of that. Takes
    /// as long as reading all of it, and others wait meanwhile: it is for the start of a node, before anybody uses it. Where it fails,
    /// that is logged, and nothing is lost.
    pub fn compact(&self) {
        self.0.tables.compact();
    }

    /// Tells other processes that want the folder what this one is: the command that people know it by.
    ///
    /// # Errors
    /// What the disk refused.
    pub fn held_by(&self, command: &str) -> Result<(), StoreError> {
        let noted = note(&self.0.lock, &format!("\n{command}"));
        noted.map_err(StoreError::io(&self.0.dir.join("lock")))
    }

    /// The bucket of this name. It comes into being with its first value.
    ///
    /// # Errors
    /// [`StoreError::Name`] when the text cannot name a bucket (1 to 128 bytes).
    pub fn bucket(&self, name: &str) -> Result<Bucket, StoreError> {
        limits::name("bucket", name, 128)?;
        Ok(Bucket::new(self.clone(), name))
    }

    /// The files behind plugins and models.
    pub fn blobs(&self) -> Blobs<'_> {
        Blobs(self)
    }

    /// Bundles that wait for a contact.
    pub fn bundles(&self) -> Bundles<'_> {
        Bundles(self)
    }

    /// The models that this node holds.
    pub fn models(&self) -> Models<'_> {
        Models(self)
    }

    /// The plugins that this node holds.
    pub fn plugins(&self) -> Plugins<'_> {
        Plugins(self)
    }

    /// What the operator allowed.
    pub fn grants(&self) -> Grants<'_> {
        Grants(self)
    }

    /// Texts and keys that are encrypted on the disk.
    pub fn secrets(&self) -> Secrets<'_> {
        Secrets(self)
    }

    /// What the node must not forget of its mesh.
    pub fn mesh(&self) -> Mesh<'_> {
        Mesh(self.named(MESH))
    }

    /// Accepted tasks, and the effects that buckets have seen.
    pub fn tasks(&self) -> Tasks<'_> {
        Tasks(self)
    }

    /// Models of other nodes, of which this one runs parts.
    pub fn visiting(&self) -> Visiting<'_> {
        Visiting(self)
    }

    /// Files of plugins that brought a policy.
    pub fn policies(&self) -> Policies<'_> {
        Policies(self)
    }

    /// The log of decisions.
    pub fn decisions(&self) -> Decisions<'_> {
        Decisions(self)
    }

    /// Federated runs that this node drives, and what it keeps as a client of others.
    pub fn runs(&self) -> Named<'_> {
        self.named(RUNS)
    }

    /// What was measured of models on this node, by a name that says of what and how. Where that begins with the digest of a file and `/`,
    /// it goes when the last owner of the file does.
    pub fn profiles(&self) -> Named<'_> {
        self.named(PROFILES)
    }

    /// The log of the keepers of kept tasks, where this node is one of them.
    pub fn keepers(&self) -> Keepers<'_> {
        Keepers(self.named(KEEPERS))
    }

    /// The identity of this node: an Ed25519 key pair, made at the first start.
    pub fn node_key(&self) -> &NodeKey {
        &self.0.keys.node
    }

    /// The seed of the mesh's root key, where this is the machine that it was made on.
    ///
    /// # Errors
    /// When the key's file is open to others or has another length.
    pub fn mesh_root(&self) -> Result<Option<Key>, StoreError> {
        self.0.keys.mesh_root()
    }

    /// The seed that is to take the place of the mesh's root key, if there is one.
    ///
    /// # Errors
    /// Those of [`Store::mesh_root`].
    pub fn next_mesh_root(&self) -> Result<Option<Key>, StoreError> {
        self.0.keys.next_mesh_root()
    }

    /// Puts the next seed in the place of the mesh's root key, durably. The one that was is gone then.
    ///
    /// # Errors
    /// What the disk refused; that there is no next one.
    pub fn promote_mesh_root(&self) -> Result<(), StoreError> {
        self.0.keys.promote_mesh_root()
    }

    /// Whether the database can be written. Once something has failed it is tried whether that is over, as it is when a full disk has
    /// room again.
    ///
    /// # Errors
    /// What the disk refuses.
    pub fn check(&self) -> Result<(), StoreError> {
        self.tables().check()
    }

    /// Why the database could not be written last, if it could not. Nothing is tried, and nothing waited for.
    pub fn trouble(&self) -> Option<String> {
        self.tables().trouble()
    }

    /// Why the database reads and writes nothing until the store is opened again, if it does not: the disk has failed in a way that leaves
    /// a doubt of what it has. Any other [`trouble`](Self::trouble) passes by itself.
    pub fn shut(&self) -> Option<String> {
        self.tables().shut()
    }

    /// The limits it was opened with.
    pub fn limits(&self) -> &StoreLimits {
        &self.0.limits
    }

    /// The folder, absolute.
    pub fn dir(&self) -> &Path {
        &self.0.dir
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.0.tables
    }

    fn named(&self, table: Records) -> Named<'_> {
        Named { store: self, table }
    }

    pub(crate) fn keys(&self) -> &NodeKeys {
        &self.0.keys
    }

    pub(crate) fn files(&self) -> &Mutex<()> {
        &self.0.files
    }

    pub(crate) fn receiving(&self) -> &Mutex<HashMap<Digest, u64>> {
        &self.0.receiving
    }

    pub(crate) fn slicing(&self) -> &Mutex<()> {
        &self.0.slicing
    }

    pub(crate) fn sliced(&self) -> &Mutex<VecDeque<Arc<Slices>>> {
        &self.0.sliced
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Store").field(&self.0.dir).finish()
    }
}

/// Locks the folder, or says which process has it. The system frees the lock when the process ends, however it ends.
fn lock(dir: &Path) -> Result<File, OpenError> {
    let path = dir.join("lock");
    let open = || -> io::Result<File> {
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
    };
    let mut file = open().map_err(StoreError::io(&path))?;
    match file.try_lock() {
        Ok(()) => {
            note(&file, "").map_err(StoreError::io(&path))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut noted = String::new();
            // Only for the message: the holder may be just about to write it.
            if !matches!(file.read_to_string(&mut noted), Ok(1..)) {
                noted = "another process".into();
            }
            let mut lines = noted.lines().map(str::to_owned);
            Err(OpenError::Locked {
                dir: dir.into(),
                holder: lines.next().unwrap_or_default(),
                command: lines.next(),
            })
        }
        Err(TryLockError::Error(error)) => Err(StoreError::io(&path)(error).into()),
    }
}

/// Writes into the lock which process has it, and `more`.
fn note(mut lock: &File, more: &str) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    write!(lock, "process {}{more}", std::process::id())
}

/// Opens the database, with its format.
fn tables(dir: &Path, limits: &StoreLimits) -> Result<(Tables, u64), OpenError> {
    let path = dir.join("state.redb");
    let cache = limits.cache.as_usize();
    let builder = move || {
        let mut builder = Database::builder();
        builder.set_cache_size(cache);
        builder
    };
    if !path.exists() {
        create(&builder(), &path)?;
    }
    let corrupt = |problem: String| OpenError::Corrupt {
        path: path.clone(),
        problem,
    };
    let file = path.clone();
    let opened = database::File::open(&path, Ballast::of(dir), move |faults| {
        open(&builder(), &file, faults)
    });
    let database = opened.map_err(|error| match error {
        DatabaseError::Storage(StorageError::Corrupted(problem)) => corrupt(problem),
        DatabaseError::Storage(StorageError::Io(error))
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) =>
        {
            corrupt(error.to_string())
        }
        DatabaseError::UpgradeRequired(version) => corrupt(format!("redb file format {version}")),
        error => OpenError::Store(error.into()),
    })?;
    Tables::open(database).map_err(|error| match error {
        StoreError::Database(error) if matches!(*error, redb::Error::Corrupted(_)) => {
            corrupt(error.to_string())
        }
        error => error.into(),
    })
}

/// Opens a database that is there already: an empty file is none.
fn open(builder: &redb::Builder, path: &Path, faults: &Faults) -> Result<Database, DatabaseError> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    if file.metadata()?.len() == 0 {
        return Err(io::Error::from(ErrorKind::InvalidData).into());
    }
    builder.create_with_backend(Disk::new(FileBackend::new(file)?, faults))
}

/// A database gets its name when it is whole: a crash while it is laid out leaves none.
fn create(builder: &redb::Builder, path: &Path) -> Result<(), StoreError> {
    let unfinished = path.with_extension("new");
    match fs::remove_file(&unfinished) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(StoreError::io(&unfinished)(error)),
        _ => drop(builder.create(&unfinished)?),
    }
    fs::rename(&unfinished, path)
        .and_then(|()| files::sync_dir(path.parent().unwrap_or(path)))
        .map_err(StoreError::io(path))
}
