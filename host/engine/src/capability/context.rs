//! `karman:task/context`: what a task may know of the call that it serves.

use super::bindings::host::karman::task::context::{Call, Host as Context, Tier as WitTier};
use crate::host::Host;
use karman_types::Tier;
use std::time::Instant;

impl Context for Host {
    async fn current(&mut self) -> wasmtime::Result<Call> {
        let call = &self.call;
        Ok(Call {
            idempotency_key: call.key().into_owned(),
            task_id: call.task.to_string(),
            attempt: call.attempt,
            node_id: call.node.to_string(),
            tier: match call.tier {
                Tier::Edge => WitTier::Edge,
                Tier::Fog => WitTier::Fog,
                Tier::Cloud => WitTier::Cloud,
                Tier::Space => WitTier::Space,
            },
        })
    }

    async fn time_left(&mut self) -> wasmtime::Result<Option<u64>> {
        Ok(Some(
            self.deadline
                .saturating_duration_since(Instant::now())
                .as_millis() as u64,
        ))
    }
}
