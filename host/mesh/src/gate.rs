//! The first exchange on every connection: who are you in this mesh. Nothing else answers before it.
//!
//! The transport has authenticated the other side's key; here it shows the membership bound to that key, or an invitation
//! that it redeems for one. Each side tells the digest of its revocations, and the side that knows more tells the rest.
//! The gate sits between transport and swarm, so that neither the DHT nor any other protocol sees a stranger.

use crate::membership::{Invitation, Member, Membership, MembershipError, MeshKey};
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
pub(crate) const WELCOME: Frame = Frame::new("welcome", 8 << 20);

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
    /// This node's own address is taken, or none of this machine's.
    #[error(
        "this node cannot listen on {address}: {why}; `mesh.listen` of node.toml or `--mesh-listen` says where else"
    )]
    Listen {
        /// Where.
        address: String,
        /// What the system says.
        why: String,
    },
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
    /// The next root key has to lie ready, with its backup made, before it takes the place of the present one.
    #[error("no root key lies ready to take the place of the present one: `karman mesh rotate` makes it")]
    NoNextRoot,
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
    /// The root keys that the mesh had, where there were others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<ByteBuf>,
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
pub(crate) enum Reply {
    Welcome(Box<Welcome>),
    Refused(String),
    /// An invitation was shown to a node that cannot redeem it. Another one can.
    NoIssuer,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Welcome {
    pub(crate) version: u16,
    pub(crate) membership: ByteBuf,
    pub(crate) about: About,
    /// A membership for the caller: its first, or its next.
    pub(crate) granted: Option<ByteBuf>,
    pub(crate) revocations: [u8; 32],
    /// What we know, where the caller's digest was another.
    pub(crate) revoked: Option<ByteBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lineage: Option<ByteBuf>,
}

#[derive(Deserialize, Serialize)]
pub(crate) struct Thanks {
    pub(crate) revoked: Option<ByteBuf>,
}

/// What the other side has shown in an exchange.
pub(crate) struct Shown {
    pub(crate) member: Member,
    pub(crate) about: About,
    pub(crate) knew: Knew,
}

/// What the other side knows after an exchange, at least.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knew {
    /// Whose revocations.
    pub(crate) mesh: MeshKey,
    /// How many of them, in this run of it.
    pub(crate) revocations: usize,
    pub(crate) run: u64,
    /// What this node had to tell before the exchange.
    pub(crate) news: u64,
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
    let shown = exchanged.await.map_err(|_| GateError::Slow).and_then(|done| done);
    match shown {
        Ok(shown) => {
            standing.admitted(peer, shown, host_of(&endpoint));
            Ok((peer, muxer))
        }
        Err(error) => {
            standing.turned(&error);
            tracing::info!(%peer, %error, "a connection was not let in");
            Err(error)
        }
    }
}

pub(crate) async fn exchange(
    standing: &Standing,
    peer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    speaks_first: bool,
) -> Result<Shown, GateError> {
    // As it is now: whatever the other side says next, it says after it knew this, and what comes up here meanwhile it may not hear.
    let (knew, news) = (standing.knew(&peer), *standing.news().borrow());
    let key = key_of(&peer).ok_or_else(|| GateError::Broken("the peer's key is no Ed25519 key".into()))?;
    let done = match speaks_first {
        true => knock(standing, &key, knew, &mut stream).await,
        false => open(standing, &key, knew, &mut stream).await,
    };
    let _ = stream.shutdown().await;
    let Met {
        member,
        about,
        mesh,
        revocations,
    } = done?;
    let knew = Knew {
        mesh,
        revocations,
        run: about.run,
        news,
    };
    Ok(Shown { member, about, knew })
}

/// Shows and asks anew on a connection that stands: one of the two knows something new.
pub(crate) async fn again(
    standing: &Standing,
    peer: PeerId,
    stream: impl AsyncRead + AsyncWrite + Unpin,
    speaks_first: bool,
) -> Result<(), GateError> {
    let exchanged = tokio::time::timeout(PATIENCE, exchange(standing, peer, stream, speaks_first));
    let shown = exchanged.await.map_err(|_| GateError::Slow).and_then(|done| done);
    let shown = shown.inspect_err(|error| standing.turned(error))?;
    standing.admitted(peer, shown, None);
    Ok(())
}

/// How many revocations a node knew of in this run of it: what it shows now cannot be fewer.
fn had(mesh: MeshKey, knew: Option<Knew>, about: About) -> usize {
    knew.filter(|knew| knew.run == about.run && knew.mesh == mesh)
        .map_or(0, |knew| knew.revocations)
}

/// Who the other side is and what it tells of itself; how many revocations it knows of, under which root key.
struct Met {
    member: Member,
    about: About,
    mesh: MeshKey,
    revocations: usize,
}

async fn knock(
    standing: &Standing,
    key: &[u8; 32],
    knew: Option<Knew>,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<Met, GateError> {
    let hello = Hello {
        version: PROTOCOL,
        credential: standing.credential().ok_or(GateError::Stranger)?,
        revocations: standing.revocations_digest(),
        about: standing.about(),
        lineage: standing.lineage(),
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
    standing.follow(welcome.lineage.as_deref().map(|bytes| &bytes[..]))?;
    let mesh = standing.mesh();
    let mut revocations = had(mesh, knew, welcome.about);
    if let Some(revoked) = &welcome.revoked {
        revocations = standing.learn(mesh, revoked, revocations)?;
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
    Ok(Met {
        member,
        about: welcome.about,
        mesh,
        revocations,
    })
}

async fn open(
    standing: &Standing,
    key: &[u8; 32],
    knew: Option<Knew>,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<Met, GateError> {
    let hello: Hello = HELLO.read(stream).await?;
    let followed = standing.follow(hello.lineage.as_deref().map(|bytes| &bytes[..]));
    let mesh = standing.mesh();
    // With our answer it knows of all that we do.
    let mut revocations = had(mesh, knew, hello.about).max(standing.revocations_number());
    let answer = followed.and_then(|()| welcome(standing, key, &hello));
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
        revocations = standing.learn(mesh, revoked, revocations)?;
    }
    Ok(Met {
        member,
        about: hello.about,
        mesh,
        revocations,
    })
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
            let next = standing.renew(&membership, key)?;
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
        lineage: standing.lineage(),
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
