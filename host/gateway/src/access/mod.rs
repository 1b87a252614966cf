//! Who calls, what they may do, and how much: a token behind `Bearer`, or none for what the operator left open.

mod rate;
mod revoked;
mod right;
mod token;

pub use revoked::Revoked;
pub use right::{Right, RightError};
pub use token::{AccessTerms, AccessToken, CallerLimits, TokenError};

use crate::refusal::Refusal;
use http::{HeaderMap, header};
use karman_mesh::membership::UnixTime;
use karman_package::PublicKey;
use karman_types::{ErrorKind, TaskError};
use parking_lot::Mutex;
use rate::Bucket;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
    anyone: Arc<Caller>,
    started: Instant,
}

/// Callers whose tokens are verified: that takes longer than many a model.
#[derive(Debug, Default)]
struct Known {
    /// By the digest of the token's text.
    by_text: HashMap<blake3::Hash, Arc<Caller>>,
    /// By the token's id, the digest of its last text: whoever writes a token in another way is no other caller, with a rate of its own.
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

/// A place among the requests that a caller may have at once.
#[derive(Debug)]
pub(crate) struct Place(Arc<Caller>);

impl Access {
    pub(crate) fn new(
        keys: Vec<PublicKey>,
        open: Vec<Right>,
        limits: CallerLimits,
        revoked: Revoked,
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
            anyone: Arc::new(anyone),
            started: Instant::now(),
        }
    }

    /// Who sends these headers.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Result<Arc<Caller>, Refusal> {
        let Some(value) = headers.get(header::AUTHORIZATION) else {
            return Ok(self.anyone.clone());
        };
        let text = value.to_str().unwrap_or_default();
        let bearer = text
            .split_once(' ')
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, text)) = bearer else {
            let error = TaskError::denied("the header `authorization` is not `Bearer TOKEN`");
            return Err(Refusal::unauthorized(error));
        };
        self.known(text.trim()).map_err(|error| {
            let error = TaskError::new(ErrorKind::Denied, error.to_string())
                .with_field("authorization")
                .with_hint("`karman token issue` makes a token on the gateway's machine");
            Refusal::unauthorized(error)
        })
    }

    /// Whether these headers have a token that holds.
    pub(crate) fn is_known(&self, headers: &HeaderMap) -> bool {
        self.caller(headers).is_ok_and(|caller| caller.token.is_some())
    }

    fn known(&self, text: &str) -> Result<Arc<Caller>, TokenError> {
        let digest = blake3::hash(text.as_bytes());
        let known = self.known.lock().by_text.get(&digest).cloned();
        let caller = match known {
            Some(caller) => caller,
            None => self.meet(digest, AccessToken::read(text, &self.keys)?),
        };
        let Some(token) = &caller.token else {
            return Ok(caller);
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        token.check(UnixTime::from_seconds(now.as_secs()))?;
        match self.revoked.has(&token.id, self.started.elapsed()) {
            true => Err(TokenError::Revoked(token.id.clone())),
            false => Ok(caller),
        }
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

    /// Time on the clock that rates are judged by.
    pub(crate) fn now(&self) -> Duration {
        self.started.elapsed()
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

    /// Refuses what it may not do.
    pub(crate) fn must(&self, asked: &Right) -> Result<(), Refusal> {
        if self.holds(asked) {
            return Ok(());
        }
        let hint =
            format!("`karman token issue --right {asked}` on the gateway's machine makes a token that may");
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
        match (self.rights().any(fits), &self.token) {
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
