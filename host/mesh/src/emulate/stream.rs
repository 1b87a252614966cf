use super::SharedLine;
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::PollSender;

/// What leaves at once: small enough that streams take turns.
const PIECE: usize = 16 << 10;
/// Pieces that wait for the line: 1 MiB of one stream.
const WAITING: usize = 64;

/// The writing half of a stream whose bytes take their time on a line. One that is dropped before its end is broken off.
pub(crate) struct Slowed {
    pieces: PollSender<Piece>,
}

struct Piece {
    /// Nothing at the end.
    bytes: Option<Bytes>,
    written: Instant,
}

impl Slowed {
    pub(crate) fn new(stream: impl AsyncWrite + Send + Unpin + 'static, line: Arc<SharedLine>) -> Self {
        let (pieces, waiting) = mpsc::channel(WAITING);
        tokio::spawn(carry(stream, waiting, line));
        Self {
            pieces: PollSender::new(pieces),
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        bytes: impl FnOnce() -> Option<Bytes>,
    ) -> Poll<io::Result<()>> {
        let broken = |_| io::Error::from(io::ErrorKind::BrokenPipe);
        ready!(self.pieces.poll_reserve(context)).map_err(broken)?;
        let piece = Piece {
            bytes: bytes(),
            written: Instant::now(),
        };
        Poll::Ready(self.pieces.send_item(piece).map_err(broken))
    }
}

/// Brings what was written to the stream when it has arrived.
async fn carry(
    mut stream: impl AsyncWrite + Unpin,
    mut waiting: mpsc::Receiver<Piece>,
    line: Arc<SharedLine>,
) {
    let mut free = Instant::now();
    let mut under_way: VecDeque<(Instant, Piece)> = VecDeque::new();
    let mut more = true;
    while more || !under_way.is_empty() {
        let arrives = under_way.front().map(|(at, _)| *at);
        let next = async {
            sleep_until(free).await;
            waiting.recv().await
        };
        tokio::select! {
            biased;
            () = sleep_until(arrives.unwrap_or(free)), if arrives.is_some() => {
                let Some((_, piece)) = under_way.pop_front() else { continue };
                let Some(bytes) = piece.bytes else {
                    return drop(stream.shutdown().await);
                };
                let written = stream.write_all(&bytes).await;
                let flushed = match under_way.is_empty() {
                    true => written.and(stream.flush().await),
                    false => written,
                };
                if flushed.is_err() {
                    return;
                }
            }
            () = breaks(&line) => return,
            piece = next, if more => {
                // Without its end the stream was dropped: so will be the other one, when it has what was written.
                more = piece.as_ref().is_some_and(|piece| piece.bytes.is_some());
                let Some(piece) = piece else { continue };
                let length = piece.bytes.as_ref().map_or(0, Bytes::len);
                // It follows the one before without a gap, however late this task was woken.
                let (left, arrived) = line.send(piece.written, length);
                free = left;
                // Jitter does not change the order.
                let arrived = under_way.back().map_or(arrived, |(before, _)| arrived.max(*before));
                under_way.push_back((arrived, piece));
            }
        }
    }
}

/// Ends when the link has been gone for too long.
pub(super) async fn breaks(line: &SharedLine) {
    match line.breaks_at() {
        Some(at) => sleep_until(at).await,
        None => std::future::pending().await,
    }
}

impl AsyncWrite for Slowed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let bytes = &bytes[..bytes.len().min(PIECE)];
        ready!(self.poll_send(context, || Some(Bytes::copy_from_slice(bytes))))?;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // It is on the line.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.pieces.is_closed() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_send(context, || None))?;
        self.pieces.close();
        Poll::Ready(Ok(()))
    }
}
