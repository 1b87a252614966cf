//! Frames: a length in four bytes, little-endian, then that many bytes of CBOR (RFC 8949).
//!
//! The length is judged before anything is taken for it, and memory grows with what really arrives; nesting is bounded by
//! the decoder.

use bytes::{BufMut, Bytes};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Error, ErrorKind, Result as IoResult};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A frame that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The other side announced more than is taken.
    #[error("{frame}: {length} bytes; at most {limit} are taken")]
    TooLong {
        /// Which frame.
        frame: &'static str,
        /// What was announced, in bytes.
        length: u64,
        /// The bound in bytes.
        limit: u64,
    },
    /// The bytes are no such frame.
    #[error("{frame}: {problem}")]
    Malformed {
        /// Which frame.
        frame: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The stream ended or broke.
    #[error("{frame}: {error}")]
    Broken {
        /// Which frame.
        frame: &'static str,
        /// What the stream said.
        error: std::io::Error,
    },
}

/// A kind of frame: its name in errors, and how long it may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) name: &'static str,
    pub(crate) limit: u32,
}

impl Frame {
    pub(crate) const fn new(name: &'static str, limit: u32) -> Self {
        Self { name, limit }
    }

    pub(crate) async fn read<T: DeserializeOwned>(
        self,
        stream: &mut (impl AsyncRead + Unpin),
    ) -> Result<T, WireError> {
        let mut length = [0; 4];
        stream
            .read_exact(&mut length)
            .await
            .map_err(|error| self.broken(error))?;
        let length = u32::from_le_bytes(length);
        if length > self.limit {
            return Err(self.too_long(u64::from(length)));
        }
        let bytes = read_bytes(stream, u64::from(length))
            .await
            .map_err(|error| self.broken(error))?;
        self.decode(&bytes)
    }

    pub(crate) async fn write<T: Serialize>(
        self,
        stream: &mut (impl AsyncWrite + Unpin),
        value: &T,
    ) -> Result<(), WireError> {
        let bytes = self.encode(value)?;
        stream.write_all(&bytes).await.map_err(|error| self.broken(error))
    }

    /// The frame with its length in front.
    pub(crate) fn encode<T: Serialize>(self, value: &T) -> Result<Vec<u8>, WireError> {
        let bytes = cbor4ii::serde::to_vec(vec![0; 4], value).map_err(|error| self.malformed(error))?;
        let mut bytes = bytes;
        let length = bytes.len() - 4;
        match u32::try_from(length) {
            Ok(short) if short <= self.limit => {
                bytes[..4].copy_from_slice(&short.to_le_bytes());
                Ok(bytes)
            }
            _ => Err(self.too_long(length as u64)),
        }
    }

    /// The frame at the beginning of these bytes, without its length, and what follows it.
    pub(crate) fn split(self, bytes: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
        let short = || self.malformed("it ends early");
        let (length, rest) = bytes.split_first_chunk().ok_or_else(short)?;
        let length = u32::from_le_bytes(*length);
        if length > self.limit {
            return Err(self.too_long(u64::from(length)));
        }
        rest.split_at_checked(length as usize).ok_or_else(short)
    }

    pub(crate) fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T, WireError> {
        cbor4ii::serde::from_slice(bytes).map_err(|error| self.malformed(error))
    }

    pub(crate) fn malformed(self, problem: impl ToString) -> WireError {
        WireError::Malformed {
            frame: self.name,
            problem: problem.to_string(),
        }
    }

    const fn too_long(self, length: u64) -> WireError {
        WireError::TooLong {
            frame: self.name,
            length,
            limit: self.limit as u64,
        }
    }

    pub(crate) const fn broken(self, error: std::io::Error) -> WireError {
        WireError::Broken {
            frame: self.name,
            error,
        }
    }
}

/// Where tensors begin: what vector instructions and `karman-tensor` want.
pub(crate) const ALIGNMENT: usize = 64;
/// The most that one read asks for: some streams clear what they are given to fill.
const AT_ONCE: usize = 256 << 10;

/// Reads exactly this many bytes into one aligned buffer. It is reserved at once but not touched before bytes arrive, so
/// that a length costs addresses, not memory.
pub(crate) async fn read_bytes(stream: &mut (impl AsyncRead + Unpin), length: u64) -> IoResult<Bytes> {
    read_bytes_telling(stream, length, None, async || Ok(())).await
}

/// The same, with something to `tell` as soon as so many `first` bytes have come.
pub(crate) async fn read_bytes_telling(
    stream: &mut (impl AsyncRead + Unpin),
    length: u64,
    first: Option<u64>,
    tell: impl AsyncFnOnce() -> IoResult<()>,
) -> IoResult<Bytes> {
    let too_long = |_| Error::from(ErrorKind::OutOfMemory);
    let length = usize::try_from(length).map_err(|_| ErrorKind::OutOfMemory)?;
    let mut bytes: Vec<u8> = Vec::new();
    bytes.try_reserve_exact(length + ALIGNMENT).map_err(too_long)?;
    let start = bytes.as_ptr().align_offset(ALIGNMENT);
    bytes.resize(start, 0);
    let end = start + length;
    let mut telling = first.map(|first| (start as u64 + first, tell));
    while bytes.len() < end {
        let most = AT_ONCE.min(end - bytes.len());
        if stream.read_buf(&mut (&mut bytes).limit(most)).await? == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        if let Some((_, tell)) = telling.take_if(|(first, _)| bytes.len() as u64 >= *first) {
            tell().await?;
        }
    }
    Ok(Bytes::from(bytes).slice(start..))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use std::io::Cursor;

    const FRAME: Frame = Frame::new("test", 16);

    #[test]
    fn what_is_written_is_read() {
        let mut stream = Cursor::new(Vec::new());
        block_on(FRAME.write(&mut stream, &"hello")).unwrap();
        stream.set_position(0);
        assert_eq!(block_on(FRAME.read::<String>(&mut stream)).unwrap(), "hello");
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_it_is_read() {
        let mut stream = Cursor::new(u32::MAX.to_le_bytes());
        let refused = block_on(FRAME.read::<String>(&mut stream)).unwrap_err();
        assert!(
            matches!(
                refused,
                WireError::TooLong {
                    length: 0xffff_ffff,
                    limit: 16,
                    ..
                }
            ),
            "{refused}"
        );
        assert!(matches!(
            FRAME.encode(&"x".repeat(17)),
            Err(WireError::TooLong { .. })
        ));
    }

    #[test]
    fn a_stream_that_ends_early_is_broken() {
        let mut stream = Cursor::new([5, 0, 0, 0, 1]);
        let refused = block_on(FRAME.read::<String>(&mut stream)).unwrap_err();
        assert!(matches!(refused, WireError::Broken { .. }), "{refused}");
    }

    #[test]
    fn bodies_are_aligned() {
        for length in [0, 1, 100, 1 << 20] {
            let mut stream = Cursor::new(vec![7; length]);
            let bytes = block_on(read_bytes(&mut stream, length as u64)).unwrap();
            assert_eq!(bytes, vec![7; length]);
            assert_eq!(bytes.as_ptr().align_offset(ALIGNMENT), 0);
        }
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = Frame::new("deep", 1 << 20);
        let mut bytes = vec![0x81; 100_000];
        bytes.push(0);
        assert!(deep.decode::<serde::de::IgnoredAny>(&bytes).is_err());
    }
}
