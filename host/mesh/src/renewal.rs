//! Connections that stand for days do not pass the gate again, so members show each other anew who they are when there is news:
//! a revocation, another root key, a membership to renew. It is the gate's own exchange, on a stream of the connection.

use crate::gate::again;
use crate::mesh::{Inner, Mesh};
use crate::peers::Peer;
use crate::standing::Standing;
use crate::swarm::Order;
use futures::StreamExt;
use futures::future::join_all;
use libp2p::{PeerId, StreamProtocol};
use libp2p_stream::IncomingStreams;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio_util::compat::FuturesAsyncReadCompatExt;

pub(crate) const AGAIN: StreamProtocol = StreamProtocol::new("/karman/gate/1");
/// Exchanges that others have begun, at once; one more is dropped, and begun again by them.
const MOST: usize = 64;
/// When those are told again that were not reached.
const SOON: Duration = Duration::from_secs(2);
/// How often a node looks whether its own membership is to be renewed, at least: one that is short is looked at as often in its life.
const LATER: Duration = Duration::from_secs(60);
const LOOKS: u32 = 8;

/// Tells those that this node is connected with what they do not know yet, and sees to it that its own membership is renewed.
pub(crate) async fn keep_up(mesh: Weak<Inner>) {
    let Some(mut news) = mesh.upgrade().map(|inner| inner.standing.news()) else {
        return;
    };
    loop {
        let Some(inner) = mesh.upgrade() else { return };
        let number = *news.borrow_and_update();
        let standing = inner.standing.clone();
        let told = Mesh(inner).tell(number).await;
        let pause = if told {
            until_the_next_look(&standing)
        } else {
            SOON
        };
        drop(standing);
        if let Ok(Err(_)) = tokio::time::timeout(pause, news.changed()).await {
            return;
        }
    }
}

/// How long its membership may be left alone. One that it does not have yet may be short.
fn until_the_next_look(standing: &Standing) -> Duration {
    match standing.own_or_why() {
        Some(Ok(own)) => (own.life() / LOOKS).clamp(SOON, LATER),
        Some(Err(_)) => LATER,
        None => SOON,
    }
}

impl Mesh {
    /// Whether all have heard of the news with this number, and nothing is left to be renewed.
    async fn tell(&self, number: u64) -> bool {
        let standing = &self.0.standing;
        standing.write_again();
        if let Err(error) = standing.renew_itself() {
            tracing::warn!(%error, "the membership of the node with the root key is not renewed");
        }
        standing.serve_once_it_holds();
        let renew = standing.wants_renewal();
        let issues = |peer: &Peer| {
            let member = peer.member.as_ref();
            member.is_some_and(|member| standing.may_be_renewed_by(member))
        };
        let (connected, away): (Vec<Peer>, Vec<Peer>) = self
            .0
            .peers
            .list()
            .into_iter()
            .partition(|peer| peer.path.is_some());
        let knows = |peer: &Peer| standing.knew(&peer.id).is_none_or(|knew| knew.news >= number);
        let behind = connected
            .iter()
            .filter(|peer| !knows(peer) || (renew && issues(peer)));
        let told = join_all(behind.map(|peer| self.show(peer.id))).await;
        if renew && standing.wants_renewal() {
            // None of those may; one that was met before perhaps does.
            for issuer in away.iter().filter(|peer| issues(peer)) {
                let _ = self.0.orders.send(Order::Connect(issuer.id)).await;
            }
        }
        told.into_iter().all(|told| told)
    }

    /// Goes through the exchange with a peer once more.
    async fn show(&self, peer: PeerId) -> bool {
        let Ok(stream) = self.stream(peer, AGAIN).await else {
            return false;
        };
        let shown = again(&self.0.standing, peer, stream.compat(), true).await;
        shown
            .inspect_err(|error| tracing::debug!(%peer, %error, "a member is not told"))
            .is_ok()
    }
}

/// Takes part when others begin it.
pub(crate) async fn show_again(mesh: Weak<Inner>, mut begun: IncomingStreams) {
    let places = Arc::new(Semaphore::new(MOST));
    while let Some((peer, stream)) = begun.next().await {
        let Some(inner) = mesh.upgrade() else { return };
        let Ok(place) = places.clone().try_acquire_owned() else {
            continue;
        };
        let standing = inner.standing.clone();
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = again(&standing, peer, stream.compat(), false).await {
                tracing::debug!(%peer, %error, "a member does not tell");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use crate::membership::{Issuer, RootKey, Terms, UnixTime};
    use crate::support::{start, until};
    use karman_types::Tier;
    use std::time::Duration;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_node_that_holds_the_root_key_stays_a_member_though_it_is_never_started_again() {
        let root = RootKey::generate().unwrap();
        let node = start(None, Some(&root));
        let standing = node.mesh.standing();
        let long_ago = UnixTime::from_seconds(standing.now().seconds() - 3600);
        let terms = Terms::usual(Tier::Edge, standing.now().after(Duration::from_secs(60)));
        let before = Issuer::root(&root).issue(&standing.public_key(), &terms, long_ago);
        standing.keep(before.unwrap()).unwrap();
        standing.revoke(&[7; 32]).unwrap();
        let lasts = || standing.own().unwrap().not_after > terms.not_after;
        until("it is not renewed", lasts).await;
    }
}
