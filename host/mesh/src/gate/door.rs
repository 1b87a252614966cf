//! How one who was invited comes to an issuer that only a member can reach: the member leads it there, and carries what it cannot
//! read.
//!
//! The stranger dials the member, as the address in its invitation says (`MEMBER/p2p-circuit/p2p/ISSUER`), and asks at the gate
//! to be led to the issuer. The member opens a stream to it, and over the two the stranger and the issuer shake hands (Noise,
//! each by the key that the other expects) and go through the exchange of the gate. The stranger has a membership then; it
//! comes again, passes the member's own gate, and has the circuit to the issuer like any member.
//!
//! A stranger gets no further than this: to issuers that are in reach, a few at once, with little to say.

use super::invited::judge;
use super::opening::{answer, linger, turn_away};
use super::{
    Credential, GateError, HELLO, Hello, LEAVE, PATIENCE, Reply, WELCOME, at_once, flush, key_of, knock,
    not_let_in, peer_of, say,
};
use crate::membership::Right;
use crate::mesh::Inner;
use crate::standing::Standing;
use futures::StreamExt;
use libp2p::core::upgrade::{InboundConnectionUpgrade, OutboundConnectionUpgrade};
use libp2p::identity::Keypair;
use libp2p::multiaddr::Protocol;
use libp2p::{Multiaddr, PeerId, Stream, StreamProtocol, noise};
use libp2p_stream::IncomingStreams;
use serde_bytes::ByteBuf;
use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy, split};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_util::compat::{FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};

pub(crate) const DOOR: StreamProtocol = StreamProtocol::new("/karman/door/1");
/// Strangers that a member leads at once; that an issuer hears at once over members, and over one of them.
pub(crate) const MOST_LED: usize = 8;
const MOST_HEARD: usize = 16;
const MOST_HEARD_BY_ONE: usize = 4;
/// Strangers beyond these whom an issuer tells at once that they come too early, and those of one member. Who finds no place there
/// either hears nothing.
const MOST_TURNED_AWAY: usize = 16;
const MOST_TURNED_AWAY_BY_ONE: usize = 4;
/// Bytes that a stranger may say on its way, and that it may be told: the list of revocations is long.
const MOST_SAID: u64 = 64 << 10;
const MOST_TOLD: u64 = 9 << 20;
/// How long an issuer may take to take a stream; how long one may take to hear that there is no place for it.
const WAY_WITHIN: Duration = Duration::from_secs(5);

/// The issuer to which this address leads by way of this member, if it does.
pub(crate) fn issuer_behind(address: &str, member: &PeerId) -> Option<PeerId> {
    let address: Multiaddr = address.parse().ok()?;
    let mut parts = address.iter().skip_while(|part| *part != Protocol::P2p(*member));
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(_), Some(Protocol::P2pCircuit), Some(Protocol::P2p(issuer)), None) => Some(issuer),
        _ => None,
    }
}

/// Goes to the issuer over the member at the other end of the stream. Even where that lets this node in, the connection with the
/// member ends: the next one is a member's.
pub(super) async fn go_through(
    standing: &Standing,
    issuer: PeerId,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> GateError {
    match went_through(standing, issuer, stream).await {
        Ok(()) => GateError::LetInThere,
        Err(error) => error,
    }
}

async fn went_through(
    standing: &Standing,
    issuer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(), GateError> {
    let key =
        key_of(&issuer).ok_or_else(|| GateError::Broken("the issuer's key is no Ed25519 key".into()))?;
    say(standing, Credential::Through(ByteBuf::from(key)), &mut stream).await?;
    match WELCOME.read(&mut stream).await? {
        Reply::Through => {}
        other => return Err(not_let_in(other)),
    }
    let (there, stream) = noise(standing)?
        .upgrade_outbound(stream.compat(), "")
        .await
        .map_err(broken)?;
    if there != issuer {
        return Err(GateError::Broken("another node than the issuer answers".into()));
    }
    let mut stream = stream.compat();
    knock(standing, &key, None, &mut stream, &at_once).await?;
    let _ = stream.shutdown().await;
    Ok(())
}

/// Leads a stranger to the issuer with this key, and carries what the two say.
pub(super) async fn lead(
    standing: &Standing,
    issuer: &[u8],
    stream: &mut (impl AsyncRead + AsyncWrite + Send + Unpin),
) -> GateError {
    let Ok(_place) = standing.doors().try_acquire() else {
        return turn_away(stream, GateError::Busy).await;
    };
    let Some(way) = way_to(standing, issuer).await else {
        return turn_away(stream, GateError::NoIssuer).await;
    };
    tracing::info!("a stranger is led to an issuer");
    let carried = carry(stream, way).await;
    linger(stream).await;
    match carried {
        Ok(()) => GateError::Led,
        Err(error) => error,
    }
}

/// A stream to this node, if it is an issuer in reach.
async fn way_to(standing: &Standing, issuer: &[u8]) -> Option<Stream> {
    let issuer = peer_of(issuer.try_into().ok()?)?;
    let member = standing.member(&issuer)?;
    if !member.rights.allows(&Right::Issue) {
        return None;
    }
    let mut ways = standing.ways()?;
    let way = timeout(WAY_WITHIN, ways.open_stream(issuer, DOOR)).await.ok()?;
    way.inspect_err(|error| tracing::debug!(%issuer, %error, "a stranger cannot be led to it"))
        .ok()
}

async fn carry(
    stream: &mut (impl AsyncRead + AsyncWrite + Send + Unpin),
    way: Stream,
) -> Result<(), GateError> {
    WELCOME.write(stream, &Reply::Through).await?;
    flush(stream).await?;
    let (says, mut hears) = split(stream);
    let (answers, mut asks) = split(way.compat());
    let (mut says, mut answers) = (says.take(MOST_SAID), answers.take(MOST_TOLD));
    let there = async {
        let said = copy(&mut says, &mut asks).await;
        let _ = asks.shutdown().await;
        said
    };
    let back = async {
        let told = copy(&mut answers, &mut hears).await;
        let _ = hears.shutdown().await;
        told
    };
    // The issuer has the last word.
    let mut back = std::pin::pin!(back);
    let ended = tokio::select! {
        told = &mut back => told,
        said = there => match said {
            Ok(_) => back.await,
            Err(error) => Err(error),
        },
    };
    ended.map(drop).map_err(broken)
}

/// This many at once, and this many of them over one member: no member keeps the strangers of all others out.
struct Places {
    all: Arc<Semaphore>,
    of: HashMap<PeerId, Arc<Semaphore>>,
    of_one: usize,
}

impl Places {
    fn new(all: usize, of_one: usize) -> Self {
        Self {
            all: Arc::new(Semaphore::new(all)),
            of: HashMap::new(),
            of_one,
        }
    }

    /// A place for a stranger that comes over this member, if one is free; it is free again when both halves are dropped.
    fn take(&mut self, by: PeerId) -> Option<[OwnedSemaphorePermit; 2]> {
        let of_one = self.of_one;
        // A node that leads nobody now needs no entry.
        self.of.retain(|_, places| places.available_permits() < of_one);
        let of_this = self.of.entry(by);
        let of_this = of_this.or_insert_with(|| Arc::new(Semaphore::new(of_one)));
        let of_this = of_this.clone().try_acquire_owned().ok()?;
        Some([self.all.clone().try_acquire_owned().ok()?, of_this])
    }
}

/// Hears strangers that members lead here.
pub(crate) async fn answer_door(mesh: Weak<Inner>, mut led: IncomingStreams) {
    let mut to_hear = Places::new(MOST_HEARD, MOST_HEARD_BY_ONE);
    let mut to_turn_away = Places::new(MOST_TURNED_AWAY, MOST_TURNED_AWAY_BY_ONE);
    while let Some((by, stream)) = led.next().await {
        let Some(inner) = mesh.upgrade() else { return };
        let standing = inner.standing.clone();
        if standing.member(&by).is_none() {
            continue;
        }
        let (places, patience) = match to_hear.take(by) {
            Some(places) => (places, Some(PATIENCE)),
            None => match to_turn_away.take(by) {
                Some(places) => (places, None),
                None => continue,
            },
        };
        tokio::spawn(async move {
            let _places = places;
            let heard = hear(&standing, stream, patience.is_some());
            let heard = timeout(patience.unwrap_or(WAY_WITHIN), heard).await;
            match heard.unwrap_or(Err(GateError::Slow)) {
                Ok(peer) => tracing::info!(%peer, %by, "a node was let in over a member"),
                Err(error) => {
                    standing.turned(&error);
                    tracing::info!(%by, %error, "who was led here by a member was not let in");
                }
            }
        });
    }
}

/// Goes through the gate's exchange with a node that comes this way, or tells it that there is no place now. Members have no business
/// here.
async fn hear(
    standing: &Standing,
    stream: impl futures::AsyncRead + futures::AsyncWrite + Send + Unpin + 'static,
    has_place: bool,
) -> Result<PeerId, GateError> {
    let (peer, stream) = noise(standing)?
        .upgrade_inbound(stream, "")
        .await
        .map_err(broken)?;
    let key = key_of(&peer).ok_or_else(|| GateError::Broken("the peer's key is no Ed25519 key".into()))?;
    let mut stream = stream.compat();
    let hello: Hello = HELLO.read(&mut stream).await?;
    if !has_place {
        return Err(turn_away(&mut stream, GateError::Busy).await);
    }
    let hello = match hello.credential {
        Credential::Invited => judge(standing, &mut stream).await?,
        _ => return Err(turn_away(&mut stream, GateError::NotAdmitted).await),
    };
    if !matches!(hello.credential, Credential::Invitation(_)) {
        return Err(turn_away(&mut stream, GateError::NotAdmitted).await);
    }
    answer(standing, &key, None, hello, &mut stream, &at_once).await?;
    // Closing at once would take along what the other side has not read yet.
    let _ = stream.shutdown().await;
    let _ = timeout(LEAVE, stream.read(&mut [0])).await;
    Ok(peer)
}

fn noise(standing: &Standing) -> Result<noise::Config, GateError> {
    let keypair = Keypair::ed25519_from_bytes(*standing.seed()).map_err(broken)?;
    noise::Config::new(&keypair).map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> GateError {
    GateError::Broken(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Issuer, RootKey};
    use crate::support::invite;
    use karman_store::Store;
    use karman_types::Tier;
    use tokio::io::duplex;

    #[tokio::test]
    async fn who_finds_no_place_at_an_issuer_hears_so_and_may_come_again() {
        let root = RootKey::generate().unwrap();
        let folders = [(), ()].map(|()| tempfile::tempdir().unwrap());
        let [first, second] = folders
            .each_ref()
            .map(|folder| Store::open(folder.path()).unwrap());
        let issuer = Standing::open(first, Tier::Cloud, None, Some(Issuer::root(&root))).unwrap();
        let at: [Multiaddr; 1] = ["/dns/issuer.example/tcp/7117".parse().unwrap()];
        let stranger = Standing::open(second, Tier::Edge, Some(invite(&root, &at)), None).unwrap();
        let peer = peer_of(&issuer.public_key()).unwrap();
        for has_place in [false, true] {
            let (newcomer, mut member) = duplex(1 << 20);
            let hears = async {
                let _: Hello = HELLO.read(&mut member).await.unwrap();
                WELCOME.write(&mut member, &Reply::Through).await.unwrap();
                hear(&issuer, member.compat(), has_place).await
            };
            let (went, heard) = tokio::join!(went_through(&stranger, peer, newcomer), hears);
            match has_place {
                true => assert!(went.is_ok() && heard.is_ok(), "{went:?} {heard:?}"),
                false => assert!(
                    matches!((&went, &heard), (Err(GateError::Busy), Err(GateError::Busy))),
                    "{went:?} {heard:?}"
                ),
            }
        }
    }

    #[test]
    fn one_member_leaves_places_to_the_strangers_of_others() {
        let [greedy, other] = [(), ()].map(|()| PeerId::random());
        let mut places = Places::new(5, 4);
        let mut taken: Vec<_> = (0..4).map(|_| places.take(greedy).unwrap()).collect();
        assert!(places.take(greedy).is_none());
        // One is left, for anybody else.
        let of_other = places.take(other).unwrap();
        assert!(places.take(PeerId::random()).is_none());
        taken.pop();
        assert!(places.take(greedy).is_some());
        drop((taken, of_other));
        let all: Vec<_> = (0..5).filter_map(|_| places.take(PeerId::random())).collect();
        assert_eq!(all.len(), 5);
        drop(all);
        // Whose strangers are gone is forgotten.
        let _last = places.take(other).unwrap();
        assert_eq!(places.of.len(), 1);
    }

    #[test]
    fn an_issuer_stands_behind_the_member_that_the_address_names() {
        let [member, issuer, other] = [0, 1, 2].map(|_| PeerId::random());
        let circuit = format!("/ip4/192.0.2.7/udp/7117/quic-v1/p2p/{member}/p2p-circuit/p2p/{issuer}");
        assert_eq!(issuer_behind(&circuit, &member), Some(issuer));
        for address in [
            format!("/ip4/192.0.2.7/udp/7117/quic-v1/p2p/{member}"),
            format!("{circuit}/p2p-circuit/p2p/{other}"),
            format!("/ip4/192.0.2.7/tcp/1/p2p/{other}/p2p-circuit/p2p/{member}"),
            "nonsense".to_owned(),
        ] {
            assert_eq!(issuer_behind(&address, &member), None, "{address}");
        }
    }
}
