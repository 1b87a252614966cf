//! An invited node shows its invitation to an issuer only: any other member could use it for itself.

use super::opening::turn_away;
use super::says::Judge;
use super::{Credential, GateError, HELLO, Hello, Reply, WELCOME, flush, not_let_in, say};
use crate::membership::{Membership, Right};
use crate::standing::Standing;
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncWrite};

/// Makes sure that the other side is an issuer of the mesh that this node was invited to.
pub(super) async fn find_judge(
    standing: &Standing,
    key: &[u8; 32],
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<(), GateError> {
    say(standing, Credential::Invited, stream).await?;
    let judge = match WELCOME.read(stream).await? {
        Reply::Judge(judge) => judge,
        other => return Err(not_let_in(other)),
    };
    standing.follow(judge.lineage.as_deref().map(|bytes| &bytes[..]))?;
    let member = standing.verify(&Membership::decode(&judge.membership)?, key)?;
    match member.rights.allows(&Right::Issue) {
        true => Ok(()),
        false => Err(GateError::NoJudge),
    }
}

/// Proves to be an issuer, and hears what one says then who was invited.
pub(super) async fn judge(
    standing: &Standing,
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
) -> Result<Hello, GateError> {
    if !standing.is_issuer() {
        return Err(turn_away(stream, GateError::NoIssuer).await);
    }
    let membership = standing.membership().ok_or(GateError::Stranger)?;
    let judge = Judge {
        membership: ByteBuf::from(membership.encode()),
        lineage: standing.lineage(),
    };
    WELCOME.write(stream, &Reply::Judge(Box::new(judge))).await?;
    flush(stream).await?;
    Ok(HELLO.read(stream).await?)
}
