//! The side of the exchange that is knocked at: it hears who is there, and lets it in or says why not.

use super::invited::judge;
use super::way::{OnItsWay, arrive};
use super::{
    Credential, GateError, HELLO, Hello, Knew, LEAVE, Met, PROTOCOL, Reply, Thanks, WELCOME, Welcome, door,
    flush, had,
};
use crate::membership::{Invitation, Member, Membership};
use crate::standing::Standing;
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Hears who is there, and lets it in or not.
pub(super) async fn open(
    standing: &Standing,
    key: &[u8; 32],
    knew: Option<Knew>,
    stream: &mut (impl AsyncRead + AsyncWrite + Send + Unpin),
    way: OnItsWay<'_>,
) -> Result<Met, GateError> {
    let hello: Hello = HELLO.read(stream).await?;
    let hello = match &hello.credential {
        Credential::Through(issuer) => return Err(door::lead(standing, issuer, stream).await),
        Credential::Invited if hello.version == PROTOCOL => judge(standing, stream).await?,
        _ => hello,
    };
    answer(standing, key, knew, hello, stream, way).await
}

/// Answers who has said who it is.
pub(super) async fn answer(
    standing: &Standing,
    key: &[u8; 32],
    knew: Option<Knew>,
    hello: Hello,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    way: OnItsWay<'_>,
) -> Result<Met, GateError> {
    let followed = standing.follow(hello.lineage.as_deref().map(|bytes| &bytes[..]));
    let mesh = standing.mesh();
    // With our answer it knows of all that we do.
    let mut revocations = had(mesh, knew, hello.about).max(standing.revocations_number());
    let (member, welcome) = match followed.and_then(|()| welcome(standing, key, &hello)) {
        Ok(answer) => answer,
        Err(error) => return Err(turn_away(stream, error).await),
    };
    arrive(way(&member)).await;
    WELCOME.write(stream, &Reply::Welcome(Box::new(welcome))).await?;
    flush(stream).await?;
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

/// What somebody is let in with, if it may come in.
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
            let invitation: Invitation = word.parse().map_err(GateError::Invitation)?;
            let membership = standing.redeem(&invitation, key)?;
            (standing.verify(&membership, key)?, Some(membership))
        }
        // Both were answered before.
        Credential::Invited | Credential::Through(_) => return Err(GateError::NotAdmitted),
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

/// Tells the other side why it is not let in.
pub(super) async fn turn_away(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    error: GateError,
) -> GateError {
    let reply = match error {
        GateError::NoIssuer => Reply::NoIssuer,
        GateError::Busy => Reply::Busy,
        _ => Reply::Refused(error.told()),
    };
    if WELCOME.write(stream, &reply).await.is_ok() && flush(stream).await.is_ok() {
        linger(stream).await;
    }
    error
}

/// Leaves who was refused the time to read why: closing at once would take the reason along.
pub(super) async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) {
    let _ = stream.shutdown().await;
    let _ = tokio::time::timeout(LEAVE, stream.read(&mut [0])).await;
}
