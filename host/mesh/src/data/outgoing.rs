use super::uses::Use;
use crate::swarm::Link;
use bytes::Bytes;
use quinn::SendStream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncWrite;

/// A stream that is reset when it is dropped before its end: what was not sent yet is not sent any more.
pub(crate) struct Outgoing {
    stream: SendStream,
    ended: bool,
    link: Arc<Link>,
    _uses: Option<Use>,
}

impl Outgoing {
    pub(super) const fn new(stream: SendStream, link: Arc<Link>, uses: Option<Use>) -> Self {
        Self {
            stream,
            ended: false,
            link,
            _uses: uses,
        }
    }

    /// Sends all of these bytes, without a copy of them.
    pub(crate) async fn take(&mut self, mut bytes: Bytes) -> io::Result<()> {
        while !bytes.is_empty() {
            let mut rest = [bytes];
            let written = self.stream.write_chunks(&mut rest).await?;
            self.link.sends(written.bytes);
            [bytes] = rest;
        }
        Ok(())
    }
}

impl AsyncWrite for Outgoing {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(AsyncWrite::poll_write(Pin::new(&mut self.stream), context, bytes))?;
        self.link.sends(written);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ended = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.stream.reset(quinn::VarInt::from_u32(0));
        }
    }
}
