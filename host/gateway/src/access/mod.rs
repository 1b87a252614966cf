//! Who calls, what they may do, and how much: a token behind `Bearer`, or none for what the operator left open.

mod failures;
mod rate;
mod revoked;
mod right;
mod token;

pub(crate) use failures::FailedTokens;
pub use revoked::Revoked;
pub use right::{Right, RightError};
pub use token::{AccessTerms, AccessToken, CallerLimits, TokenError};

use crate::refusal::Refusal;
use failures::Failures;
use http::{HeaderMap, header};
use karman_mesh::membership::UnixTime;
use karman_mesh::wall_clock;
use karman_node::MOST_AHEAD;
use karman_package::PublicKey;
use karman_types::{ErrorKind, TaskError};
use parking_lot::Mutex;
use rate::Bucket;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Tokens that stay verified. One more drops those that nobody uses at the time.
const MOST_KNOWN: usize = 10_000;
/// The name of callers without a token, in logs.
const NOBODY: &str = "-";

/// Judges callers.
#[derive(Debug)]
pub(crate) struct Access {
    keys: Vec<PublicKey>,
    revoked: Revoked,
    known: Mutex<Known>,
    failures: Failures,
    anyone: Arc<Caller>,
    started: Instant,
    /// The newest time that was seen and may be right, in seconds since 1970.
    newest: AtomicU64,
}

/// Callers whose tokens are verified: that takes longer than many a model.
#[derive(Debug, Default)]
struct Known {
    /// By the digest of the token's text.
    by_text: HashMap<blake3::Hash, Arc<Caller>>,
    /// By the token's id, the digest of its last text: a token that is encoded in another way is no other caller, with a rate of its own.
    by_id: HashMap<String, blake3::Hash>,
}

/// Somebody who calls.
#[derive(Debug)]
pub(crate) struct Caller {
    token: Option<AccessToken>,
    /// What is left open to everybody.
    open: Arc<[Right]>,
    limits: CallerLimits,
    bucket: Mutex<Option<Bucket>>,
    running: AtomicU32,
}

/// Why nobody knows who calls.
enum Stranger {
    /// What it sends is no token, or one that does not hold.
    Refused(TaskError),
    /// Whether what it sends holds cannot be told.
    Unsure(TaskError),
    /// Too many that came from its address did not hold: for so long none is looked at that is new.
    TooMany(Duration),
}

/// A place among the requests that a caller may have at once.
#[derive(Debug)]
pub(crate) struct Place(Arc<Caller>);

impl Access {
    /// `failed` is how many tokens that do not hold one address may send in a second.
    pub(crate) fn new(
        keys: Vec<PublicKey>,
        open: Vec<Right>,
        limits: CallerLimits,
        revoked: Revoked,
        failed: u32,
    ) -> Self {
        let anyone = Caller {
            token: None,
            open: open.into(),
            limits,
            bucket: Mutex::default(),
            running: AtomicU32::new(0),
        };
        Self {
            keys,
            revoked,
            known: Mutex::default(),
            failures: Failures::new(failed),
            anyone: Arc::new(anyone),
            started: Instant::now(),
            newest: AtomicU64::new(0),
        }
    }

    /// It has been this late before.
    pub(crate) fn seen(&self, time: UnixTime) {
        self.newest.fetch_max(time.seconds(), Ordering::Relaxed);
    }

    /// Who sends these headers from there.
    ///
    /// # Errors
    /// 401 for what is no token that holds; 503 where that cannot be told; 429, with the time after which to try again, where too many that came from there were none.
    pub(crate) fn caller(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, Refusal> {
        let wait = match self.recognised(headers, peer) {
            Ok(caller) => return Ok(caller),
            Err(Stranger::Refused(error)) => match self.failures.count(peer, self.now()) {
                Ok(()) => return Err(Refusal::unauthorized(error)),
                Err(wait) => wait,
            },
            Err(Stranger::Unsure(error)) => return Err(error.into()),
            Err(Stranger::TooMany(wait)) => {
                self.failures.keep_out();
                wait
            }
        };
        let error = TaskError::limit("too many tokens from this address do not hold");
        let hint = "try again later, with one that does: `karman token inspect` shows what is wrong with it";
        let error = error.with_field("authorization").with_hint(hint);
        Err(Refusal::later(error, wait))
    }

    /// Whether these headers have a token that holds.
    pub(crate) fn is_known(&self, headers: &HeaderMap, peer: IpAddr) -> bool {
        let caller = self.recognised(headers, peer);
        caller.is_ok_and(|caller| caller.token.is_some())
    }

    fn recognised(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Arc<Caller>, Stranger> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(self.anyone.clone());
        };
        let text = value.to_str().unwrap_or_default();
        let bearer = text
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        match bearer {
            Some((_, text)) => self.known(text.trim(), peer),
            None => {
                let error = TaskError::denied("the header `authorization` is not `Bearer TOKEN`");
                Err(Stranger::Refused(error))
            }
        }
    }

    fn known(&self, text: &str, peer: IpAddr) -> Result<Arc<Caller>, Stranger> {
        let digest = blake3::hash(text.as_bytes());
        let known = self.known.lock().by_text.get(&digest).cloned();
        let caller = match known {
            Some(caller) => caller,
            None => {
                let may = self.failures.may(peer, self.now());
                may.map_err(Stranger::TooMany)?;
                self.meet(digest, AccessToken::read(text, &self.keys)?)
            }
        };
        let Some(token) = &caller.token else {
            return Ok(caller);
        };
        token.check(self.clock())?;
        match self
            .revoked
            .has(&token.id, self.started.elapsed())
            .map_err(Stranger::Unsure)?
        {
            true => Err(TokenError::Revoked(token.id.clone()).into()),
            false => Ok(caller),
        }
    }

    /// The time by which tokens are judged.
    fn clock(&self) -> UnixTime {
        self.time(wall_clock().as_secs())
    }

    /// What time it is when the clock shows this. One that was reset does not bring expired tokens back, and what one showed that was
    /// [far ahead](MOST_AHEAD) counts no longer than it shows it.
    fn time(&self, clock: u64) -> UnixTime {
        let newest = self.newest.load(Ordering::Relaxed);
        if clock <= newest.saturating_add(MOST_AHEAD.as_secs()) {
            self.newest.fetch_max(clock, Ordering::Relaxed);
        }
        UnixTime::from_seconds(clock.max(newest))
    }

    fn meet(&self, digest: blake3::Hash, token: AccessToken) -> Arc<Caller> {
        let mut known = self.known.lock();
        let Known { by_text, by_id } = &mut *known;
        if by_text.len() >= MOST_KNOWN {
            by_text.retain(|_, caller| Arc::strong_count(caller) > 1);
            by_id.retain(|_, text| by_text.contains_key(text));
        }
        let before = by_id.insert(token.id.clone(), digest);
        let before = before.and_then(|text| by_text.remove(&text));
        let caller = before.unwrap_or_else(|| {
            Arc::new(Caller {
                limits: token.terms.limits,
                token: Some(token),
                open: self.anyone.open.clone(),
                bucket: Mutex::default(),
                running: AtomicU32::new(0),
            })
        });
        by_text.insert(digest, caller.clone());
        caller
    }

    /// Tokens that did not hold.
    pub(crate) fn failed(&self) -> FailedTokens {
        self.failures.all()
    }

    /// Time on the clock that rates are judged by.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

impl From<TokenError> for Stranger {
    fn from(error: TokenError) -> Self {
        let error = TaskError::new(ErrorKind::Denied, error.to_string()).with_field("authorization");
        Self::Refused(error.with_hint("`karman token issue` makes a token on the gateway's machine"))
    }
}

impl Caller {
    /// Whether it has no token, so that it may be anyone.
    pub(crate) fn is_anyone(&self) -> bool {
        self.token.is_none()
    }

    /// Its name, as logs write it.
    pub(crate) fn name(&self) -> &str {
        self.token.as_ref().map_or(NOBODY, |token| &token.terms.name)
    }

    /// The longest body of one request, if that is limited for this caller.
    pub(crate) fn most_body(&self) -> Option<u64> {
        self.limits.body.map(|size| size.0)
    }

    fn rights(&self) -> impl Iterator<Item = &Right> {
        let own = self.token.iter().flat_map(|token| &token.terms.rights);
        self.open.iter().chain(own)
    }

    /// Whether it may do this.
    pub(crate) fn holds(&self, asked: &Right) -> bool {
        self.rights().any(|right| right.covers(asked))
    }

    /// Whether it may do something of some kind.
    pub(crate) fn holds_some(&self, fits: impl Fn(&Right) -> bool) -> bool {
        self.rights().any(fits)
    }

    /// Refuses what it may not do.
    pub(crate) fn must(&self, asked: &Right) -> Result<(), Refusal> {
        if self.holds(asked) {
            return Ok(());
        }
        let hint = format!(
            "`karman token issue NAME --right {asked}` on the gateway's machine makes a token that may"
        );
        match &self.token {
            None => Err(Refusal::unauthorized(
                TaskError::denied(format!("`{asked}` takes a token")).with_hint(hint),
            )),
            Some(token) => Err(Refusal::from(
                TaskError::denied(format!("`{}` has no right `{asked}`", token.terms.name)).with_hint(hint),
            )),
        }
    }

    /// Refuses what takes a right of some kind, when it holds none of them.
    pub(crate) fn must_some(&self, fits: impl Fn(&Right) -> bool, kind: &str) -> Result<(), Refusal> {
        match (self.holds_some(fits), &self.token) {
            (true, _) => Ok(()),
            (false, None) => Err(Refusal::unauthorized(TaskError::denied(format!(
                "this takes a token with a right `{kind}`"
            )))),
            (false, Some(_)) => Err(Refusal::from(TaskError::denied(format!(
                "this takes a right `{kind}`"
            )))),
        }
    }

    /// Counts a request, and takes a place for it.
    pub(crate) fn enter(self: Arc<Self>, now: Duration) -> Result<Place, Refusal> {
        if let Some(rate) = self.limits.rate {
            let mut bucket = self.bucket.lock();
            let bucket = bucket.get_or_insert_with(|| Bucket::full(rate, now));
            if let Err(wait) = bucket.take(rate, now) {
                let error = TaskError::limit(format!("`{}` may send {rate} requests a second", self.name()));
                return Err(Refusal::later(error.with_field("rate"), wait));
            }
        }
        let running = self.running.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        match place.0.limits.at_once {
            Some(most) if running >= most => {
                let error =
                    TaskError::limit(format!("`{}` may have {most} requests at once", place.0.name()));
                Err(Refusal::later(
                    error.with_field("at-once"),
                    Duration::from_secs(1),
                ))
            }
            _ => Ok(place),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Speaks;
    use http::{HeaderValue, StatusCode};

    #[test]
    fn a_clock_that_is_decades_ahead_is_forgotten_when_it_is_set() {
        const DAY: u64 = 86_400;
        const SEEN: u64 = 20_000 * DAY;
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        let access = Access::new(Vec::new(), Vec::new(), CallerLimits::default(), revoked, 1);
        access.seen(UnixTime::from_seconds(SEEN));
        let time = |clock| access.time(clock).seconds();
        assert_eq!(time(SEEN + 20_000 * DAY), SEEN + 20_000 * DAY);
        assert_eq!(time(SEEN + DAY), SEEN + DAY);
        // One that was reset brings nothing back.
        assert_eq!(time(0), SEEN + DAY);
    }

    #[test]
    fn who_fails_too_often_is_not_looked_at_and_who_is_known_is_not_kept_out() {
        const HERE: [u8; 4] = [192, 0, 2, 1];
        let folder = tempfile::tempdir().unwrap();
        let pair = ed25519_compact::KeyPair::from_seed(ed25519_compact::Seed::new([7; 32]));
        let (keys, revoked) = (vec![PublicKey::from_bytes(*pair.pk)], Revoked::of(folder.path()));
        let access = Access::new(keys, Vec::new(), CallerLimits::default(), revoked, 1);
        let token = |name: &str| {
            let terms = AccessTerms {
                name: name.into(),
                rights: vec!["infer:*".parse().unwrap()],
                not_after: UnixTime::from_seconds(4_000_000_000),
                limits: CallerLimits::default(),
            };
            AccessToken::issue(&[7; 32], &terms, UnixTime::from_seconds(1_000_000)).unwrap()
        };
        let status = |token: &str, from: [u8; 4]| {
            let value: HeaderValue = format!("Bearer {token}").parse().unwrap();
            let headers = HeaderMap::from_iter([(header::AUTHORIZATION, value)]);
            match access.caller(&headers, from.into()) {
                Ok(_) => StatusCode::OK,
                Err(refusal) => refusal.response(Speaks::Plain).status(),
            }
        };
        let known = token("known");
        assert_eq!(status(&known, HERE), StatusCode::OK);
        assert_eq!(status("nonsense", HERE), StatusCode::UNAUTHORIZED);
        // Once a second it may; the machine may be slow, but not that slow every time.
        let is_kept_out = |number: usize| {
            let new = token(&format!("new-{number}"));
            let refused = (status("nonsense", HERE), status(&new, HERE));
            refused == (StatusCode::TOO_MANY_REQUESTS, StatusCode::TOO_MANY_REQUESTS)
        };
        assert!((0..100).any(is_kept_out));
        let failed = access.failed();
        assert!(failed.judged >= 1 && failed.kept_out >= 1, "{failed:?}");
        assert_eq!(status(&known, HERE), StatusCode::OK);
        assert_eq!(status(&token("other"), [192, 0, 2, 2]), StatusCode::OK);
    }
}
