//! The Biscuit token of a membership: one block, sealed.
//!
//! ```text
//! mesh(hex:…); member(hex:…); tier("edge"); issued(2027-01-15T08:00:00Z); not_after(2027-02-15T08:00:00Z);
//! right("call:*"); …
//! check if member($key), connection_key($key);
//! check if not_after($end), time($now), $now <= $end;
//! ```
//!
//! Any Biscuit verifier that is given `connection_key` and `time` enforces the checks. We read no other block than this
//! one: Biscuit's limits do not bound the time that a single rule takes, so a token with rules or checks of others, even
//! one that only narrows, could hold up its verifier. (Biscuit specification, version 3.)

use super::{MembershipError, MeshKey, Rights, Terms, UnixTime};
use biscuit_auth::builder::{Fact, Predicate, Term};
use biscuit_auth::error::{Format, Token as BiscuitError};
use biscuit_auth::{
    Algorithm, AuthorizerBuilder, AuthorizerLimits, Biscuit, BiscuitBuilder, BlockBuilder, KeyPair,
    PrivateKey, PublicKey,
};
use bytes::Bytes;
use std::time::Duration;

const FIELD: &str = "membership";

const CHECKS: [&str; 2] = [
    "check if member($key), connection_key($key)",
    "check if not_after($end), time($now), $now <= $end",
];

/// The checks take microseconds; this only has to outlast a small board that is busy with something else.
const MAX_TIME: Duration = Duration::from_secs(5);

/// What a token says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Claims {
    pub(super) mesh: MeshKey,
    pub(super) key: [u8; 32],
    pub(super) terms: Terms,
    pub(super) issued: UnixTime,
}

/// A token whose signature fits and whose block is ours.
#[derive(Debug)]
pub(super) struct Token {
    pub(super) claims: Claims,
    biscuit: Biscuit,
}

impl Claims {
    /// The token, signed with this seed.
    pub(super) fn sign(&self, seed: &[u8; 32]) -> Result<Bytes, MembershipError> {
        let private = PrivateKey::from_bytes(seed, Algorithm::Ed25519).map_err(unread)?;
        let sealed = self
            .block()?
            .build(&KeyPair::from(&private))
            .and_then(|token| token.seal());
        Ok(sealed.and_then(|token| token.to_vec()).map_err(unread)?.into())
    }

    pub(super) fn block(&self) -> Result<BiscuitBuilder, MembershipError> {
        let mut block = BiscuitBuilder::new();
        for fact in self.facts() {
            block = block.fact(Fact::new(fact.name, fact.terms)).map_err(unread)?;
        }
        for check in CHECKS {
            block = block.check(check).map_err(unread)?;
        }
        Ok(block)
    }

    fn facts(&self) -> Vec<Predicate> {
        let fact = |name: &str, term| Predicate::new(name.into(), vec![term]);
        let mut facts = vec![
            fact("mesh", Term::Bytes(self.mesh.as_bytes().to_vec())),
            fact("member", Term::Bytes(self.key.to_vec())),
            fact("tier", Term::Str(self.terms.tier.to_string())),
            fact("issued", Term::Date(self.issued.seconds())),
            fact("not_after", Term::Date(self.terms.not_after.seconds())),
        ];
        let rights = self.terms.rights.iter();
        facts.extend(rights.map(|right| fact("right", Term::Str(right.to_string()))));
        facts
    }

    fn of_facts(facts: &[Fact]) -> Option<Self> {
        let terms: Option<Vec<_>> = facts.iter().map(|fact| fact.predicate.terms.first()).collect();
        let [
            Term::Bytes(mesh),
            Term::Bytes(key),
            Term::Str(tier),
            Term::Date(issued),
            Term::Date(not_after),
            rights @ ..,
        ] = &terms?[..]
        else {
            return None;
        };
        let right = |term: &&Term| match term {
            Term::Str(right) => right.parse().ok(),
            _ => None,
        };
        Some(Self {
            mesh: MeshKey::from_bytes(mesh[..].try_into().ok()?),
            key: key[..].try_into().ok()?,
            terms: Terms {
                tier: tier.parse().ok()?,
                rights: rights.iter().map(right).collect::<Option<Rights>>()?,
                not_after: UnixTime::from_seconds(*not_after),
            },
            issued: UnixTime::from_seconds(*issued),
        })
    }
}

impl Token {
    /// Reads what `signer` has signed; `foreign` is the error when it has not.
    pub(super) fn read(
        bytes: &[u8],
        signer: &[u8; 32],
        foreign: MembershipError,
    ) -> Result<Self, MembershipError> {
        let Ok(key) = PublicKey::from_bytes(signer, Algorithm::Ed25519) else {
            return Err(foreign);
        };
        let biscuit = Biscuit::from(bytes, key).map_err(|error| match error {
            BiscuitError::Format(Format::Signature(_) | Format::SealedSignature) => foreign,
            other => unread(other),
        })?;
        let claims = claims(&biscuit)
            .ok_or_else(|| MembershipError::malformed(FIELD, "its token says more or less than ours do"))?;
        Ok(Self { claims, biscuit })
    }

    /// Runs the checks.
    pub(super) fn authorize(&self, connection_key: &[u8; 32], now: UnixTime) -> Result<(), MembershipError> {
        let fact = |name: &str, term| Fact::new(name.into(), vec![term]);
        AuthorizerBuilder::new()
            .fact(fact("connection_key", Term::Bytes(connection_key.to_vec())))
            .and_then(|verifier| verifier.fact(fact("time", Term::Date(now.seconds()))))
            .and_then(|verifier| verifier.policy("allow if true"))
            .map(|verifier| {
                verifier.set_limits(AuthorizerLimits {
                    max_time: MAX_TIME,
                    ..AuthorizerLimits::default()
                })
            })
            .and_then(|verifier| verifier.build(&self.biscuit))
            .and_then(|mut verifier| verifier.authorize())
            .map_err(unread)?;
        Ok(())
    }
}

/// What the token says, if its block is the one that we would write to say it.
fn claims(biscuit: &Biscuit) -> Option<Claims> {
    if biscuit.block_count() != 1 {
        return None;
    }
    let source = biscuit.print_block_source(0).ok()?;
    let block = BlockBuilder::new().code(source).ok()?;
    let claims = Claims::of_facts(&block.facts)?;
    let facts = block.facts.into_iter().map(|fact| fact.predicate);
    let checks = block.checks.iter().map(ToString::to_string);
    let ours = facts.eq(claims.facts()) && checks.eq(CHECKS.map(String::from)) && block.rules.is_empty();
    ours.then_some(claims)
}

fn unread(error: impl Into<BiscuitError>) -> MembershipError {
    MembershipError::malformed(
        FIELD,
        format!("its token does not hold ({}); ask for a new one", error.into()),
    )
}
