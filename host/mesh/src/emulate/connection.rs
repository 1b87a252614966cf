use super::SharedLine;
use super::stream::Slowed;
use futures::io::{AsyncReadExt, ReadHalf};
use futures::{AsyncRead, AsyncWrite};
use libp2p::core::StreamMuxer;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerEvent, SubstreamBox};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::compat::{Compat, FuturesAsyncWriteCompatExt, TokioAsyncWriteCompatExt};

/// How often a connection looks whether its link has been gone for too long.
const ROUNDS: Duration = Duration::from_secs(1);

/// A connection whose streams leave by a line.
pub(crate) struct Emulated {
    connection: StreamMuxerBox,
    line: Arc<SharedLine>,
    look: Pin<Box<Sleep>>,
}

impl Emulated {
    pub(crate) fn new(connection: StreamMuxerBox, line: Arc<SharedLine>) -> Self {
        Self {
            connection,
            line,
            look: Box::pin(sleep_until(Instant::now() + ROUNDS)),
        }
    }

    fn stream(&self, stream: SubstreamBox) -> SlowedStream {
        let (input, output) = stream.split();
        SlowedStream {
            input,
            output: Slowed::new(output.compat_write(), self.line.clone()).compat_write(),
        }
    }
}

impl StreamMuxer for Emulated {
    type Substream = SlowedStream;
    type Error = io::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<SlowedStream>> {
        let stream = ready!(Pin::new(&mut self.connection).poll_inbound(context))?;
        Poll::Ready(Ok(self.stream(stream)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<SlowedStream>> {
        let stream = ready!(Pin::new(&mut self.connection).poll_outbound(context))?;
        Poll::Ready(Ok(self.stream(stream)))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_close(context)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        while self.look.as_mut().poll(context).is_ready() {
            if self.line.breaks_at().is_some_and(|at| at <= Instant::now()) {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            self.look.as_mut().reset(Instant::now() + ROUNDS);
        }
        Pin::new(&mut self.connection).poll(context)
    }
}

/// A stream that is written through a line, and read as it comes.
pub(crate) struct SlowedStream {
    input: ReadHalf<SubstreamBox>,
    output: Compat<Slowed>,
}

impl AsyncRead for SlowedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.input).poll_read(context, buffer)
    }
}

impl AsyncWrite for SlowedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.output).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_close(context)
    }
}
