use karman_types::Digest;
use serde::{Deserialize, Serialize};

/// How updates are cut: all of a round alike, so that a descriptor does not tell whose it is by its size.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Layout {
    /// Bytes of a chunk.
    pub chunk: u32,
    /// Chunks of an update; the last ones of a shorter update are padded with zeros.
    pub chunks: u32,
}

/// What everybody knows of an update: what its chunks hash to and what it weighs. Whose it is, only its owner and the coordinator
/// know; the pseudonym is another one in each round.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Descriptor {
    /// The owner's name in this round.
    pub pseudonym: Digest,
    /// What the update counts in the mean.
    pub weight: u32,
    /// The BLAKE3 digest of each chunk.
    pub chunks: Vec<Digest>,
}

/// A chunk among all of a round: the number of its update times the chunks of an update, plus its place in it.
pub type Chunk = u32;

/// What makes no update, or no chunk of one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// Nothing to cut into.
    #[error("chunks have from 1 byte to {most}, an update has from 1 chunk to {most_chunks}", most = Layout::LARGEST, most_chunks = Layout::MOST)]
    Layout,
    /// An update that does not fit.
    #[error("an update of {have} bytes came where {room} fit")]
    TooLong {
        /// Its bytes.
        have: usize,
        /// The bytes of all chunks.
        room: usize,
    },
    /// A descriptor of another number of chunks, or without weight.
    #[error(
        "a descriptor has {have} chunks and weight {weight} instead of {need} chunks and a weight from 1 to {most}"
    )]
    Descriptor {
        /// Its chunks.
        have: usize,
        /// Its weight.
        weight: u32,
        /// The chunks of the layout.
        need: u32,
        /// The largest weight.
        most: u32,
    },
    /// A chunk that is not what its descriptor says.
    #[error("chunk {0} is not what its descriptor says")]
    Altered(Chunk),
    /// There is no such chunk in the round.
    #[error("there is no chunk {0}")]
    Unknown(Chunk),
}

impl Layout {
    /// The largest chunk, in bytes.
    pub const LARGEST: u32 = 16 << 20;
    /// The most chunks of an update.
    pub const MOST: u32 = 1 << 16;

    /// That updates can be cut so.
    ///
    /// # Errors
    ///
    /// A size is zero or too large.
    pub fn check(&self) -> Result<(), ChunkError> {
        match (1..=Self::LARGEST).contains(&self.chunk) && (1..=Self::MOST).contains(&self.chunks) {
            true => Ok(()),
            false => Err(ChunkError::Layout),
        }
    }

    /// Bytes of all chunks of an update.
    pub const fn room(&self) -> usize {
        self.chunk as usize * self.chunks as usize
    }

    /// Cuts an update.
    ///
    /// # Errors
    ///
    /// It does not fit.
    pub fn cut(&self, update: &[u8]) -> Result<Vec<Vec<u8>>, ChunkError> {
        self.check()?;
        if update.len() > self.room() {
            return Err(ChunkError::TooLong {
                have: update.len(),
                room: self.room(),
            });
        }
        let size = self.chunk as usize;
        let mut chunks: Vec<_> = update.chunks(size).map(<[u8]>::to_vec).collect();
        chunks.resize(self.chunks as usize, Vec::new());
        chunks.iter_mut().for_each(|chunk| chunk.resize(size, 0));
        Ok(chunks)
    }
}

impl Descriptor {
    /// The descriptor of an update that was cut.
    pub fn of(pseudonym: Digest, weight: u32, chunks: &[Vec<u8>]) -> Self {
        let chunks = chunks.iter().map(|chunk| Digest::of(chunk)).collect();
        Self {
            pseudonym,
            weight,
            chunks,
        }
    }

    /// That it fits the round.
    ///
    /// # Errors
    ///
    /// It has another number of chunks, or a weight that is not allowed.
    pub fn check(&self, layout: &Layout, most_weight: u32) -> Result<(), ChunkError> {
        let (have, need, weight) = (self.chunks.len(), layout.chunks, self.weight);
        match have == need as usize && (1..=most_weight).contains(&weight) {
            true => Ok(()),
            false => Err(ChunkError::Descriptor {
                have,
                weight,
                need,
                most: most_weight,
            }),
        }
    }

    /// What the updates of a round are put in order by, everywhere the same.
    pub fn digest(&self) -> Digest {
        let mut text = self.pseudonym.as_bytes().to_vec();
        text.extend_from_slice(&self.weight.to_le_bytes());
        self.chunks
            .iter()
            .for_each(|chunk| text.extend_from_slice(chunk.as_bytes()));
        Digest::of(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_is_its_chunks_and_padding() {
        let layout = Layout { chunk: 4, chunks: 3 };
        let chunks = layout.cut(&[1, 2, 3, 4, 5]).unwrap();
        assert_eq!(chunks, [vec![1, 2, 3, 4], vec![5, 0, 0, 0], vec![0; 4]]);
        let descriptor = Descriptor::of(Digest::of(b"me"), 2, &chunks);
        assert_eq!(descriptor.check(&layout, 2), Ok(()));
        assert!(descriptor.check(&layout, 1).is_err());
        assert!(descriptor.check(&Layout { chunk: 4, chunks: 4 }, 2).is_err());
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let layout = Layout { chunk: 2, chunks: 2 };
        assert_eq!(layout.cut(&[0; 5]), Err(ChunkError::TooLong { have: 5, room: 4 }));
        assert_eq!(Layout { chunk: 0, chunks: 2 }.cut(&[]), Err(ChunkError::Layout));
        assert_eq!(Layout { chunk: 2, chunks: 0 }.check(), Err(ChunkError::Layout));
    }
}
