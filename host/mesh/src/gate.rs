//! The first exchange on every connection: who are you in this mesh. Nothing else answers before it.
//!
//! The transport has authenticated the other side's key; here it shows the membership bound to that key, or an invitation
//! that it redeems for one. Each side tells the digest of its revocations, and the side that knows more tells the rest.
//! The gate sits between transport and swarm, so that neither the DHT nor any other protocol sees a stranger.

use crate::membership::{Invitation, Member, Membership, MembershipError};
use crate::peers::Path;
use crate::standing::Standing;
use crate::wire::{Frame, WireError};
use libp2p::PeerId;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt};
use libp2p::core::{ConnectedPoint, Endpoint};
use libp2p::multiaddr::Protocol;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Nodes that speak another version than this do not understand each other.
pub const PROTOCOL: u16 = 1;
/// How long the exchange may take on a slow link.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one that was refused may take to read why and to leave.
const LEAVE: Duration = Duration::from_secs(2);
/// Memberships are a few hundred bytes; revocations 10,000 entries at most.
pub(crate) const HELLO: Frame = Frame::new("hello", 16 << 10);
const WELCOME: Frame = Frame::new("welcome", 8 << 20);

/// Why a connection was not let in.
#[derive(Debug, thiserror::Error)]
pub enum GateError {
    /// The other side is no member of this mesh, or not any more.
    #[error("the other side's membership: {0}")]
    NotAMember(#[from] MembershipError),
    /// The other side did not let us in.
    #[error("the other side refused us: {0}")]
    Refused(String),
    /// The other side is no issuer: it can neither admit this node nor judge its invitation.
    #[error("the other side admits nobody: it is no issuer")]
    NoJudge,
    /// The other side speaks another version of the protocol.
    #[error(
        "the other side speaks version {theirs} of the protocol, this node {PROTOCOL}: update the older of the two"
    )]
    Version {
        /// Their version.
        theirs: u16,
    },
    /// What came was no such message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// The connection broke.
    #[error("the connection broke during the first exchange: {0}")]
    Broken(String),
    /// It took too long.
    #[error("the first exchange took longer than {} s", PATIENCE.as_secs())]
    Slow,
    /// This node has neither membership nor invitation.
    #[error("this node belongs to no mesh: `karman node up --join INVITATION`")]
    Stranger,
    /// It asks for calls, which only members may.
    #[error("the other side asks for calls without having been let in")]
    NotAdmitted,
    /// Only issuers admit and revoke.
    #[error("this node is no issuer: do it where the mesh was made, or at a node with the right `issue`")]
    NoIssuer,
    /// What must be remembered could not be.
    #[error("{0}")]
    Store(String),
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Hello {
    pub(crate) version: u16,
    pub(crate) credential: Credential,
    pub(crate) revocations: [u8; 32],
    pub(crate) about: About,
}

/// What a node tells of itself besides who it is.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct About {
    /// The port where it takes calls directly.
    pub(crate) calls: Option<u16>,
    /// Drawn when it was started: another one tells that all connections before are dead.
    pub(crate) run: u64,
}

/// What a node shows at the gate.
#[derive(Clone, Deserialize, Serialize)]
pub(crate) enum Credential {
    Membership(ByteBuf),
    Invitation(String),
}

#[derive(Deserialize, Serialize)]
enum Reply {
    Welcome(Box<Welcome>),
    Refused(String),
    /// An invitation was shown to a node that cannot redeem it. Another one can.
    NoIssuer,
}

#[derive(Deserialize, Serialize)]
struct Welcome {
    version: u16,
    membership: ByteBuf,
    about: About,
    /// A membership for the caller: its first, or its next.
    granted: Option<ByteBuf>,
    revocations: [u8; 32],
    /// What we know, where the caller's digest was another.
    revoked: Option<ByteBuf>,
}

#[derive(Deserialize, Serialize)]
struct Thanks {
    revoked: Option<ByteBuf>,
}

/// Lets a connection in, or not.
pub(crate) async fn admit(
    standing: Arc<Standing>,
    peer: PeerId,
    mut muxer: StreamMuxerBox,
    endpoint: ConnectedPoint,
) -> Result<(PeerId, StreamMuxerBox), GateError> {
    // Who dials speaks first, except for the side of a hole punch that plays the listener.
    let speaks_first = matches!(
        endpoint,
        ConnectedPoint::Dialer {
            role_override: Endpoint::Dialer,
            ..
        }
    );
    let exchanged = tokio::time::timeout(PATIENCE, async {
        let stream = poll_fn(|context| {
            // Whatever it tells of address changes, the swarm asks again.
            while let Poll::Ready(event) = muxer.poll_unpin(context) {
                if let Err(error) = event {
                    return Poll::Ready(Err(error));
                }
            }
            match speaks_first {
                true => muxer.poll_outbound_unpin(context),
                false => muxer.poll_inbound_unpin(context),
            }
        });
        let stream = stream
            .await
            .map_err(|error: std::io::Error| GateError::Broken(error.to_string()))?;
        let mut exchange = Box::pin(exchange(&standing, peer, stream.compat(), speaks_first));
        poll_fn(|context| {
            if let Poll::Ready(done) = exchange.as_mut().poll(context) {
                return Poll::Ready(done);
            }
            while let Poll::Ready(event) = muxer.poll_unpin(context) {
                if let Err(error) = event {
                    // Who was refused may leave at once: why it was, the exchange knows.
                    let broken = GateError::Broken(error.to_string());
                    return match exchange.as_mut().poll(context) {
                        Poll::Ready(done) => Poll::Ready(done),
                        Poll::Pending => Poll::Ready(Err(broken)),
                    };
                }
            }
            Poll::Pending
        })
        .await
    });
    let member = exchanged.await.map_err(|_| GateError::Slow).and_then(|done| done);
    match member {
        Ok((member, about)) => {
            standing.admitted(peer, member, about, host_of(&endpoint));
            Ok((peer, muxer))
        }
        Err(error) => {
            standing.turned(&error);
            tracing::info!(%peer, %error, "a connection was not let in");
            Err(error)
        }
    }
}

async fn exchange(
    standing: &Standing,
    peer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    speaks_first: bool,
) -> Result<(Member, About), GateError> {
    let key = key_of(&peer).ok_or_else(|| GateError::Broken("the peer's key is no Ed25519 key".into()))?;
    let done = match speaks_first {
        true => knock(standing, &key, &mut stream).await,
        false => open(standing, &key, &mut stream).await,
    };
    let _ = stream.shutdown().await;
    done
}

async fn knock(
    standing: &Standing,
    key: &[u8; 32],
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(Member, About), GateError> {
    let hello = Hello {
        version: PROTOCOL,
        credential: standing.credential().ok_or(GateError::Stranger)?,
        revocations: standing.revocations_digest(),
        about: standing.about(),
    };
    HELLO.write(stream, &hello).await?;
    flush(stream).await?;
    let welcome = match WELCOME.read(stream).await? {
        Reply::Welcome(welcome) => welcome,
        Reply::Refused(why) => return Err(GateError::Refused(why)),
        Reply::NoIssuer => return Err(GateError::NoJudge),
    };
    if welcome.version != PROTOCOL {
        return Err(GateError::Version {
            theirs: welcome.version,
        });
    }
    if let Some(revoked) = &welcome.revoked {
        standing.learn(revoked)?;
    }
    let member = standing.verify(&Membership::decode(&welcome.membership)?, key)?;
    if let Some(granted) = &welcome.granted {
        standing.granted(Membership::decode(granted)?)?;
    }
    let thanks = Thanks {
        revoked: (welcome.revocations != standing.revocations_digest()).then(|| standing.revocations()),
    };
    WELCOME.write(stream, &thanks).await?;
    flush(stream).await?;
    Ok((member, welcome.about))
}

async fn open(
    standing: &Standing,
    key: &[u8; 32],
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(Member, About), GateError> {
    let hello: Hello = HELLO.read(stream).await?;
    let answer = welcome(standing, key, &hello);
    let (member, reply) = match answer {
        Ok((member, welcome)) => (Ok(member), Reply::Welcome(Box::new(welcome))),
        Err(GateError::NoIssuer) => (Err(GateError::NoIssuer), Reply::NoIssuer),
        Err(error) => {
            let why = error.to_string();
            (Err(error), Reply::Refused(why))
        }
    };
    WELCOME.write(stream, &reply).await?;
    flush(stream).await?;
    let member = match member {
        Ok(member) => member,
        Err(error) => {
            linger(stream).await;
            return Err(error);
        }
    };
    let thanks: Thanks = WELCOME.read(stream).await?;
    if let Some(revoked) = &thanks.revoked {
        standing.learn(revoked)?;
    }
    Ok((member, hello.about))
}

/// Leaves who was refused the time to read why: closing at once would take the reason along.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let _ = stream.shutdown().await;
    let _ = tokio::time::timeout(LEAVE, stream.read(&mut [0])).await;
}

fn welcome(standing: &Standing, key: &[u8; 32], hello: &Hello) -> Result<(Member, Welcome), GateError> {
    if hello.version != PROTOCOL {
        return Err(GateError::Version {
            theirs: hello.version,
        });
    }
    let (member, granted) = match &hello.credential {
        Credential::Membership(bytes) => {
            let membership = Membership::decode(bytes)?;
            let member = standing.verify(&membership, key)?;
            let next = standing.renew(&membership, &member)?;
            (member, next)
        }
        Credential::Invitation(word) => {
            let membership = standing.redeem(&word.parse::<Invitation>()?, key)?;
            (standing.verify(&membership, key)?, Some(membership))
        }
    };
    let ours = standing.revocations_digest();
    let welcome = Welcome {
        version: PROTOCOL,
        membership: ByteBuf::from(standing.membership().ok_or(GateError::Stranger)?.encode()),
        about: standing.about(),
        granted: granted.map(|membership| ByteBuf::from(membership.encode())),
        revocations: ours,
        revoked: (hello.revocations != ours).then(|| standing.revocations()),
    };
    Ok((member, welcome))
}

async fn flush(stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), GateError> {
    stream
        .flush()
        .await
        .map_err(|error| GateError::Broken(error.to_string()))
}

/// The peer that holds this Ed25519 public key; nothing when it is no key.
pub fn peer_of(key: &[u8; 32]) -> Option<PeerId> {
    let key = libp2p::identity::ed25519::PublicKey::try_from_bytes(key).ok()?;
    Some(libp2p::identity::PublicKey::from(key).to_peer_id())
}

/// Where the other side is, if UDP passes between the two.
fn host_of(endpoint: &ConnectedPoint) -> Option<String> {
    let mut address = endpoint.get_remote_address().iter();
    let host = match address.next()? {
        Protocol::Ip4(ip) => ip.to_string(),
        Protocol::Ip6(ip) => ip.to_string(),
        Protocol::Dns(name) | Protocol::Dns4(name) | Protocol::Dns6(name) => name.into_owned(),
        _ => return None,
    };
    let direct = Path::of(endpoint) == Path::Direct;
    direct.then_some(host)
}

/// The Ed25519 public key that a peer id carries.
pub(crate) fn key_of(peer: &PeerId) -> Option<[u8; 32]> {
    let bytes = peer.as_ref().digest();
    let key = libp2p::identity::PublicKey::try_decode_protobuf(bytes).ok()?;
    Some(key.try_into_ed25519().ok()?.to_bytes())
}
