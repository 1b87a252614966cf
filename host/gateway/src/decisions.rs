use crate::headers;
use http::{HeaderMap, HeaderValue};
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Decisions that are kept; the oldest goes first.
const MOST: usize = 200;
/// They tell of about this time at least: where more come, one in each of its parts is kept.
const SPAN: Duration = Duration::from_millis(200);

/// One request, and what was decided for it: what its headers said.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Decided {
    /// Milliseconds since 1970, by the gateway's clock.
    unix_ms: u64,
    request: String,
    model: String,
    node: String,
    tier: String,
    ran_on: Option<String>,
    cut: Option<String>,
    why: String,
    /// Under which `karman why` tells more.
    decision: Option<String>,
    took_us: u64,
}

/// What a response has said of itself: few ask for it, so it is read then.
#[derive(Debug)]
struct Kept {
    at: SystemTime,
    request: HeaderValue,
    headers: [Option<HeaderValue>; 7],
    took: Duration,
}

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Mutex<VecDeque<Kept>>);

impl Decisions {
    /// Keeps what a response says of itself; one without a decision says nothing.
    pub(crate) fn keep(&self, all: &HeaderMap, request: &HeaderValue, at: SystemTime, took: Duration) {
        let mut last = self.0.lock();
        let is_full = last.len() == MOST;
        let is_younger = |kept: Option<&Kept>, than: Duration| {
            let age = kept.and_then(|kept| at.duration_since(kept.at).ok());
            age.is_some_and(|age| age < than)
        };
        if is_full && is_younger(last.front(), SPAN) && is_younger(last.back(), SPAN / MOST as u32) {
            return;
        }
        let headers = [
            headers::MODEL,
            headers::NODE,
            headers::WHY,
            headers::TIER,
            headers::RAN_ON,
            headers::CUT,
            headers::DECISION,
        ];
        let headers = headers.map(|name| all.get(name).cloned());
        let [Some(_model), Some(_node), Some(_why), ..] = &headers else {
            return;
        };
        let kept = Kept {
            at,
            request: request.clone(),
            headers,
            took,
        };
        if is_full {
            last.pop_front();
        }
        last.push_back(kept);
    }

    /// The last ones, the last first.
    pub(crate) fn last(&self) -> Vec<Decided> {
        self.0.lock().iter().rev().map(Kept::read).collect()
    }
}

impl Kept {
    fn read(&self) -> Decided {
        // Policies may say why in any language, and headers take it.
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        let [model, node, why, tier, ran_on, cut, decision] =
            self.headers.each_ref().map(|value| value.as_ref().map(text));
        let since = self.at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Decided {
            unix_ms: since.as_millis() as u64,
            request: text(&self.request),
            model: model.unwrap_or_default(),
            node: node.unwrap_or_default(),
            tier: tier.unwrap_or_default(),
            ran_on,
            cut,
            why: why.unwrap_or_default(),
            decision,
            took_us: self.took.as_micros() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REQUEST: HeaderValue = HeaderValue::from_static("r");

    #[test]
    fn the_last_are_kept_and_others_are_none() {
        let decisions = Decisions::default();
        decisions.keep(&HeaderMap::new(), &REQUEST, UNIX_EPOCH, Duration::ZERO);
        assert!(decisions.last().is_empty());
        for at in 0..=MOST {
            let mut headers = HeaderMap::new();
            for name in ["karman-model", "karman-node", "karman-why"] {
                headers.insert(name, at.into());
            }
            let second = Duration::from_secs(at as u64);
            decisions.keep(&headers, &REQUEST, UNIX_EPOCH + second, Duration::from_millis(1));
        }
        let last = decisions.last();
        assert_eq!(
            (last.len(), &last[0].model[..], last[0].took_us),
            (MOST, "200", 1000)
        );
        assert_eq!(last[MOST - 1].model, "1");
    }

    #[test]
    fn where_more_come_than_are_kept_those_that_are_tell_of_some_time() {
        let decisions = Decisions::default();
        let mut headers = HeaderMap::new();
        for name in ["karman-model", "karman-node", "karman-why"] {
            headers.insert(name, REQUEST);
        }
        // Ten in each millisecond, for two seconds.
        for at in 0..20_000 {
            let at = UNIX_EPOCH + Duration::from_micros(100 * at);
            decisions.keep(&headers, &REQUEST, at, Duration::ZERO);
        }
        let last = decisions.last();
        let (newest, oldest) = (last[0].unix_ms, last[MOST - 1].unix_ms);
        assert!(
            newest - oldest >= SPAN.as_millis() as u64 - 2 && newest > 1990,
            "{oldest} to {newest}"
        );
    }

    #[test]
    fn a_reason_may_be_in_any_language() {
        let decisions = Decisions::default();
        let mut headers = HeaderMap::new();
        for name in ["karman-model", "karman-node", "karman-why"] {
            headers.insert(name, "weil es nächst ist".parse().unwrap());
        }
        decisions.keep(&headers, &REQUEST, UNIX_EPOCH, Duration::ZERO);
        assert_eq!(decisions.last()[0].why, "weil es nächst ist");
    }
}
