use bao_tree::io::outboard::PreOrderMemOutboard;
use bao_tree::io::sync::{self, encode_ranges_validated};
use bao_tree::{BaoTree, BlockSize, ChunkNum, ChunkRanges};
use bytes::Bytes;
use karman_types::Digest;
use std::fs::File;
use std::io::{self, BufReader};
use std::ops::Range;
use std::path::Path;

/// Bytes of one group, the least that is verified by itself: 16 KiB.
pub const GROUP: u64 = 16 << 10;
/// 16 chunks of BLAKE3, of 1 KiB each.
const CHUNKS: u64 = 16;
const BLOCK: BlockSize = BlockSize::from_chunk_log(4);

/// A whole blob, cut into groups that each prove that they belong to it (Bao: verified streaming of BLAKE3). Holds the hashes
/// of the tree in memory, 64 bytes for each 16 KiB.
#[derive(Debug)]
pub struct Slices {
    data: Data,
    outboard: PreOrderMemOutboard,
}

#[derive(Debug)]
enum Data {
    Memory(Bytes),
    File(File),
}

impl Slices {
    /// Of bytes in memory. Hashes all of them.
    pub fn of(data: Bytes) -> Self {
        Self {
            outboard: PreOrderMemOutboard::create(&data, BLOCK),
            data: Data::Memory(data),
        }
    }

    /// Of a file. Hashes all of it.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let tree = tree(file.metadata()?.len());
        let mut outboard = PreOrderMemOutboard {
            root: blake3::Hash::from([0; 32]),
            tree,
            data: vec![0; tree.outboard_size() as usize],
        };
        outboard.root = sync::outboard(BufReader::with_capacity(1 << 20, &file), tree, &mut outboard)?;
        Ok(Self {
            data: Data::File(file),
            outboard,
        })
    }

    /// The digest of the whole.
    pub fn digest(&self) -> Digest {
        Digest::from_bytes(*self.outboard.root.as_bytes())
    }

    /// The length of the whole in bytes.
    pub fn size(&self) -> u64 {
        self.outboard.tree.size()
    }

    /// These groups with the hashes that prove them, checked before they leave: what the disk has changed is an error here,
    /// not at the other side.
    ///
    /// # Errors
    /// When the disk refuses, or has changed the bytes.
    pub fn slice(&self, groups: Range<u64>) -> io::Result<Bytes> {
        let mut slice = Vec::new();
        let ranges = ranges(groups);
        match &self.data {
            Data::Memory(bytes) => encode_ranges_validated(&bytes[..], &self.outboard, &ranges, &mut slice)?,
            Data::File(file) => encode_ranges_validated(file, &self.outboard, &ranges, &mut slice)?,
        }
        Ok(slice.into())
    }
}

/// The tree over a blob of this length.
pub(crate) fn tree(size: u64) -> BaoTree {
    BaoTree::new(size, BLOCK)
}

/// Of how many groups a blob of this length consists; an empty one of one.
pub(crate) fn groups(size: u64) -> u64 {
    size.div_ceil(GROUP).max(1)
}

/// Groups as the chunks that they are made of.
pub(crate) fn ranges(groups: Range<u64>) -> ChunkRanges {
    let chunk = |group: u64| ChunkNum(group.saturating_mul(CHUNKS));
    ChunkRanges::from(chunk(groups.start)..chunk(groups.end))
}
