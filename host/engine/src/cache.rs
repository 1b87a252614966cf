//! Compiled code on disk, so that a component is compiled once per machine.
//!
//! Compiled code runs outside the sandbox: an attacker that can make us load theirs owns the node. So an entry begins with a MAC
//! under the node's secret over the engine's fingerprint, the component's digest and the code; anything else that lies in
//! the folder (planted, truncated, from another engine) is not executed but compiled anew and replaced.

use crate::compile::compile;
use crate::error::LoadError;
use karman_types::Digest;
use std::fs::{self, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use wasmtime::Engine;
use wasmtime::component::Component;

const MAC_BYTES: usize = 32;
/// Larger entries are not read: compiled code of the largest component we accept is well below.
const MOST_BYTES: u64 = 1 << 30;

/// All entries together; what has not been used for longest goes first. The compiled code of a Python component takes 60 MB.
const MOST_KEPT: u64 = 2 << 30;

/// A folder of compiled components. Mode 0700, entries 0600, replaced by rename only.
#[derive(Clone)]
pub struct CompileCache {
    folder: PathBuf,
    secret: [u8; 32],
}

/// Where a component's compiled code came from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CompiledFrom {
    /// The cache.
    Cache,
    /// Its own bytes: there was no entry.
    Source,
    /// Its own bytes: the entry was not ours, or broken.
    SourceAfterRefusal,
}

impl CompileCache {
    /// The cache in this folder, made if need be; `secret` is the node's and never leaves it.
    ///
    /// # Errors
    /// When the folder cannot be made or is open to others.
    pub fn open(folder: &Path, secret: [u8; 32]) -> io::Result<Self> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mode = fs::metadata(folder)?.permissions().mode();
        if mode & 0o077 != 0 {
            fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
        }
        let cache = Self {
            folder: folder.into(),
            secret,
        };
        cache.sweep();
        Ok(cache)
    }

    /// The compiled component, from the cache or freshly compiled (and then put there).
    ///
    /// # Errors
    /// Those of [`compile`]. Trouble with the folder is logged and costs only time.
    pub(crate) fn load(
        &self,
        engine: &Engine,
        id: Digest,
        bytes: &[u8],
    ) -> Result<(Component, CompiledFrom), LoadError> {
        let fingerprint = fingerprint(engine);
        let path = self.entry(id, fingerprint);
        let from = match self.read(&path, &fingerprint, id) {
            Ok(Some(code)) => match deserialize(engine, &code) {
                Ok(component) => {
                    mark_used(&path);
                    return Ok((component, CompiledFrom::Cache));
                }
                Err(error) => refused(&path, &error),
            },
            Ok(None) => CompiledFrom::Source,
            Err(error) => refused(&path, &error),
        };
        let component = compile(engine, bytes)?;
        let stored = component
            .serialize()
            .map(|code| self.write(&path, &fingerprint, id, &code));
        match stored {
            Ok(Err(error)) => {
                tracing::warn!(path = %path.display(), %error, "compiled code could not be cached")
            }
            _ => self.shrink(MOST_KEPT, &path),
        }
        Ok((component, from))
    }

    /// Nodes of one user share the folder, and each trusts only its own entries: the name tells whose it is.
    fn entry(&self, id: Digest, fingerprint: [u8; 32]) -> PathBuf {
        let own = blake3::keyed_hash(&self.secret, b"whose entry");
        let [engine, node] = [fingerprint, *own.as_bytes()].map(|bytes| Digest::from_bytes(bytes).short());
        self.folder.join(format!("{id}-{engine}-{node}"))
    }

    fn mac(&self, fingerprint: &[u8; 32], id: Digest, code: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.secret);
        hasher.update(fingerprint).update(id.as_bytes()).update(code);
        hasher.finalize()
    }

    /// The code of an entry that is ours; none when there is no entry.
    fn read(&self, path: &Path, fingerprint: &[u8; 32], id: Digest) -> io::Result<Option<Vec<u8>>> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut file = match fs::File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let length = file.metadata()?.len();
        if length < MAC_BYTES as u64 || length > MOST_BYTES {
            return Err(invalid("entry has an impossible length"));
        }
        let mut mac = [0; MAC_BYTES];
        file.read_exact(&mut mac)?;
        let mut code = vec![0; length as usize - MAC_BYTES];
        file.read_exact(&mut code)?;
        // `blake3::Hash` compares in constant time.
        if blake3::Hash::from_bytes(mac) != self.mac(fingerprint, id, &code) {
            return Err(invalid("entry was not written by this node"));
        }
        Ok(Some(code))
    }

    fn write(&self, path: &Path, fingerprint: &[u8; 32], id: Digest, code: &[u8]) -> io::Result<()> {
        let mut nonce = [0; 8];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())?;
        let temporary = path.with_extension(format!("{:016x}.tmp", u64::from_le_bytes(nonce)));
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        let written = file
            .write_all(self.mac(fingerprint, id, code).as_bytes())
            .and_then(|()| file.write_all(code))
            .and_then(|()| fs::rename(&temporary, path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        written
    }

    /// Removes entries until the others take up no more than `most`, but never the one at `path`.
    fn shrink(&self, most: u64, path: &Path) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        let known = |entry: fs::DirEntry| {
            let data = entry.metadata().ok()?;
            Some((data.modified().ok()?, data.len(), entry.path()))
        };
        let mut entries: Vec<_> = entries.flatten().filter_map(known).collect();
        entries.sort();
        let mut takes: u64 = entries.iter().map(|(_, length, _)| length).sum();
        for (_, length, unused) in entries {
            if takes <= most {
                return;
            }
            if unused != path && fs::remove_file(&unused).is_ok() {
                takes -= length;
            }
        }
    }

    /// Removes what a kill between write and rename left behind.
    fn sweep(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else {
            return;
        };
        for entry in entries.flatten() {
            let old = entry
                .metadata()
                .and_then(|data| data.modified())
                .ok()
                .and_then(|time| time.elapsed().ok());
            let leftover = entry
                .path()
                .extension()
                .is_some_and(|extension| extension == "tmp");
            if leftover && old.is_some_and(|age| age.as_secs() > 60) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Where the time cannot be set, the entry is only thought to be older than it is.
fn mark_used(path: &Path) {
    let _ = fs::File::open(path).and_then(|file| file.set_modified(SystemTime::now()));
}

fn refused(path: &Path, error: &dyn std::fmt::Display) -> CompiledFrom {
    tracing::warn!(path = %path.display(), %error, "cached code refused; compiling anew");
    CompiledFrom::SourceAfterRefusal
}

#[expect(
    unsafe_code,
    reason = "wasmtime cannot check compiled code; we can check that it is ours"
)]
fn deserialize(engine: &Engine, code: &[u8]) -> wasmtime::Result<Component> {
    // SAFETY: `deserialize` must be given what `serialize` of a compatible engine returned. The caller passes only bytes
    // whose MAC under this node's secret (0600, never sent) covers this engine's fingerprint and this component, and
    // `write` is the only place that makes such a MAC, over the output of `serialize`.
    unsafe { Component::deserialize(engine, code) }
}

/// Everything that decides whether compiled code fits: wasmtime's version and settings, and the processor's features.
fn fingerprint(engine: &Engine) -> [u8; 32] {
    struct Blake(blake3::Hasher);
    impl Hasher for Blake {
        fn write(&mut self, bytes: &[u8]) {
            self.0.update(bytes);
        }
        fn finish(&self) -> u64 {
            unreachable!("only the full digest is read")
        }
    }
    let mut hasher = Blake(blake3::Hasher::new());
    engine.precompile_compatibility_hash().hash(&mut hasher);
    *hasher.0.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn setting() -> (tempfile::TempDir, Engine, Vec<u8>, Digest) {
        let bytes = wat::parse_str("(component)").unwrap();
        let id = Digest::of(&bytes);
        (tempfile::tempdir().unwrap(), Engine::default(), bytes, id)
    }

    fn entry(folder: &Path) -> PathBuf {
        fs::read_dir(folder).unwrap().next().unwrap().unwrap().path()
    }

    #[test]
    fn a_second_load_comes_from_the_cache() {
        let (folder, engine, bytes, id) = setting();
        let cache = CompileCache::open(folder.path(), SECRET).unwrap();
        assert_eq!(cache.load(&engine, id, &bytes).unwrap().1, CompiledFrom::Source);
        assert_eq!(cache.load(&engine, id, &bytes).unwrap().1, CompiledFrom::Cache);
        assert_eq!(
            fs::metadata(entry(folder.path())).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }

    #[test]
    fn nodes_that_share_the_folder_leave_each_others_entries_alone() {
        let (folder, engine, bytes, id) = setting();
        let load = |secret| {
            let cache = CompileCache::open(folder.path(), secret).unwrap();
            cache.load(&engine, id, &bytes).unwrap().1
        };
        let [one, other] = [SECRET, [8; 32]];
        assert_eq!([one, other].map(load), [CompiledFrom::Source; 2]);
        assert_eq!([one, other].map(load), [CompiledFrom::Cache; 2]);
    }

    #[test]
    fn planted_truncated_and_flipped_entries_are_recompiled() {
        let (folder, engine, bytes, id) = setting();
        let cache = CompileCache::open(folder.path(), SECRET).unwrap();
        cache.load(&engine, id, &bytes).unwrap();
        let path = entry(folder.path());
        let good = fs::read(&path).unwrap();

        // Code that wasmtime itself would accept, but under another node's secret.
        let mut planted = CompileCache {
            secret: [8; 32],
            ..cache.clone()
        }
        .mac(&fingerprint(&engine), id, &good[MAC_BYTES..])
        .as_bytes()
        .to_vec();
        planted.extend_from_slice(&good[MAC_BYTES..]);
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bad in [planted, flipped, good[..good.len() / 2].to_vec(), Vec::new()] {
            fs::write(&path, bad).unwrap();
            assert_eq!(
                cache.load(&engine, id, &bytes).unwrap().1,
                CompiledFrom::SourceAfterRefusal
            );
            assert_eq!(cache.load(&engine, id, &bytes).unwrap().1, CompiledFrom::Cache);
        }
    }

    #[test]
    fn what_was_not_used_for_longest_makes_room() {
        let (folder, engine, ..) = setting();
        let cache = CompileCache::open(folder.path(), SECRET).unwrap();
        let component = |name: &str| {
            let text = format!("(component (core module (func (export {name:?}))))");
            wat::parse_str(text).unwrap()
        };
        let load = |name: &str| {
            let bytes = component(name);
            cache.load(&engine, Digest::of(&bytes), &bytes).unwrap().1
        };
        let entries = || -> Vec<PathBuf> {
            let entries = fs::read_dir(folder.path()).unwrap();
            entries.map(|entry| entry.unwrap().path()).collect()
        };
        for (second, name) in ["a", "b", "c"].into_iter().enumerate() {
            load(name);
            let id = Digest::of(&component(name)).to_string();
            let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&id);
            let path = entries().into_iter().find(is_it).unwrap();
            let used = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(second as u64);
            fs::File::open(path).unwrap().set_modified(used).unwrap();
        }
        assert_eq!(load("a"), CompiledFrom::Cache);
        let length = |path: PathBuf| fs::metadata(path).unwrap().len();
        let largest = entries().into_iter().map(length).max().unwrap();
        cache.shrink(2 * largest, folder.path());
        assert_eq!(entries().len(), 2);
        assert_eq!(
            ["a", "c", "b"].map(load),
            [CompiledFrom::Cache, CompiledFrom::Cache, CompiledFrom::Source]
        );
        let newest = folder.path().join("newest");
        fs::write(&newest, [0; 64]).unwrap();
        cache.shrink(0, &newest);
        assert_eq!(entries(), [newest]);
    }

    #[test]
    fn an_entry_of_another_component_is_refused() {
        let (folder, engine, bytes, id) = setting();
        let cache = CompileCache::open(folder.path(), SECRET).unwrap();
        cache.load(&engine, id, &bytes).unwrap();
        let other = wat::parse_str("(component (core module))").unwrap();
        let other_id = Digest::of(&other);
        let path = entry(folder.path());
        let name = path
            .file_name()
            .unwrap()
            .to_str()
            .unwrap()
            .replace(&id.to_string(), &other_id.to_string());
        fs::copy(&path, folder.path().join(name)).unwrap();
        assert_eq!(
            cache.load(&engine, other_id, &other).unwrap().1,
            CompiledFrom::SourceAfterRefusal
        );
    }
}
