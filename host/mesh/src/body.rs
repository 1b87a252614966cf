//! What goes over a stream after a head: bytes in pieces that others hold, too, so that what is long is not copied to be sent.

use crate::data::{OnLine, Outgoing};
use bytes::Bytes;
use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt, WriteHalf};

/// The body of a call: its bytes, in pieces that are sent one after the other.
#[derive(Clone, Debug, Default)]
pub struct Body(Vec<Bytes>);

impl Body {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All of it in one piece; several are copied for it.
    pub fn into_bytes(self) -> Bytes {
        match <[Bytes; 1]>::try_from(self.0) {
            Ok([whole]) => whole,
            Err(pieces) => pieces.concat().into(),
        }
    }

    pub(crate) fn pieces(&self) -> &[Bytes] {
        &self.0
    }

    /// The pieces of its first so many bytes, and those of the rest.
    pub(crate) fn cut_at(&self, at: usize) -> (Vec<Bytes>, Vec<Bytes>) {
        let mut left = at;
        let cut = |piece: &Bytes| {
            let mut first = piece.clone();
            let rest = first.split_off(left.min(piece.len()));
            left -= first.len();
            (first, rest)
        };
        let (mut first, mut rest): (Vec<_>, Vec<_>) = self.0.iter().map(cut).unzip();
        first.retain(|piece| !piece.is_empty());
        rest.retain(|piece| !piece.is_empty());
        (first, rest)
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self(vec![bytes])
    }
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from(text).into()
    }
}

impl FromIterator<Bytes> for Body {
    fn from_iter<I: IntoIterator<Item = Bytes>>(pieces: I) -> Self {
        Self(pieces.into_iter().filter(|piece| !piece.is_empty()).collect())
    }
}

/// A stream that bytes are handed to: one that can keeps them as they are until they are sent, others copy from them.
pub(crate) trait Takes: AsyncWrite + Send + Unpin {
    /// Sends all of these bytes.
    fn take(&mut self, bytes: Bytes) -> impl Future<Output = io::Result<()>> + Send {
        async move { self.write_all(&bytes).await }
    }
}

impl<S: AsyncWrite + Send> Takes for WriteHalf<S> {}

impl Takes for OnLine {
    async fn take(&mut self, bytes: Bytes) -> io::Result<()> {
        match self {
            Self::Left(direct) => Outgoing::take(direct, bytes).await,
            Self::Right(line) => line.write_all(&bytes).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_one_body() {
        let pieces = ["ab", "", "c"].map(Bytes::from);
        let body: Body = pieces.into_iter().collect();
        assert_eq!((body.len(), body.pieces().len()), (3, 2));
        assert_eq!(body.into_bytes(), "abc");
        let three: Body = ["abc", "de", "f"].map(Bytes::from).into_iter().collect();
        let cut = |at| {
            let (first, rest) = three.cut_at(at);
            [first.concat(), rest.concat()]
        };
        assert_eq!(cut(4), [&b"abcd"[..], b"ef"]);
        assert_eq!(cut(5), [&b"abcde"[..], b"f"]);
        assert_eq!(cut(9), [&b"abcdef"[..], b""]);
        assert_eq!(three.cut_at(3).1, ["de", "f"]);
        assert!(Body::default().is_empty() && Body::default().into_bytes().is_empty());
        let whole = Bytes::from_static(b"abc");
        assert_eq!(Body::from(whole.clone()).into_bytes().as_ptr(), whole.as_ptr());
    }
}
