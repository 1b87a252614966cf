//! The Biscuit token of a caller: one block, sealed.
//!
//! ```text
//! access("sensor-7"); issued(2027-01-15T08:00:00Z); not_after(2027-02-15T08:00:00Z);
//! rate(50); body(8388608); at_once(4);
//! right("infer:digits-*"); right("call:*"); …
//! check if not_after($end), time($now), $now <= $end;
//! ```
//!
//! Any Biscuit verifier that is given `time` enforces the check. We read no other block than this one, and judge the end
//! ourselves: rules of others would take time to run that nothing bounds. (Biscuit specification, version 3.)

use super::Right;
use biscuit_auth::builder::{Fact, Predicate, Term};
use biscuit_auth::error::{Format, Token as BiscuitError};
use biscuit_auth::{Algorithm, Biscuit, BiscuitBuilder, BlockBuilder, KeyPair, PrivateKey};
use karman_mesh::membership::UnixTime;
use karman_package::PublicKey;
use karman_types::{ByteSize, ErrorKind};
use serde::{Deserialize, Serialize};

const CHECK: &str = "check if not_after($end), time($now), $now <= $end";
/// The longest token: rights and all.
const MOST_CHARACTERS: usize = 4096;
/// The longest name of a caller.
const MOST_NAME: usize = 64;

/// What a token gives, and to whom.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessTerms {
    /// Who it is for, as logs write it: 1 to 64 letters, digits and `-_.`.
    pub name: String,
    /// What the caller may do.
    pub rights: Vec<Right>,
    /// When it ends.
    pub not_after: UnixTime,
    /// How much the caller may do.
    pub limits: CallerLimits,
}

/// How much a caller may do; what is left out is not limited for this caller alone.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct CallerLimits {
    /// Requests in a second, in the mean; a second's worth may come at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// The longest body of one request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<ByteSize>,
    /// Requests at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_once: Option<u32>,
}

/// A token that was read: its signature fits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct AccessToken {
    /// What it gives.
    pub terms: AccessTerms,
    /// When it was made.
    pub issued: UnixTime,
    /// By which it is revoked: the first 16 bytes of its signature (Biscuit's revocation id), in hexadecimal.
    pub id: String,
}

/// A token that is not taken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// Not a token of ours.
    #[error("the token does not read ({0}); ask for a new one")]
    Malformed(String),
    /// Signed by somebody else.
    #[error("the token is signed by a key that this gateway does not trust")]
    Foreign,
    /// Its time is over.
    #[error("the token ended at {0}")]
    Expired(UnixTime),
    /// It was taken back.
    #[error("the token {0} is revoked")]
    Revoked(String),
    /// It cannot be made.
    #[error("`{field}` of a token must be {bounds}")]
    Terms {
        /// The field.
        field: &'static str,
        /// What may be given.
        bounds: &'static str,
    },
}

impl TokenError {
    /// Which way it fails.
    pub const fn kind(&self) -> ErrorKind {
        match self {
            Self::Malformed(_) | Self::Terms { .. } => ErrorKind::Invalid,
            Self::Foreign | Self::Expired(_) | Self::Revoked(_) => ErrorKind::Denied,
        }
    }
}

impl AccessToken {
    /// Makes a token, signed with this Ed25519 seed: the text that goes behind `Bearer`.
    ///
    /// # Errors
    /// [`TokenError::Terms`] for a name, rights or limits outside their bounds.
    pub fn issue(seed: &[u8; 32], terms: &AccessTerms, now: UnixTime) -> Result<String, TokenError> {
        check(terms, now)?;
        let private = PrivateKey::from_bytes(seed, Algorithm::Ed25519).map_err(malformed)?;
        let mut block = BiscuitBuilder::new();
        for fact in facts(terms, now) {
            block = block.fact(Fact::new(fact.name, fact.terms)).map_err(malformed)?;
        }
        let block = block.check(CHECK).map_err(malformed)?;
        let sealed = block
            .build(&KeyPair::from(&private))
            .and_then(|token| token.seal());
        let text = sealed.and_then(|token| token.to_base64()).map_err(malformed)?;
        match text.len() > MOST_CHARACTERS {
            true => Err(TokenError::Terms {
                field: "rights",
                bounds: "fewer: the token would be longer than 4,096 characters",
            }),
            false => Ok(text),
        }
    }

    /// Reads a token that one of these keys has signed. Whether it still holds, [`AccessToken::check`] says.
    ///
    /// # Errors
    /// [`TokenError::Foreign`], [`TokenError::Malformed`].
    pub fn read(text: &str, keys: &[PublicKey]) -> Result<Self, TokenError> {
        if text.len() > MOST_CHARACTERS {
            return Err(TokenError::Malformed("it is too long".into()));
        }
        let mut last = TokenError::Foreign;
        for key in keys {
            let Ok(key) = biscuit_auth::PublicKey::from_bytes(key.as_bytes(), Algorithm::Ed25519) else {
                continue;
            };
            match Biscuit::from_base64(text, key) {
                Ok(biscuit) => return Self::of(&biscuit),
                Err(BiscuitError::Format(Format::Signature(_) | Format::SealedSignature)) => {}
                Err(other) => last = malformed(other),
            }
        }
        Err(last)
    }

    /// Whether it holds now.
    ///
    /// # Errors
    /// [`TokenError::Expired`].
    pub fn check(&self, now: UnixTime) -> Result<(), TokenError> {
        match now <= self.terms.not_after {
            true => Ok(()),
            false => Err(TokenError::Expired(self.terms.not_after)),
        }
    }

    fn of(biscuit: &Biscuit) -> Result<Self, TokenError> {
        let other = || TokenError::Malformed("it says more or less than ours do".into());
        if biscuit.block_count() != 1 {
            return Err(other());
        }
        let source = biscuit.print_block_source(0).map_err(malformed)?;
        let block = BlockBuilder::new().code(source).map_err(malformed)?;
        let (terms, issued) = terms_of(&block.facts).ok_or_else(other)?;
        let said = block.facts.into_iter().map(|fact| fact.predicate);
        let checks = block.checks.iter().map(ToString::to_string);
        let ours = said.eq(facts(&terms, issued)) && checks.eq([CHECK.to_owned()]) && block.rules.is_empty();
        let ids = biscuit.revocation_identifiers();
        let id = ids.first().and_then(|id| id.get(..16)).ok_or_else(other)?;
        match ours {
            true => Ok(Self {
                id: hex::encode(id),
                terms,
                issued,
            }),
            false => Err(other()),
        }
    }
}

fn check(terms: &AccessTerms, now: UnixTime) -> Result<(), TokenError> {
    let wrong = |field, bounds| Err(TokenError::Terms { field, bounds });
    let plain = |c: u8| c.is_ascii_alphanumeric() || b"-_.".contains(&c);
    let name = terms.name.as_bytes();
    if name.is_empty() || name.len() > MOST_NAME || !name.iter().copied().all(plain) {
        return wrong("name", "1 to 64 letters, digits and `-_.`");
    }
    if terms.rights.is_empty() {
        return wrong("rights", "at least one");
    }
    if terms.not_after < now {
        return wrong("expires", "in the future");
    }
    for (field, limit) in [("rate", terms.limits.rate), ("at-once", terms.limits.at_once)] {
        if limit == Some(0) {
            return wrong(field, "1 or more");
        }
    }
    Ok(())
}

fn facts(terms: &AccessTerms, issued: UnixTime) -> Vec<Predicate> {
    let fact = |name: &str, term| Predicate::new(name.into(), vec![term]);
    let number = |name: &str, value: Option<u64>| {
        let value = value.and_then(|value| i64::try_from(value).ok())?;
        Some(fact(name, Term::Integer(value)))
    };
    let limits = &terms.limits;
    let mut facts = vec![
        fact("access", Term::Str(terms.name.clone())),
        fact("issued", Term::Date(issued.seconds())),
        fact("not_after", Term::Date(terms.not_after.seconds())),
    ];
    facts.extend(number("rate", limits.rate.map(u64::from)));
    facts.extend(number("body", limits.body.map(|size| size.0)));
    facts.extend(number("at_once", limits.at_once.map(u64::from)));
    let rights = terms.rights.iter();
    facts.extend(rights.map(|right| fact("right", Term::Str(right.to_string()))));
    facts
}

/// What the facts say, in whatever order; [`AccessToken::of`] compares them with what we would write.
fn terms_of(facts: &[Fact]) -> Option<(AccessTerms, UnixTime)> {
    let (mut name, mut issued, mut not_after) = (None, None, None);
    let (mut limits, mut rights) = (CallerLimits::default(), Vec::new());
    for fact in facts {
        let [term] = &fact.predicate.terms[..] else {
            return None;
        };
        match (fact.predicate.name.as_str(), term) {
            ("access", Term::Str(text)) => name = Some(text.clone()),
            ("issued", Term::Date(at)) => issued = Some(UnixTime::from_seconds(*at)),
            ("not_after", Term::Date(at)) => not_after = Some(UnixTime::from_seconds(*at)),
            ("rate", Term::Integer(rate)) => limits.rate = Some(u32::try_from(*rate).ok()?),
            ("body", Term::Integer(bytes)) => limits.body = Some(ByteSize(u64::try_from(*bytes).ok()?)),
            ("at_once", Term::Integer(most)) => limits.at_once = Some(u32::try_from(*most).ok()?),
            ("right", Term::Str(right)) => rights.push(right.parse().ok()?),
            _ => return None,
        }
    }
    let terms = AccessTerms {
        name: name?,
        rights,
        not_after: not_after?,
        limits,
    };
    Some((terms, issued?))
}

fn malformed(error: impl Into<BiscuitError>) -> TokenError {
    TokenError::Malformed(error.into().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Access, Revoked};
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE;
    use http::header::AUTHORIZATION;
    use http::{HeaderMap, HeaderValue};
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;
    use std::time::Duration;

    const SEED: [u8; 32] = [7; 32];
    const NOW: UnixTime = UnixTime::from_seconds(1_800_000_000);

    fn key(seed: &[u8; 32]) -> PublicKey {
        let private = PrivateKey::from_bytes(seed, Algorithm::Ed25519).unwrap();
        PublicKey::from_bytes(private.public().to_bytes().try_into().unwrap())
    }

    fn terms() -> AccessTerms {
        AccessTerms {
            name: "sensor-7".into(),
            rights: vec!["infer:digits-*".parse().unwrap(), "metrics".parse().unwrap()],
            not_after: NOW.after(Duration::from_secs(60)),
            limits: CallerLimits {
                rate: Some(50),
                body: Some(ByteSize::mib(8)),
                at_once: None,
            },
        }
    }

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn access(folder: &std::path::Path) -> Access {
        let revoked = Revoked::of(folder);
        Access::new(vec![key(&SEED)], Vec::new(), CallerLimits::default(), revoked, 3)
    }

    fn bearing(token: &str) -> HeaderMap {
        let value: HeaderValue = format!("Bearer {token}").parse().unwrap();
        HeaderMap::from_iter([(AUTHORIZATION, value)])
    }

    fn until(seconds: u64) -> String {
        let terms = AccessTerms {
            not_after: UnixTime::from_seconds(seconds),
            ..terms()
        };
        AccessToken::issue(&SEED, &terms, UnixTime::from_seconds(1_000_000)).unwrap()
    }

    #[test]
    fn a_token_says_what_was_put_into_it() {
        let text = AccessToken::issue(&SEED, &terms(), NOW).unwrap();
        let read = AccessToken::read(&text, &[key(&[1; 32]), key(&SEED)]).unwrap();
        assert_eq!((&read.terms, read.issued, read.id.len()), (&terms(), NOW, 32));
        assert_eq!(read.check(NOW), Ok(()));
        let late = NOW.after(Duration::from_secs(61));
        assert_eq!(read.check(late), Err(TokenError::Expired(terms().not_after)));
    }

    #[test]
    fn who_has_a_token_that_holds_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        assert!(access.is_known(&bearing(&until(4_000_000_000)), PEER));
        assert!(!access.is_known(&bearing(&until(1_000_001)), PEER));
        assert!(!access.is_known(&bearing("nonsense"), PEER));
        assert!(!access.is_known(&HeaderMap::new(), PEER));
        // A clock that was reset brings no expired token back.
        access.seen(UnixTime::from_seconds(4_000_000_001));
        assert!(!access.is_known(&bearing(&until(4_000_000_000)), PEER));
    }

    #[test]
    fn a_token_that_is_written_in_another_way_is_no_other_caller() {
        let folder = tempfile::tempdir().unwrap();
        let access = access(folder.path());
        let text = until(4_000_000_000);
        let mut bytes = URL_SAFE.decode(&text).unwrap();
        // A field that readers of Protobuf do not know, and pass over.
        bytes.extend([15 << 3, 1]);
        let caller = |text: &str| access.caller(&bearing(text), PEER).unwrap();
        let (one, other) = (caller(&text), caller(&URL_SAFE.encode(bytes)));
        assert!(Arc::ptr_eq(&one, &other) && Arc::ptr_eq(&one, &caller(&text)));
        assert_eq!(access.known.lock().by_text.len(), 1);
    }

    #[test]
    fn a_foreign_or_changed_token_is_refused() {
        let text = AccessToken::issue(&SEED, &terms(), NOW).unwrap();
        assert_eq!(
            AccessToken::read(&text, &[key(&[1; 32])]),
            Err(TokenError::Foreign)
        );
        assert_eq!(AccessToken::read(&text, &[]), Err(TokenError::Foreign));
        for broken in ["", "x", &text[1..], &"A".repeat(5000)] {
            let error = AccessToken::read(broken, &[key(&SEED)]).unwrap_err();
            assert!(matches!(error, TokenError::Malformed(_)), "{error}");
        }
    }

    #[test]
    fn a_block_of_others_is_not_read() {
        let private = PrivateKey::from_bytes(&SEED, Algorithm::Ed25519).unwrap();
        let more = facts(&terms(), NOW)
            .into_iter()
            .try_fold(BiscuitBuilder::new(), |block, fact| {
                block.fact(Fact::new(fact.name, fact.terms))
            });
        let more = more
            .unwrap()
            .check(CHECK)
            .unwrap()
            .rule("right($x) <- access($x)")
            .unwrap();
        let text = more.build(&KeyPair::from(&private)).unwrap().to_base64().unwrap();
        let error = AccessToken::read(&text, &[key(&SEED)]).unwrap_err();
        assert!(error.to_string().contains("more or less"), "{error}");
    }

    #[test]
    fn terms_outside_their_bounds_name_the_field() {
        let with = |change: fn(&mut AccessTerms)| {
            let mut terms = terms();
            change(&mut terms);
            AccessToken::issue(&SEED, &terms, NOW).unwrap_err().to_string()
        };
        assert!(with(|terms| terms.name = "a b".into()).contains("`name`"));
        assert!(with(|terms| terms.rights.clear()).contains("`rights`"));
        assert!(with(|terms| terms.not_after = UnixTime::from_seconds(1)).contains("`expires`"));
        assert!(with(|terms| terms.limits.rate = Some(0)).contains("`rate`"));
        assert!(with(|terms| terms.limits.at_once = Some(0)).contains("`at-once`"));
        let many = |terms: &mut AccessTerms| {
            // Different ones: a text that is there twice takes its room once.
            let right = |number| format!("infer:{}-{number}", "a".repeat(100)).parse().unwrap();
            terms.rights = (0..60).map(right).collect();
        };
        assert!(with(many).contains("`rights`"));
    }
}
