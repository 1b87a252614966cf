use http::HeaderMap;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::VecDeque;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Decisions that are kept; the oldest goes first.
const MOST: usize = 200;

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

/// The last decisions.
#[derive(Debug, Default)]
pub(crate) struct Decisions(Mutex<VecDeque<Decided>>);

impl Decisions {
    /// Keeps what a response says of itself; one without a decision says nothing.
    pub(crate) fn keep(&self, headers: &HeaderMap, request: &str, took: Duration) {
        // Policies may say why in any language, and headers take it.
        let text = |name: &str| String::from_utf8(headers.get(name)?.as_bytes().to_vec()).ok();
        let (Some(model), Some(node), Some(why)) =
            (text("karman-model"), text("karman-node"), text("karman-why"))
        else {
            return;
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let decided = Decided {
            unix_ms: now.as_millis() as u64,
            request: request.to_owned(),
            model,
            node,
            tier: text("karman-tier").unwrap_or_default(),
            ran_on: text("karman-ran-on"),
            cut: text("karman-cut"),
            why,
            decision: text("karman-decision"),
            took_us: took.as_micros() as u64,
        };
        let mut all = self.0.lock();
        if all.len() == MOST {
            all.pop_front();
        }
        all.push_back(decided);
    }

    /// The last ones, the last first.
    pub(crate) fn last(&self) -> Vec<Decided> {
        self.0.lock().iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_are_kept_and_others_are_none() {
        let decisions = Decisions::default();
        decisions.keep(&HeaderMap::new(), "r", Duration::ZERO);
        assert!(decisions.last().is_empty());
        for at in 0..=MOST {
            let mut headers = HeaderMap::new();
            for name in ["karman-model", "karman-node", "karman-why"] {
                headers.insert(name, at.into());
            }
            decisions.keep(&headers, "r", Duration::from_millis(1));
        }
        let last = decisions.last();
        assert_eq!(
            (last.len(), &last[0].model[..], last[0].took_us),
            (MOST, "200", 1000)
        );
        assert_eq!(last[MOST - 1].model, "1");
    }

    #[test]
    fn a_reason_may_be_in_any_language() {
        let decisions = Decisions::default();
        let mut headers = HeaderMap::new();
        for name in ["karman-model", "karman-node", "karman-why"] {
            headers.insert(name, "weil es nächst ist".parse().unwrap());
        }
        decisions.keep(&headers, "r", Duration::ZERO);
        assert_eq!(decisions.last()[0].why, "weil es nächst ist");
    }
}
