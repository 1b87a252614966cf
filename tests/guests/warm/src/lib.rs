//! A counter that stays warm: each call counts one more, and the next version goes on where this one stopped.
//!
//! Built with the feature `v2` it says `v2`; with `broken` it fails its check, so that the node rolls back. Once it is called with
//! `save traps`, it does.

use exports::karman::task::handler::{Error, Guest as Handler, Request, Response};
use exports::karman::task::lifecycle::Guest as Lifecycle;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

wit_bindgen::generate!({ path: "../../../wit/task", world: "warm-task" });

const VERSION: &str = if cfg!(feature = "v2") { "v2" } else { "v1" };

static CALLS: AtomicU64 = AtomicU64::new(0);
static SAVE_TRAPS: AtomicBool = AtomicBool::new(false);

struct Counter;

impl Handler for Counter {
    fn handle(request: Request) -> Result<Response, Error> {
        if request.body == b"save traps" {
            SAVE_TRAPS.store(true, Relaxed);
        }
        let calls = CALLS.fetch_add(1, Relaxed) + 1;
        Ok(Response {
            content_type: "text/plain".into(),
            metadata: Vec::new(),
            body: format!("{VERSION} {calls}").into_bytes(),
        })
    }
}

impl Lifecycle for Counter {
    fn check() -> Result<(), String> {
        if cfg!(feature = "broken") {
            return Err(format!("{VERSION} is broken on purpose"));
        }
        Ok(())
    }

    fn save() -> Result<Vec<u8>, String> {
        assert!(!SAVE_TRAPS.load(Relaxed), "save traps on purpose");
        Ok(CALLS.load(Relaxed).to_le_bytes().to_vec())
    }

    fn restore(state: Vec<u8>) -> Result<(), String> {
        let calls = state
            .as_slice()
            .try_into()
            .map_err(|_| format!("the state has {} bytes; a counter has 8", state.len()))?;
        CALLS.store(u64::from_le_bytes(calls), Relaxed);
        Ok(())
    }
}

export!(Counter);
