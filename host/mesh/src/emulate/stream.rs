use super::{SharedLine, Times};
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
    let mut changes = line.changes();
    let mut way = Way::new(line.clone());
    let mut more = true;
    while more || way.arrives().is_some() {
        let (free, arrives) = (way.free, way.arrives());
        let next = async {
            sleep_until(free).await;
            waiting.recv().await
        };
        tokio::select! {
            biased;
            () = sleep_until(arrives.unwrap_or(free)), if arrives.is_some() => {
                let Some(piece) = way.arrived() else { continue };
                let Some(bytes) = piece.bytes else {
                    return drop(stream.shutdown().await);
                };
                let written = stream.write_all(&bytes).await;
                let flushed = match way.arrives() {
                    None => written.and(stream.flush().await),
                    Some(_) => written,
                };
                if flushed.is_err() {
                    return;
                }
            }
            () = breaks(&line) => return,
            Ok(()) = changes.changed() => way.has_changed(Instant::now()),
            piece = next, if more => {
                // Without its end the stream was dropped: so will be the other one, when it has what was written.
                more = piece.as_ref().is_some_and(|piece| piece.bytes.is_some());
                if let Some(piece) = piece {
                    // It follows the one before without a gap, however late this task was woken.
                    way.send(piece.written, piece);
                }
            }
        }
    }
}

/// What of one stream is on the line, or next to go.
struct Way {
    line: Arc<SharedLine>,
    under_way: VecDeque<(Times, Piece)>,
    /// When the next piece may be sent.
    free: Instant,
}

impl Way {
    fn new(line: Arc<SharedLine>) -> Self {
        Self {
            line,
            under_way: VecDeque::new(),
            free: Instant::now(),
        }
    }

    fn send(&mut self, at: Instant, piece: Piece) {
        let mut times = self.line.send(at, piece.bytes.as_ref().map_or(0, Bytes::len));
        // Jitter does not change the order.
        if let Some((before, _)) = self.under_way.back() {
            times.arrives = times.arrives.max(before.arrives);
        }
        self.free = times.left;
        self.under_way.push_back((times, piece));
    }

    /// What has not begun to leave does so by the link as it is now: that is the last piece, if any.
    fn has_changed(&mut self, now: Instant) {
        if let Some((_, piece)) = self.under_way.pop_back_if(|(times, _)| times.begins > now) {
            self.send(piece.written, piece);
        }
    }

    /// When the next piece has come.
    fn arrives(&self) -> Option<Instant> {
        self.under_way.front().map(|(times, _)| times.arrives)
    }

    fn arrived(&mut self) -> Option<Piece> {
        self.under_way.pop_front().map(|(_, piece)| piece)
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

#[cfg(test)]
mod tests {
    use super::*;
    use karman_space::{Link, LinkProfile};
    use karman_types::{NodeId, Tier};
    use std::time::Duration;
    use tokio::io::AsyncReadExt;
    use tokio::time::timeout;

    fn link(text: &str) -> Link {
        let profile = LinkProfile::from_toml(&format!("[[link]]\nto = \"all\"\n{text}")).unwrap();
        profile.to(NodeId::of_key(b"it"), Tier::Edge).unwrap().clone()
    }

    #[tokio::test]
    async fn what_an_outage_holds_back_comes_when_the_link_is_another_one() {
        let out = link("outages = [{ start = \"0s\", length = \"1h\" }]");
        let line = Arc::new(SharedLine::new(out, 1, Instant::now()));
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let mut slowed = Slowed::new(near, line.clone());
        let sent = vec![7; 3 * PIECE];
        slowed.write_all(&sent).await.unwrap();
        let mut came = vec![0; sent.len()];
        let early = timeout(Duration::from_millis(50), far.read(&mut came)).await;
        assert!(early.is_err(), "it passes an outage");
        line.change(link("delay = \"1ms\""));
        let all = timeout(Duration::from_secs(30), far.read_exact(&mut came)).await;
        all.expect("it waits for the end of an outage that is over")
            .unwrap();
        assert_eq!(came, sent);
    }
}
