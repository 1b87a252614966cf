use bytes::Bytes;
use std::fmt;
use std::sync::Arc;

/// Bytes that begin at a multiple of 64 and are shared by their clones.
#[derive(Clone)]
pub(crate) enum Storage {
    Own {
        chunks: Arc<Vec<Chunk>>,
        len: usize,
    },
    /// Bytes of another owner, which aligned them.
    Shared(Bytes),
}

#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
pub(crate) struct Chunk([u8; 64]);

impl Storage {
    /// A copy of these bytes.
    pub(crate) fn copy(bytes: &[u8]) -> Self {
        // Pages that are written first with zeros and then with numbers cost twice.
        let (whole, rest) = bytes.as_chunks();
        let mut chunks = Vec::with_capacity(bytes.len().div_ceil(64));
        chunks.extend(whole.iter().map(|chunk| Chunk(*chunk)));
        if !rest.is_empty() {
            let mut last = [0; 64];
            last[..rest.len()].copy_from_slice(rest);
            chunks.push(Chunk(last));
        }
        Self::Own {
            chunks: Arc::new(chunks),
            len: bytes.len(),
        }
    }

    /// These bytes, if they begin where they should; else a copy.
    pub(crate) fn share(bytes: Bytes) -> Self {
        match bytes.as_ptr().align_offset(64) {
            0 => Self::Shared(bytes),
            _ => Self::copy(&bytes),
        }
    }

    pub(crate) fn to_bytes(&self) -> Bytes {
        match self {
            Self::Own { .. } => Bytes::from_owner(self.clone()),
            Self::Shared(bytes) => bytes.clone(),
        }
    }
}

impl AsRef<[u8]> for Storage {
    fn as_ref(&self) -> &[u8] {
        match self {
            Self::Own { chunks, len } => &bytemuck::cast_slice(chunks)[..*len],
            Self::Shared(bytes) => bytes,
        }
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
        write!(f, "{} bytes", self.as_ref().len())
    }
}
