//! Calls over the swarm to a node that has fallen silent: over TCP and relays that shows after a minute, if ever.
//!
//! While a call waits and nothing is heard of its node, the node is asked for a stream that no node has. It refuses it, whatever version
//! it runs, and that is the answer. So is whatever else it sends; and while much of what was sent may be on its way still, it has time.

use crate::data::{Passed, Silence, pause};
use crate::mesh::Mesh;
use crate::swarm::Link;
use futures::FutureExt;
use futures::future::BoxFuture;
use libp2p::{PeerId, StreamProtocol};
use libp2p_stream::{Control, OpenStreamError};
use std::future::pending;
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

const THERE: StreamProtocol = StreamProtocol::new("/karman/there");
/// How long after a question that did not reach the node the next one is put.
const AGAIN: Duration = Duration::from_millis(250);

impl Mesh {
    /// Over when nothing is heard of the node any more over the swarm. All calls to it listen together.
    pub(crate) async fn unheard(&self, node: PeerId) {
        if self.0.wires.lines.is_some() {
            // What an emulated line holds back is not lost.
            return pending().await;
        }
        let listen = || {
            let (streams, link) = (self.0.streams.clone(), self.0.wires.meter.link(&node));
            let round_trip = self.0.peers.round_trip(&node).unwrap_or_default();
            async move {
                let ask = || is_there(streams.clone(), node).boxed();
                falls_silent(ask, &link, pause(round_trip)).await;
            }
            .boxed()
        };
        self.0.unheard.share(&node, listen).await;
    }
}

/// Over when the node has answered that it is there. What fails on the way is no answer.
async fn is_there(mut streams: Control, node: PeerId) {
    loop {
        match streams.open_stream(node, THERE).await {
            Ok(_) | Err(OpenStreamError::UnsupportedProtocol(_)) => return,
            Err(_) => sleep(AGAIN).await,
        }
    }
}

/// Over when nothing is heard on the link any more though the other node was asked whether it is there.
async fn falls_silent(ask: impl Fn() -> BoxFuture<'static, ()>, link: &Link, pause: Duration) {
    loop {
        let before = link.heard();
        sleep(2 * pause).await;
        if link.heard() != before && !link.is_busy(Instant::now()) {
            continue;
        }
        let mut asked = ask();
        let mut silence = Silence::new(Passed {
            sent: 0,
            heard: before,
        });
        // It owes an answer at every look.
        for sent in 1.. {
            let heard = link.heard();
            if link.is_busy(Instant::now()) {
                silence = Silence::new(Passed { sent, heard });
            } else if silence.looks(Passed { sent, heard }) {
                return;
            }
            if timeout(pause, &mut asked).await.is_ok() {
                link.has_arrived();
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::RootKey;
    use crate::support::{addresses, invite, start};
    use std::cell::Cell;
    use std::future::{poll_fn, ready};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Poll;

    const SOON: Duration = Duration::from_secs(30);
    const PAUSE: Duration = Duration::from_millis(2);
    const MANY: usize = 100;

    /// Whether a node that never answers is taken for silent before it was waited for this many times, each time with this besides.
    async fn is_silent(besides: impl Fn(&Link) + Clone + Send + 'static) -> bool {
        let (link, waits) = (Arc::new(Link::default()), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let (besides, link, waits) = (besides.clone(), link.clone(), waits.clone());
            poll_fn(move |_| {
                waits.fetch_add(1, Ordering::SeqCst);
                besides(&link);
                Poll::<()>::Pending
            })
            .boxed()
        };
        let enough = async {
            while waits.load(Ordering::SeqCst) < MANY {
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = falls_silent(ask, &link, PAUSE) => true,
            () = enough => false,
        }
    }

    #[tokio::test]
    async fn a_node_that_neither_answers_nor_says_anything_is_silent() {
        assert!(is_silent(|_: &Link| {}).await);
        assert!(!is_silent(|link: &Link| link.reads(1)).await, "it says something");
        let uploads = |link: &Link| link.writes(8 << 20, Instant::now());
        assert!(!is_silent(uploads).await, "much is under way to it");
    }

    #[tokio::test]
    async fn a_node_that_answers_is_asked_again_and_has_got_what_was_sent() {
        let (link, asked) = (Link::default(), Cell::new(0));
        link.writes(8 << 20, Instant::now());
        let ask = || {
            asked.set(asked.get() + 1);
            ready(()).boxed()
        };
        let enough = async {
            while asked.get() < MANY {
                sleep(PAUSE).await;
            }
        };
        tokio::select! {
            () = falls_silent(ask, &link, PAUSE) => panic!("it has answered"),
            () = enough => {}
        }
        assert!(!link.is_busy(Instant::now()));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_refuses_what_no_node_has_and_so_says_that_it_is_there() {
        let root = RootKey::generate().unwrap();
        let first = start(None, Some(&root));
        let mut at = addresses(&first).await;
        at.retain(|address| address.to_string().contains("/tcp/"));
        let other = start(Some(invite(&root, &at)), None);
        other.mesh.admitted(SOON).await.unwrap();
        let asked = is_there(other.mesh.0.streams.clone(), first.mesh.me());
        timeout(SOON, asked).await.unwrap();
    }
}
