//! Where a client keeps the chunks of a round: a file without a name, which is gone with the round, however that ends. In memory a round of
//! a hundred updates would take more than a board has.

use karman_fed::swarm::Chunk;
use karman_types::TaskError;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

pub(super) struct Shelf {
    file: File,
    /// Bytes of a chunk.
    size: u32,
}

impl Shelf {
    pub(super) fn new(folder: &Path, size: u32) -> Result<Self, TaskError> {
        let file = std::fs::create_dir_all(folder).and_then(|()| tempfile::tempfile_in(folder));
        let file = file.map_err(|error| refused(&error))?;
        Ok(Self { file, size })
    }

    pub(super) fn put(&self, chunk: Chunk, bytes: &[u8]) -> Result<(), TaskError> {
        let put = self.file.write_all_at(bytes, self.place(chunk));
        put.map_err(|error| refused(&error))
    }

    /// A chunk that was put there before.
    pub(super) fn get(&self, chunk: Chunk) -> Result<Vec<u8>, TaskError> {
        let mut bytes = vec![0; self.size as usize];
        let got = self.file.read_exact_at(&mut bytes, self.place(chunk));
        got.map_err(|error| refused(&error))?;
        Ok(bytes)
    }

    fn place(&self, chunk: Chunk) -> u64 {
        u64::from(chunk) * u64::from(self.size)
    }
}

fn refused(error: &io::Error) -> TaskError {
    // Not `unavailable`: nobody is gone.
    TaskError::internal(format!("the chunks of a round cannot be kept: {error}"))
        .with_hint("a round takes as many bytes on the disk as all of its updates together")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_again_and_the_folder_stays_empty() {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path(), 3).unwrap();
        shelf.put(7, b"abc").unwrap();
        shelf.put(2, b"def").unwrap();
        assert_eq!(shelf.get(7).unwrap(), b"abc");
        assert_eq!(shelf.get(2).unwrap(), b"def");
        assert!(shelf.get(8).is_err(), "beyond the end");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
