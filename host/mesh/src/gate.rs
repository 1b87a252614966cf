//! The first exchange on every connection: who are you in this mesh. Nothing else answers before it.
//!
//! The transport has authenticated the other side's key; here it shows the membership bound to that key, or an invitation
//! that it redeems for one. Each side tells the digest of its revocations, and the side that knows more tells the rest.
//! An invited node shows its invitation only to a node that has proved to be an issuer of the mesh; where no issuer can be
//! reached but over a member, that one leads it there ([`door`]) and carries what it cannot read.
//! The gate sits between transport and swarm, so that neither the DHT nor any other protocol sees a stranger.

pub(crate) mod door;
mod error;
mod invited;
mod keys;
mod opening;
mod says;
mod way;

pub use error::GateError;
pub(crate) use keys::key_of;
pub use keys::peer_of;
#[cfg(test)]
pub(crate) use says::Judge;
pub use says::read_greeting;
pub(crate) use says::{About, Credential, HELLO, Hello, Reply, Thanks, WELCOME, Welcome};
pub(crate) use way::OnItsWay;

use self::invited::find_judge;
use self::keys::host_of;
use self::opening::open;
use self::way::{arrive, at_once};
use crate::membership::{Member, Membership, MeshKey};
use crate::standing::Standing;
use libp2p::PeerId;
use libp2p::core::muxing::{StreamMuxerBox, StreamMuxerExt};
use libp2p::core::{ConnectedPoint, Endpoint};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_util::compat::FuturesAsyncReadCompatExt;

/// Nodes that speak another version than this do not understand each other.
pub const PROTOCOL: u16 = 1;
/// How long the exchange may take on a slow link.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long one that was refused may take to read why and to leave.
const LEAVE: Duration = Duration::from_secs(2);

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
    way: OnItsWay<'_>,
) -> Result<(PeerId, StreamMuxerBox), GateError> {
    // Who dials speaks first, except for the side of a hole punch that plays the listener.
    let speaks_first = matches!(
        endpoint,
        ConnectedPoint::Dialer {
            role_override: Endpoint::Dialer,
            ..
        }
    );
    let introduced = introduce(&standing, peer, &mut muxer, speaks_first, way);
    let exchanged = tokio::time::timeout(PATIENCE, introduced);
    let shown = exchanged.await.map_err(|_| GateError::Slow).and_then(|done| done);
    match shown {
        Ok(shown) => {
            standing.admitted(peer, shown, host_of(&endpoint));
            Ok((peer, muxer))
        }
        Err(error) => {
            standing.turned(&error);
            if speaks_first {
                standing.knocked_in_vain(&peer, &error);
            }
            match error {
                GateError::LetInThere | GateError::Led => tracing::info!(%peer, "{error}"),
                _ => tracing::info!(%peer, %error, "a connection was not let in"),
            }
            Err(error)
        }
    }
}

/// Opens a stream of its own on the connection and goes through the exchange there, while the connection is driven.
async fn introduce(
    standing: &Standing,
    peer: PeerId,
    muxer: &mut StreamMuxerBox,
    speaks_first: bool,
    way: OnItsWay<'_>,
) -> Result<Shown, GateError> {
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
    let exchange = exchange_over(standing, peer, stream.compat(), speaks_first, way);
    let mut exchange = Box::pin(exchange);
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
}

pub(crate) async fn exchange(
    standing: &Standing,
    peer: PeerId,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    speaks_first: bool,
) -> Result<Shown, GateError> {
    exchange_over(standing, peer, stream, speaks_first, &at_once).await
}

async fn exchange_over(
    standing: &Standing,
    peer: PeerId,
    mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    speaks_first: bool,
    way: OnItsWay<'_>,
) -> Result<Shown, GateError> {
    // As it is now: whatever the other side says next, it says after it knew this, and what comes up here meanwhile it may not hear.
    let (knew, news) = (standing.knew(&peer), *standing.news().borrow());
    let key = key_of(&peer).ok_or_else(|| GateError::Broken("the peer's key is no Ed25519 key".into()))?;
    if speaks_first && let Some(issuer) = standing.led_to(&peer) {
        return Err(door::go_through(standing, issuer, stream).await);
    }
    let done = match speaks_first {
        true => knock(standing, &key, knew, &mut stream, way).await,
        false => open(standing, &key, knew, &mut stream, way).await,
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
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    speaks_first: bool,
) -> Result<(), GateError> {
    let exchanged = tokio::time::timeout(PATIENCE, exchange(standing, peer, stream, speaks_first));
    let shown = exchanged.await.map_err(|_| GateError::Slow).and_then(|done| done);
    let shown = shown.inspect_err(|error| {
        standing.turned(error);
        if speaks_first {
            standing.knocked_in_vain(&peer, error);
        }
    })?;
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
    way: OnItsWay<'_>,
) -> Result<Met, GateError> {
    let credential = standing.credential().ok_or(GateError::Stranger)?;
    if matches!(credential, Credential::Invitation(_)) {
        find_judge(standing, key, stream).await?;
    }
    say(standing, credential, stream).await?;
    let welcome = match WELCOME.read(stream).await? {
        Reply::Welcome(welcome) => welcome,
        other => return Err(not_let_in(other)),
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
    arrive(way(&member)).await;
    WELCOME.write(stream, &thanks).await?;
    flush(stream).await?;
    Ok(Met {
        member,
        about: welcome.about,
        mesh,
        revocations,
    })
}

/// Says who this node is, or asks.
async fn say(
    standing: &Standing,
    credential: Credential,
    stream: &mut (impl AsyncWrite + Unpin),
) -> Result<(), GateError> {
    let hello = Hello {
        version: PROTOCOL,
        credential,
        revocations: standing.revocations_digest(),
        about: standing.about(),
        lineage: standing.lineage(),
    };
    HELLO.write(stream, &hello).await?;
    flush(stream).await
}

/// Why an answer lets nobody in.
fn not_let_in(reply: Reply) -> GateError {
    match reply {
        Reply::Refused(why) => GateError::Refused(why),
        Reply::NoIssuer => GateError::NoJudge,
        Reply::Busy => GateError::Busy,
        Reply::Welcome(_) | Reply::Judge(_) | Reply::Through => {
            WELCOME.malformed("it answers something else").into()
        }
    }
}

async fn flush(stream: &mut (impl AsyncWrite + Unpin)) -> Result<(), GateError> {
    stream
        .flush()
        .await
        .map_err(|error| GateError::Broken(error.to_string()))
}
