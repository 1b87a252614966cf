use crate::disk::is_full;
use crate::slices::{GROUP, groups, ranges, tree};
use crate::{Blobs, Store, StoreError, files, limits, room};
use bao_tree::io::outboard::PreOrderOutboard;
use bao_tree::io::sync::{DecodeResponseIter, OutboardMut, WriteAt, encode_ranges_validated};
use bao_tree::io::{BaoContentItem, DecodeError};
use bytes::Bytes;
use karman_types::Digest;
use std::collections::HashMap;
use std::fs::{self, DirEntry, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// The folder in that of the store.
const FOLDER: &str = "partial";
/// Bytes of a block, as files are counted in.
const BLOCK: u64 = 512;
/// How long a blob may lie unfinished after the last of it came.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// A blob that is being received, in any order. What has been verified survives a crash and a power cut, and counts again
/// when it is received further: the bytes and the hashes that prove them lie side by side on the disk, and are checked
/// against each other when it is opened, so that nothing has to be forced to the disk while it comes in.
///
/// Dropped, it stays for another time; [`Store`] removes it when nothing has come for a week. Where the disk has no room for it, nothing of
/// it stays.
#[derive(Debug)]
pub struct Partial {
    store: Store,
    digest: Digest,
    data: File,
    hashes: PreOrderOutboard<File>,
    have: Vec<bool>,
    /// The disk had no room for more of it.
    full: bool,
}

/// A slice that was not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PutError {
    /// The bytes do not belong to the blob. What came before the first that do not was kept.
    #[error("group {group} does not belong to blob {}", digest.short())]
    Corrupt {
        /// The blob.
        digest: Digest,
        /// The first group that is not there.
        group: u64,
    },
    /// What the disk refused.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Blobs<'_> {
    /// Receives a blob of this digest and length, or goes on where an earlier try has ended: what it left is verified anew,
    /// at the speed of BLAKE3.
    ///
    /// # Errors
    /// [`StoreError::Receiving`] while it is being received, [`StoreError::Limit`] when there is no room for it even after
    /// others that are not being received are gone, [`StoreError::Io`] when the disk has none, or refuses else.
    pub fn receive(&self, digest: Digest, size: u64) -> Result<Partial, StoreError> {
        let most = self.0.limits().blob.0;
        limits::at_most("blob", usize::try_from(size).unwrap_or(usize::MAX), most)?;
        {
            // Those that begin at once see each other.
            let mut receiving = self.0.receiving().lock();
            if receiving.contains_key(&digest) {
                return Err(StoreError::Receiving { digest });
            }
            make_room(self.0, &receiving, &digest, size)?;
            receiving.insert(digest, size);
        }
        let opened = open(self.0, digest, size);
        if opened.is_err() {
            self.0.receiving().lock().remove(&digest);
        }
        opened
    }

    /// Gives up what was received of a blob, unless it is being received.
    pub fn forget_partial(&self, digest: &Digest) {
        if !self.0.receiving().lock().contains_key(digest) {
            remove(self.0, digest);
        }
    }

    /// Puts a blob that was received whole among the others. False where there is none.
    pub(crate) fn adopt(&self, digest: &Digest) -> io::Result<bool> {
        let [data, hashes] = paths(self.0, digest);
        let mut hasher = blake3::Hasher::new();
        match File::open(&data) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => hasher.update_reader(opened?)?,
        };
        if hasher.finalize().as_bytes() != digest.as_bytes() {
            return Ok(false);
        }
        File::open(&data)?.sync_all()?;
        let blobs = self.0.dir().join("blobs");
        fs::rename(&data, blobs.join(digest.to_string()))?;
        files::sync_dir(&blobs)?;
        let _ = fs::remove_file(hashes);
        Ok(true)
    }
}

impl Partial {
    /// What it will be.
    pub const fn digest(&self) -> Digest {
        self.digest
    }

    /// Its length in bytes.
    pub fn size(&self) -> u64 {
        self.hashes.tree.size()
    }

    /// How many bytes are here and verified.
    pub fn verified(&self) -> u64 {
        let here = self.have.iter().filter(|here| **here).count() as u64;
        let last_is_here = self.have.last().is_some_and(|here| *here);
        let beyond = self.have.len() as u64 * GROUP - self.size();
        here * GROUP - if last_is_here { beyond } else { 0 }
    }

    /// The groups of [`GROUP`] bytes that are not here yet, in runs.
    pub fn missing(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        let missing = (0..).zip(&self.have).filter(|(_, here)| !**here);
        for (group, _) in missing {
            match runs.last_mut() {
                Some(run) if run.end == group => run.end += 1,
                _ => runs.push(group..group + 1),
            }
        }
        runs
    }

    /// Takes the slice of these groups in: each is verified before it is written. The number of bytes that are new.
    ///
    /// # Errors
    /// [`PutError::Corrupt`] at the first that does not belong here; what the disk refused.
    pub fn put(&mut self, asked: Range<u64>, slice: &[u8]) -> Result<u64, PutError> {
        let taken = self.take(asked, slice);
        if let Err(PutError::Store(StoreError::Io { source, .. })) = &taken {
            self.full |= is_full(source);
        }
        taken
    }

    fn take(&mut self, asked: Range<u64>, slice: &[u8]) -> Result<u64, PutError> {
        let before = self.verified();
        let asked_ranges = ranges(asked.clone());
        let items = DecodeResponseIter::new(self.hashes.root, self.hashes.tree, slice, &asked_ranges);
        let mut next = asked.start;
        for item in items {
            match item {
                Ok(BaoContentItem::Parent(parent)) => {
                    self.hashes
                        .save(parent.node, &parent.pair)
                        .map_err(self.refused())?;
                }
                Ok(BaoContentItem::Leaf(leaf)) => {
                    self.data
                        .write_all_at(leaf.offset, &leaf.data)
                        .map_err(self.refused())?;
                    let group = leaf.offset / GROUP;
                    if let Some(here) = self.have.get_mut(group as usize) {
                        *here = true;
                    }
                    next = group + 1;
                }
                Err(DecodeError::Io(error)) => return Err(self.refused()(error).into()),
                Err(_) => {
                    return Err(PutError::Corrupt {
                        digest: self.digest,
                        group: next,
                    });
                }
            }
        }
        Ok(self.verified() - before)
    }

    /// The whole blob, once nothing is missing.
    ///
    /// # Errors
    /// [`StoreError::CorruptBlob`] when the disk has changed it since, or something is missing; else what the disk refused.
    pub fn read(&self) -> Result<Bytes, StoreError> {
        let [path, _] = paths(&self.store, &self.digest);
        let bytes = fs::read(&path).map_err(StoreError::io(&path))?;
        match Digest::of(&bytes) {
            found if found == self.digest => Ok(bytes.into()),
            found => Err(StoreError::CorruptBlob { path, found }),
        }
    }

    /// Removes it: it is among the blobs now, or not wanted any more.
    pub fn discard(self) {
        remove(&self.store, &self.digest);
    }

    fn refused(&self) -> impl FnOnce(io::Error) -> StoreError + use<> {
        let [path, _] = paths(&self.store, &self.digest);
        move |error| StoreError::io(&path)(error)
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        self.store.receiving().lock().remove(&self.digest);
        if self.full {
            remove(&self.store, &self.digest);
        }
    }
}

/// Opens both files at their full length: what was never written takes no room, and proves nothing.
fn open(store: &Store, digest: Digest, size: u64) -> Result<Partial, StoreError> {
    let [data, hashes] = paths(store, &digest);
    let tree = tree(size);
    let of_length = |path: &Path, length: u64| {
        let opened = || -> io::Result<File> {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)?;
            if file.metadata()?.len() != length {
                file.set_len(0)?;
                file.set_len(length)?;
            }
            Ok(file)
        };
        opened().map_err(StoreError::io(path))
    };
    let data = of_length(&data, size)?;
    let hashes = PreOrderOutboard {
        root: blake3::Hash::from(*digest.as_bytes()),
        tree,
        data: of_length(&hashes, tree.outboard_size())?,
    };
    let proven = |group| proves(&data, &hashes, group);
    let have = (0..groups(size)).map(proven).collect();
    Ok(Partial {
        store: store.clone(),
        digest,
        data,
        hashes,
        have,
        full: false,
    })
}

/// Whether the group on the disk is the blob's.
fn proves(data: &File, hashes: &PreOrderOutboard<File>, group: u64) -> bool {
    encode_ranges_validated(data, hashes, &ranges(group..group + 1), io::sink()).is_ok()
}

/// Sees to it that all that is received has room, and lets go of what nobody has received for longest. `receiving` has what is being received, which
/// may not be on the disk yet.
fn make_room(
    store: &Store,
    receiving: &HashMap<Digest, u64>,
    digest: &Digest,
    size: u64,
) -> Result<(), StoreError> {
    let quota = store.limits().partial.0;
    limits::at_most("partial", usize::try_from(size).unwrap_or(usize::MAX), quota)?;
    let mut idle = unfinished(store)?;
    idle.retain(|other| other.digest != *digest && !receiving.contains_key(&other.digest));
    idle.sort_by_key(|other| other.changed);
    let mut taken = receiving.values().sum::<u64>() + idle.iter().map(|other| other.size).sum::<u64>();
    for other in idle {
        if taken + size <= quota {
            break;
        }
        remove(store, &other.digest);
        taken -= other.size;
    }
    limits::at_most(
        "partial",
        usize::try_from(taken + size).unwrap_or(usize::MAX),
        quota,
    )?;
    let [data, _] = paths(store, digest);
    // What came earlier has its room already.
    let here = fs::metadata(data).map_or(0, |data| data.blocks() * BLOCK);
    room::take(store.dir(), size.saturating_sub(here))
}

/// Removes what was never finished, when the store is opened.
pub(crate) fn collect(store: &Store) -> Result<(), StoreError> {
    files::private_dir(&store.dir().join(FOLDER))?;
    let now = SystemTime::now();
    for one in unfinished(store)? {
        if now.duration_since(one.changed).is_ok_and(|age| age > KEPT) {
            remove(store, &one.digest);
        }
    }
    Ok(())
}

struct Unfinished {
    digest: Digest,
    size: u64,
    changed: SystemTime,
}

fn unfinished(store: &Store) -> Result<Vec<Unfinished>, StoreError> {
    let folder = store.dir().join(FOLDER);
    let listed = || -> io::Result<Vec<Unfinished>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&folder)? {
            found.extend(described(&entry?)?);
        }
        Ok(found)
    };
    listed().map_err(StoreError::io(&folder))
}

/// What is received in this file; nothing where it receives nothing, or was finished since the folder was listed.
fn described(entry: &DirEntry) -> io::Result<Option<Unfinished>> {
    let Some(digest) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
        return Ok(None);
    };
    let metadata = match entry.metadata() {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        metadata => metadata?,
    };
    Ok(Some(Unfinished {
        digest,
        size: metadata.len(),
        changed: metadata.modified()?,
    }))
}

/// Where the bytes are, and the hashes of the tree over them.
fn paths(store: &Store, digest: &Digest) -> [PathBuf; 2] {
    let folder = store.dir().join(FOLDER);
    [
        folder.join(digest.to_string()),
        folder.join(format!("{digest}.tree")),
    ]
}

fn remove(store: &Store, digest: &Digest) {
    for path in paths(store, digest) {
        // What cannot be removed now goes with the next collection.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_finished_while_others_are_looked_through_is_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        for file in [
            Digest::of(b"a").to_string(),
            Digest::of(b"b").to_string(),
            "other".into(),
        ] {
            fs::write(dir.path().join(file), "1234").unwrap();
        }
        let entries: Vec<DirEntry> = fs::read_dir(dir.path()).unwrap().map(Result::unwrap).collect();
        fs::remove_file(dir.path().join(Digest::of(b"a").to_string())).unwrap();
        let found = entries.iter().filter_map(|entry| described(entry).unwrap());
        let found: Vec<(Digest, u64)> = found.map(|one| (one.digest, one.size)).collect();
        assert_eq!(found, [(Digest::of(b"b"), 4)]);
    }
}
