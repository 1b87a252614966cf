//! Who may have signed a statement: the root key, or an issuer that shows the token which the root key signed for it.

use super::token::Token;
use super::{MembershipError, MeshKey, Revocations, Right, Terms, UnixTime};
use karman_types::NodeId;

#[derive(Debug)]
pub(super) enum Signer {
    Root(MeshKey),
    Issuer(Box<Token>),
}

impl Signer {
    /// The root key of this mesh, or the issuer whose token this is.
    pub(super) fn read(mesh: &MeshKey, issuer: Option<&[u8]>) -> Result<Self, MembershipError> {
        let Some(token) = issuer else {
            return Ok(Self::Root(*mesh));
        };
        let foreign = || MembershipError::Foreign { mesh: mesh.short() };
        let token = Token::read(token, mesh.as_bytes(), foreign())?;
        if token.claims.mesh != *mesh {
            return Err(foreign());
        }
        Ok(Self::Issuer(Box::new(token)))
    }

    pub(super) fn mesh(&self) -> MeshKey {
        match self {
            Self::Root(mesh) => *mesh,
            Self::Issuer(token) => token.claims.mesh,
        }
    }

    pub(super) fn key(&self) -> &[u8; 32] {
        match self {
            Self::Root(mesh) => mesh.as_bytes(),
            Self::Issuer(token) => &token.claims.key,
        }
    }

    /// Since when it may sign: what says that it was signed before counts from then, or its life would look longer than its issuer's.
    pub(super) fn since(&self) -> UnixTime {
        match self {
            Self::Root(_) => UnixTime::from_seconds(0),
            Self::Issuer(token) => token.claims.issued,
        }
    }

    /// Whether its own membership still holds.
    pub(super) fn stands(&self, now: UnixTime, revoked: &Revocations) -> Result<(), MembershipError> {
        let Self::Issuer(token) = self else {
            return Ok(());
        };
        revoked.check(&token.claims.key)?;
        check_time(token.claims.terms.not_after, now)?;
        token.authorize(&token.claims.key, now)
    }

    /// Whether it may give these terms.
    pub(super) fn may_issue(&self, terms: &Terms) -> Result<(), MembershipError> {
        terms.check()?;
        let Self::Issuer(token) = self else {
            return Ok(());
        };
        let own = &token.claims.terms;
        self.needs(Right::Issue)?;
        for right in terms.rights.iter() {
            let why = match right {
                Right::Issue | Right::Revoke => "only the root key gives it",
                _ if !own.rights.allows(right) => "it does not hold it itself",
                _ => continue,
            };
            return Err(MembershipError::BeyondIssuer {
                asked: right.to_string(),
                why,
            });
        }
        if terms.not_after > own.not_after {
            return Err(MembershipError::BeyondIssuer {
                asked: terms.not_after.to_string(),
                why: "its own membership ends before",
            });
        }
        Ok(())
    }

    /// Whether it could revoke at this time. Depends on nothing else, so that every node decides alike.
    pub(super) fn may_revoke(&self, at: UnixTime) -> Result<(), MembershipError> {
        let Self::Issuer(token) = self else {
            return Ok(());
        };
        self.needs(Right::Revoke)?;
        if at < token.claims.issued {
            return Err(MembershipError::malformed(
                "revocation",
                "was signed before its issuer was a member; set the issuer's clock",
            ));
        }
        check_time(token.claims.terms.not_after, at)
    }

    /// Whether it could name keepers at this time. Depends on nothing else, so that every node decides alike.
    pub(super) fn may_charter(&self, at: UnixTime) -> Result<(), MembershipError> {
        let Self::Issuer(token) = self else {
            return Ok(());
        };
        self.needs(Right::Issue)?;
        check_time(token.claims.terms.not_after, at)
    }

    pub(super) fn needs(&self, right: Right) -> Result<(), MembershipError> {
        match self {
            Self::Issuer(token) if !token.claims.terms.rights.allows(&right) => {
                Err(MembershipError::NotAnIssuer {
                    node: NodeId::of_key(&token.claims.key),
                    right,
                })
            }
            _ => Ok(()),
        }
    }
}

pub(super) fn check_time(not_after: UnixTime, now: UnixTime) -> Result<(), MembershipError> {
    if now > not_after {
        return Err(MembershipError::Expired { not_after, now });
    }
    Ok(())
}

pub(super) fn check_key(member: &[u8; 32], presenter: &[u8; 32]) -> Result<(), MembershipError> {
    if member != presenter {
        return Err(MembershipError::WrongKey {
            member: NodeId::of_key(member),
            presenter: NodeId::of_key(presenter),
        });
    }
    Ok(())
}
