use std::fmt;
use std::sync::Arc;

/// Bytes that begin at a multiple of 64 and are shared by their clones.
#[derive(Clone)]
pub(crate) struct Storage {
    chunks: Arc<Vec<Chunk>>,
    len: usize,
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Chunk([u8; 64]);

impl Storage {
    /// A copy of these bytes.
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        let mut chunks = vec![Chunk([0; 64]); bytes.len().div_ceil(64)];
        bytemuck::cast_slice_mut(&mut chunks)[..bytes.len()].copy_from_slice(bytes);
        Self {
            chunks: Arc::new(chunks),
            len: bytes.len(),
        }
    }
}

impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.chunks)[..self.len]
    }
}

impl PartialEq for Storage {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Storage {}

impl fmt::Debug for Storage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}
