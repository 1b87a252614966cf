use crate::tables::{BUNDLES, MODELS, PENDING, PLUGINS, POLICIES, PROFILES, VISITING, list};
use crate::{Model, Plugin, Slices, Store, StoreError, Visitor, files, limits, room};
use bytes::Bytes;
use karman_types::Digest;
use redb::{ReadableTable, ReadableTableMetadata, WriteTransaction};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;

/// Blobs whose hash trees are kept in memory, 64 bytes for each 16 KiB of a blob.
const MOST_SLICED: usize = 16;

/// The files behind plugins, models and bundles, named by their digest. They come and go with [`Plugins`](crate::Plugins),
/// [`Models`](crate::Models), [`Visiting`](crate::Visiting) models and [`Bundles`](crate::Bundles).
///
/// A file and its record cannot change in one step, so a digest stands in the table `pending` whenever the file may be
/// without an owner: while it is being added, and after its last owner is gone. What a crash leaves there is settled
/// when the store is opened.
#[derive(Clone, Copy, Debug)]
pub struct Blobs<'a>(pub(crate) &'a Store);

impl Blobs<'_> {
    /// The bytes with this digest, checked against it.
    ///
    /// # Errors
    /// [`StoreError::MissingBlob`] and [`StoreError::CorruptBlob`].
    pub fn read(&self, digest: &Digest) -> Result<Bytes, StoreError> {
        let path = self.place(digest);
        let bytes = fs::read(&path).map_err(|error| missing(&path, error))?;
        match Digest::of(&bytes) {
            found if found == *digest => Ok(bytes.into()),
            found => Err(StoreError::CorruptBlob { path, found }),
        }
    }

    /// The file with this digest, checked against it: for those who map it into memory. It stays as it is for as long as
    /// its plugin or model does.
    ///
    /// # Errors
    /// [`StoreError::MissingBlob`] and [`StoreError::CorruptBlob`].
    pub fn path(&self, digest: &Digest) -> Result<PathBuf, StoreError> {
        let path = self.place(digest);
        let mut hasher = blake3::Hasher::new();
        fs::File::open(&path)
            .and_then(|file| hasher.update_reader(file).map(drop))
            .map_err(|error| missing(&path, error))?;
        match Digest::from_bytes(*hasher.finalize().as_bytes()) {
            found if found == *digest => Ok(path),
            found => Err(StoreError::CorruptBlob { path, found }),
        }
    }

    /// The file with this digest in slices that prove themselves. Hashed when it is first asked for.
    ///
    /// # Errors
    /// [`StoreError::MissingBlob`] and [`StoreError::CorruptBlob`].
    pub fn slices(&self, digest: &Digest) -> Result<Arc<Slices>, StoreError> {
        if let Some(slices) = self.sliced(digest) {
            return Ok(slices);
        }
        let _only = self.0.slicing().lock();
        if let Some(slices) = self.sliced(digest) {
            return Ok(slices);
        }
        let path = self.place(digest);
        let slices = Slices::open(&path).map_err(|error| missing(&path, error))?;
        if slices.digest() != *digest {
            let found = slices.digest();
            return Err(StoreError::CorruptBlob { path, found });
        }
        let slices = Arc::new(slices);
        let mut sliced = self.0.sliced().lock();
        // One that was removed meanwhile is not remembered: `settle` has been here already.
        if path.exists() {
            if sliced.len() == MOST_SLICED {
                sliced.pop_front();
            }
            sliced.push_back(slices.clone());
        }
        Ok(slices)
    }

    /// Those that were made before.
    fn sliced(&self, digest: &Digest) -> Option<Arc<Slices>> {
        let known = |slices: &&Arc<Slices>| slices.digest() == *digest;
        self.0.sliced().lock().iter().find(known).cloned()
    }

    /// Writes a file and lets `own` record its owner, both or neither. `own` also names the files that it took an owner
    /// from.
    pub(crate) fn add<T>(
        &self,
        bytes: &[u8],
        own: impl FnOnce(&WriteTransaction, Digest) -> Result<(T, Vec<Digest>), StoreError>,
    ) -> Result<T, StoreError> {
        limits::at_most("blob", bytes.len(), self.0.limits().blob.0)?;
        room::take(self.0.dir(), bytes.len() as u64)?;
        let digest = Digest::of(bytes);
        let _guard = self.0.files().lock();
        self.record(|_| Ok(((), vec![digest])))?;
        let written = match self.path(&digest) {
            Ok(_) => Ok(()),
            // What was received is there already, under another name.
            Err(_) => match self.adopt(&digest) {
                Ok(true) => Ok(()),
                _ => files::write(&self.0.dir().join("blobs"), &digest.to_string(), bytes),
            },
        };
        let owned = written.and_then(|()| self.record(|txn| own(txn, digest)));
        // The answer is known by now; what cannot be settled is settled at the next start.
        self.settle().ok();
        owned
    }

    /// Lets `disown` remove a record, then the files that it names where nothing else owns them.
    pub(crate) fn release<T>(
        &self,
        disown: impl FnOnce(&WriteTransaction) -> Result<(T, Vec<Digest>), StoreError>,
    ) -> Result<T, StoreError> {
        let _guard = self.0.files().lock();
        let released = self.0.tables().write_anyway(|txn| recorded(txn, disown))?;
        self.settle().ok();
        Ok(released)
    }

    /// Changes records; the digests that come back may be without an owner afterwards.
    fn record<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<(T, Vec<Digest>), StoreError>,
    ) -> Result<T, StoreError> {
        self.0.tables().write(|txn| recorded(txn, change))
    }

    /// Removes the pending files that have no owner, with what was measured of them.
    pub(crate) fn settle(&self) -> Result<(), StoreError> {
        let txn = self.0.tables().read()?;
        let pending = txn.open_table(PENDING)?;
        if pending.is_empty()? {
            return Ok(());
        }
        let mut owned = Vec::new();
        for (_, plugin) in list::<Plugin>(&txn.open_table(PLUGINS)?, PLUGINS)? {
            owned.push(plugin.digest);
            owned.extend(plugin.previous.map(|previous| previous.digest));
        }
        for (_, model) in list::<Model>(&txn.open_table(MODELS)?, MODELS)? {
            owned.push(model.digest);
        }
        for (_, visitor) in list::<Visitor>(&txn.open_table(VISITING)?, VISITING)? {
            owned.push(visitor.digest);
        }
        for row in txn.open_table(POLICIES)?.iter()? {
            owned.extend(row?.0.value().parse::<Digest>().ok());
        }
        let bundles = txn.open_table(BUNDLES)?;
        let mut gone = Vec::new();
        for row in pending.iter()? {
            let digest = Digest::from_bytes(*row?.0.value());
            let path = self.place(&digest);
            if owned.contains(&digest) || bundles.get(digest.to_string().as_str())?.is_some() {
                continue;
            }
            match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(StoreError::io(&path)(error));
                }
                // Its slices hold the file open, and with it the room on the disk.
                _ => self.0.sliced().lock().retain(|slices| slices.digest() != digest),
            }
            gone.push(digest);
        }
        self.0.tables().write_anyway(|txn| {
            let mut profiles = txn.open_table(PROFILES)?;
            for digest in &gone {
                // `0` comes next after `/`.
                let (from, to) = (format!("{digest}/"), format!("{digest}0"));
                profiles.retain_in::<&str, _>(from.as_str()..to.as_str(), |_, _| false)?;
            }
            txn.open_table(PENDING)?.retain(|_, ()| false)?;
            Ok(())
        })
    }

    /// Whether there is a file with this digest; its content is not read.
    pub(crate) fn has(&self, digest: &Digest) -> bool {
        self.place(digest).exists()
    }

    fn place(&self, digest: &Digest) -> PathBuf {
        self.0.dir().join("blobs").join(digest.to_string())
    }
}

/// Changes records; the digests that come back may be without an owner afterwards.
fn recorded<T>(
    txn: &WriteTransaction,
    change: impl FnOnce(&WriteTransaction) -> Result<(T, Vec<Digest>), StoreError>,
) -> Result<T, StoreError> {
    let (result, digests) = change(txn)?;
    let mut pending = txn.open_table(PENDING)?;
    for digest in digests {
        pending.insert(digest.as_bytes(), ())?;
    }
    Ok(result)
}

fn missing(path: &std::path::Path, error: std::io::Error) -> StoreError {
    match error.kind() {
        ErrorKind::NotFound => StoreError::MissingBlob { path: path.into() },
        _ => StoreError::io(path)(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bundles::tests::bundle;
    use std::sync::Barrier;
    use std::thread;

    fn kept(store: &Store, bytes: &Bytes) -> Digest {
        let bundle = bundle(bytes, 0, u64::MAX);
        store.bundles().keep(&bundle, bytes).unwrap();
        bundle.digest
    }

    #[test]
    fn a_blob_that_many_ask_for_at_once_is_hashed_once() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let digest = kept(&store, &vec![7; 8 << 20].into());
        let together = Barrier::new(8);
        let asks = || {
            together.wait();
            store.blobs().slices(&digest).unwrap()
        };
        let got: Vec<Arc<Slices>> = thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(asks)).collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).collect()
        });
        assert!(got.iter().all(|slices| Arc::ptr_eq(slices, &got[0])));
        assert_eq!(store.sliced().lock().len(), 1);
    }

    #[test]
    fn a_blob_that_is_gone_is_held_open_no_longer() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).unwrap();
        let [goes, stays] = ["goes", "stays"].map(|bytes| kept(&store, &bytes.into()));
        for digest in [goes, stays] {
            store.blobs().slices(&digest).unwrap();
        }
        store.bundles().withdraw(&goes).unwrap();
        let known: Vec<Digest> = store
            .sliced()
            .lock()
            .iter()
            .map(|slices| slices.digest())
            .collect();
        assert_eq!(known, [stays]);
        assert!(store.blobs().slices(&goes).is_err());
    }
}
