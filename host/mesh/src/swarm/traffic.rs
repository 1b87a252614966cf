//! How much each protocol of the swarm sends and receives, and how much is sent to each node, for an operator who pays for the link.
//!
//! The bytes counted are those of the streams. What carries them comes on top: framing, encryption, acknowledgements.

use super::link::Link;
use futures::{AsyncRead, AsyncWrite};
use libp2p::PeerId;
use libp2p::core::StreamMuxer;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerEvent, SubstreamBox};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

/// The first line on a stream whose protocol is agreed upon (multistream-select 1.0).
const MULTISTREAM: &[u8] = b"/multistream/1.0.0\n";
/// What may pass before the protocol is known.
const MOST_HEAD: usize = 256;
/// Protocols that are counted apart: a stranger names as many as it likes.
const MOST_PROTOCOLS: usize = 64;
/// Nodes that are counted apart.
const MOST_LINKS: usize = 4096;
/// Each connection has two of its streams as long as it is there, whether anybody uses it or not.
const PING: &str = "/ipfs/ping/1.0.0";
/// The gate is not agreed upon: it is the first stream of a connection.
const GATE: &str = "gate";
const OTHER: &str = "other";

/// The traffic of one protocol, in bytes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Traffic {
    /// The name that the protocol has on the wire, or `gate`, or `other`.
    pub protocol: String,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
}

#[derive(Default)]
pub(crate) struct Meter {
    protocols: Mutex<BTreeMap<String, Arc<Counter>>>,
    /// What passes to and from each node.
    links: Mutex<HashMap<PeerId, Met>>,
}

/// A node with which a connection was made.
struct Met {
    link: Arc<Link>,
    /// When a connection or a stream was last made.
    last: Instant,
    /// Whether the gate has ever let it in.
    let_in: bool,
}

#[derive(Default)]
struct Counter {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Meter {
    /// Every protocol so far.
    pub(crate) fn read(&self) -> Vec<Traffic> {
        let counters = self.protocols.lock();
        let read = |(protocol, counter): (&String, &Arc<Counter>)| Traffic {
            protocol: protocol.clone(),
            sent: counter.sent.load(Ordering::Relaxed),
            received: counter.received.load(Ordering::Relaxed),
        };
        counters.iter().map(read).collect()
    }

    /// What passes to and from a node. Where as many are connected as are remembered, nobody else knows it of one more.
    pub(crate) fn link(&self, to: &PeerId) -> Arc<Link> {
        let mut links = self.links.lock();
        if links.len() >= MOST_LINKS && !links.contains_key(to) {
            make_room(&mut links);
        }
        if links.len() >= MOST_LINKS && !links.contains_key(to) {
            return Arc::default();
        }
        let last = Instant::now();
        let met = links.entry(*to).or_insert_with(|| Met {
            link: Arc::default(),
            last,
            let_in: false,
        });
        met.last = last;
        met.link.clone()
    }

    /// The gate has let a node in: it is remembered from now on.
    pub(super) fn lets_in(&self, node: &PeerId) {
        if let Some(met) = self.links.lock().get_mut(node) {
            met.let_in = true;
        }
    }

    /// Whether a stream of the swarm is open with the node, pings apart.
    pub(super) fn has_streams(&self, with: &PeerId) -> bool {
        let links = self.links.lock();
        links.get(with).is_none_or(|met| met.link.has_streams())
    }

    /// Bytes sent to a node so far.
    pub(crate) fn sent_to(&self, node: &PeerId) -> u64 {
        let links = self.links.lock();
        links.get(node).map_or(0, |met| met.link.sent())
    }

    fn counter(&self, protocol: &str) -> Arc<Counter> {
        let mut counters = self.protocols.lock();
        let protocol = match counters.len() < MOST_PROTOCOLS || counters.contains_key(protocol) {
            true => protocol,
            false => OTHER,
        };
        counters.entry(protocol.to_owned()).or_default().clone()
    }
}

/// Forgets strangers that have gone; where there are none, the member that has gone longest ago.
fn make_room(links: &mut HashMap<PeerId, Met>) {
    let is_gone = |met: &Met| Arc::strong_count(&met.link) == 1;
    links.retain(|_, met| met.let_in || !is_gone(met));
    if links.len() < MOST_LINKS {
        return;
    }
    let gone = links.iter().filter(|(_, met)| is_gone(met));
    let oldest = gone.min_by_key(|(_, met)| met.last).map(|(node, _)| *node);
    oldest.and_then(|node| links.remove(&node));
}

/// A connection whose streams are counted.
pub(super) struct Metered {
    connection: StreamMuxerBox,
    meter: Arc<Meter>,
    link: Arc<Link>,
}

impl Metered {
    /// `over` is the relay between, where there is one.
    pub(super) fn new(
        connection: StreamMuxerBox,
        meter: Arc<Meter>,
        to: PeerId,
        over: Option<PeerId>,
    ) -> Self {
        let link = meter.link(&to);
        link.goes_over(over.map(|relay| meter.link(&relay)));
        Self {
            connection,
            meter,
            link,
        }
    }

    fn stream(&self, stream: SubstreamBox, ours: bool) -> MeteredStream {
        self.link.opens();
        MeteredStream {
            stream,
            ours,
            meter: self.meter.clone(),
            link: self.link.clone(),
            is_ping: false,
            known: None,
            head: Vec::new(),
            answered: 0,
        }
    }
}

impl StreamMuxer for Metered {
    type Substream = MeteredStream;
    type Error = io::Error;

    fn poll_inbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<MeteredStream>> {
        let stream = ready!(Pin::new(&mut self.connection).poll_inbound(context))?;
        Poll::Ready(Ok(self.stream(stream, false)))
    }

    fn poll_outbound(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<MeteredStream>> {
        let stream = ready!(Pin::new(&mut self.connection).poll_outbound(context))?;
        Poll::Ready(Ok(self.stream(stream, true)))
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.connection).poll_close(context)
    }

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
        Pin::new(&mut self.connection).poll(context)
    }
}

pub(super) struct MeteredStream {
    stream: SubstreamBox,
    /// Whether this side opened it: the opener says the protocol's name.
    ours: bool,
    meter: Arc<Meter>,
    link: Arc<Link>,
    is_ping: bool,
    /// The counter of its protocol, once that is known.
    known: Option<Arc<Counter>>,
    /// What the opener has said until then.
    head: Vec<u8>,
    /// How much the other has.
    answered: u64,
}

impl MeteredStream {
    fn count(&mut self, sent: bool, bytes: &[u8]) {
        if self.known.is_none() {
            self.learn(sent, bytes);
            return;
        }
        if let Some(counter) = &self.known {
            let side = if sent { &counter.sent } else { &counter.received };
            side.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }

    fn learn(&mut self, sent: bool, bytes: &[u8]) {
        if sent != self.ours {
            self.answered += bytes.len() as u64;
            return;
        }
        let before = self.head.len();
        self.head.extend_from_slice(bytes);
        let protocol = match proposed(&self.head) {
            Proposed::Protocol(name) => name,
            Proposed::Gate => GATE,
            Proposed::Unfinished if self.head.len() < MOST_HEAD => return,
            Proposed::Unfinished => OTHER,
        };
        if protocol == PING {
            self.is_ping = true;
            self.link.closes();
        }
        let counter = self.meter.counter(protocol);
        let said = (before + bytes.len()) as u64;
        let (sent, received) = match self.ours {
            true => (said, self.answered),
            false => (self.answered, said),
        };
        counter.sent.fetch_add(sent, Ordering::Relaxed);
        counter.received.fetch_add(received, Ordering::Relaxed);
        self.head = Vec::new();
        self.known = Some(counter);
    }
}

impl Drop for MeteredStream {
    fn drop(&mut self) {
        if !self.is_ping {
            self.link.closes();
        }
    }
}

#[derive(Debug, Eq, PartialEq)]
enum Proposed<'a> {
    Unfinished,
    Gate,
    Protocol(&'a str),
}

/// The protocol that the opener of a stream names first. Members take it nearly always, for they all speak the same.
fn proposed(head: &[u8]) -> Proposed<'_> {
    let Some((first, rest)) = line(head) else {
        // The gate's frames begin with a length, whose first byte is no length of that line.
        let differs = head.iter().skip(1).zip(MULTISTREAM).any(|(a, b)| a != b);
        return if differs {
            Proposed::Gate
        } else {
            Proposed::Unfinished
        };
    };
    if first != MULTISTREAM {
        return Proposed::Gate;
    }
    let Some((second, _)) = line(rest) else {
        return Proposed::Unfinished;
    };
    let name = second
        .strip_suffix(b"\n")
        .and_then(|name| std::str::from_utf8(name).ok());
    Proposed::Protocol(name.unwrap_or(OTHER))
}

/// A line and what follows it. Those that matter here are shorter than 128 bytes, and their length is one byte.
fn line(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first()?;
    rest.split_at_checked(usize::from(*length))
}

impl AsyncRead for MeteredStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let read = ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.count(false, &buffer[..read]);
        self.link.reads(read);
        Poll::Ready(Ok(read))
    }
}

impl AsyncWrite for MeteredStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, bytes))?;
        self.count(true, &bytes[..written]);
        self.link.writes(written, Instant::now());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_close(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A connection on which nobody opens anything.
    struct Silent;

    impl StreamMuxer for Silent {
        type Substream = futures::io::Cursor<Vec<u8>>;
        type Error = io::Error;

        fn poll_inbound(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<Self::Substream>> {
            Poll::Pending
        }

        fn poll_outbound(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<Self::Substream>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<StreamMuxerEvent>> {
            Poll::Pending
        }
    }

    const KAD: &[u8] = b"\x13/multistream/1.0.0\n\x0e/karman/kad/1\n\0";

    #[test]
    fn the_opener_names_the_protocol() {
        assert_eq!(proposed(KAD), Proposed::Protocol("/karman/kad/1"));
        for short in 0..KAD.len() - 1 {
            assert_eq!(proposed(&KAD[..short]), Proposed::Unfinished, "{short}");
        }
        assert_eq!(proposed(b"\0\0\x01\x20hello"), Proposed::Gate);
    }

    #[test]
    fn a_stranger_cannot_fill_the_memory() {
        let meter = Meter::default();
        for number in 0..1000 {
            meter.counter(&format!("/{number}"));
        }
        assert_eq!(meter.read().len(), MOST_PROTOCOLS + 1);
        let held: Vec<_> = (0..MOST_LINKS + 10)
            .map(|_| meter.link(&PeerId::random()))
            .collect();
        assert_eq!(meter.links.lock().len(), MOST_LINKS);
        drop(held);
    }

    #[test]
    fn strangers_leave_room_for_members() {
        let (meter, [stays, comes]) = (Meter::default(), [(); 2].map(|()| PeerId::random()));
        meter.link(&stays).sends(3);
        meter.lets_in(&stays);
        for _ in 0..2 * MOST_LINKS {
            meter.link(&PeerId::random());
        }
        meter.link(&comes).sends(4);
        assert_eq!((meter.sent_to(&stays), meter.sent_to(&comes)), (3, 4));
    }

    #[test]
    fn members_that_have_gone_leave_room_for_others_those_that_went_first_before_the_rest() {
        let meter = Meter::default();
        let members: Vec<PeerId> = (0..MOST_LINKS).map(|_| PeerId::random()).collect();
        for member in &members {
            meter.link(member).sends(3);
            meter.lets_in(member);
        }
        let held = meter.link(&members[0]);
        let comes = PeerId::random();
        meter.link(&comes).sends(4);
        meter.lets_in(&comes);
        let sent = |at: usize| meter.sent_to(&members[at]);
        assert_eq!([sent(0), sent(1), sent(2), meter.sent_to(&comes)], [3, 0, 3, 4]);
        assert_eq!(meter.links.lock().len(), MOST_LINKS);
        drop(held);
    }

    #[test]
    fn what_is_sent_to_a_node_is_counted_over_all_connections() {
        let (meter, node) = (Meter::default(), PeerId::random());
        meter.link(&node).sends(3);
        meter.link(&node).sends(4);
        assert_eq!((meter.sent_to(&node), meter.sent_to(&PeerId::random())), (7, 0));
    }

    #[test]
    fn a_node_has_streams_as_long_as_one_is_open_that_is_no_ping() {
        let (meter, node) = (Arc::new(Meter::default()), PeerId::random());
        let ends = futures::io::Cursor::new(Vec::new());
        let muxer = StreamMuxerBox::new(Silent);
        let connection = Metered::new(muxer, meter.clone(), node, None);
        let open = |head: &[u8]| {
            let mut stream = connection.stream(SubstreamBox::new(ends.clone()), true);
            stream.count(true, head);
            stream
        };
        assert!(!meter.has_streams(&node));
        let ping = open(b"\x13/multistream/1.0.0\n\x11/ipfs/ping/1.0.0\n");
        assert!(!meter.has_streams(&node));
        let kad = open(KAD);
        let unnamed = open(b"");
        drop(ping);
        drop(kad);
        assert!(meter.has_streams(&node));
        drop(unnamed);
        assert!(!meter.has_streams(&node));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            proposed(&bytes);
        }
    }
}
