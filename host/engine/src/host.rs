//! The state of one call: everything that its host functions may look at.

use crate::capability::Services;
use crate::capability::outgoing::Outgoing;
use crate::capability::wasi::{self, Folder};
use crate::epoch::EPOCH_TICK;
use crate::limiter::{Kept, Limiter, Refused};
use crate::log_limit::LogLimit;
use karman_types::{ByteSize, CallContext, ErrorKind, Grant, GrantSet, Limits, TaskError, format_duration};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wasmtime::component::{ResourceTable, ResourceTableError};
use wasmtime::{Engine, Store, Trap, UpdateDeadline};
use wasmtime_wasi::WasiCtx;
use wasmtime_wasi_http::WasiHttpCtx;

/// Handles to things of the host (streams, timers, tensors) that one instance may hold at once.
const MOST_HANDLES: usize = 10_000;

/// What a plugin is and may do; shared by its calls.
#[derive(Debug)]
pub(crate) struct PluginInfo {
    pub(crate) name: String,
    pub(crate) grants: Arc<GrantSet>,
    pub(crate) limits: Limits,
    /// Where there are any, the WASI context is made, and can fail, before the call.
    pub(crate) folders: Vec<Folder>,
    /// What it may still write into the log.
    pub(crate) log: Arc<LogLimit>,
}

impl PluginInfo {
    /// The error of a call that did not end in the time it was allowed.
    pub(crate) fn time_over(&self, allowed: Duration) -> TaskError {
        TaskError::deadline(format!(
            "`{}` did not finish within {}",
            self.name,
            format_duration(allowed)
        ))
        .with_hint("raise `limits.time` in its manifest, or give the call more time with --within")
    }

    /// The most bytes that the host copies out of the guest for one function, be it an answer or an argument: what is
    /// longer is refused before memory is taken for it.
    fn most_copied(&self) -> usize {
        let longest_value =
            match self.grants.allows(&Grant::RawModel) || self.grants.allows(&Grant::RawModelNative) {
                true => ByteSize::mib(64),
                false => ByteSize::mib(16),
            };
        // Names, types and metadata come on top.
        self.limits
            .output
            .max(self.limits.input)
            .max(longest_value)
            .as_usize()
            .saturating_add(1 << 20)
    }
}

/// The data of a store.
pub(crate) struct Host {
    pub(crate) plugin: Arc<PluginInfo>,
    pub(crate) services: Services,
    pub(crate) call: CallContext,
    /// How long the call may take in all.
    pub(crate) allowed: Duration,
    pub(crate) deadline: Instant,
    /// Set at the first epoch tick that the guest sees when it has not just come: this is no short call.
    pub(crate) long: Arc<AtomicBool>,
    pub(crate) limiter: Limiter,
    pub(crate) table: ResourceTable,
    pub(crate) wasi: Option<WasiCtx>,
    pub(crate) http: WasiHttpCtx,
    pub(crate) outgoing: Outgoing,
    /// The model and back-end that a call used, for its report.
    pub(crate) ran_on: Option<String>,
    /// Calls of other tasks that this one has made.
    pub(crate) invoked: u64,
}

impl Host {
    /// A store for one call, with its deadline and limits set.
    ///
    /// # Errors
    /// When a granted folder cannot be opened.
    pub(crate) fn store(
        engine: &Engine,
        plugin: Arc<PluginInfo>,
        services: Services,
        call: CallContext,
    ) -> Result<Store<Self>, TaskError> {
        let wasi = match plugin.folders.is_empty() {
            true => None,
            false => Some(wasi::prepare(&plugin)?.build()),
        };
        let allowed = time_allowed(&plugin.limits, &call);
        let mut table = ResourceTable::new();
        table.set_max_capacity(MOST_HANDLES);
        let host = Self {
            services,
            call,
            allowed,
            deadline: Instant::now() + allowed,
            long: Arc::default(),
            limiter: Limiter::new(&plugin.limits),
            table,
            wasi,
            http: WasiHttpCtx::new(),
            outgoing: Outgoing {
                grants: plugin.grants.clone(),
                refused: None,
            },
            ran_on: None,
            invoked: 0,
            plugin,
        };
        let mut store = Store::new(engine, host);
        store.limiter(|host| &mut host.limiter);
        store.epoch_deadline_callback(|store| store.data().tick());
        store.set_hostcall_fuel(store.data().plugin.most_copied());
        wind_up(&mut store)?;
        Ok(store)
    }

    /// Makes a warm instance serve another call, which has its own time and fuel.
    ///
    /// # Errors
    /// `internal` where the engine takes no fuel.
    pub(crate) fn renew(store: &mut Store<Self>, call: CallContext) -> Result<(), TaskError> {
        let host = store.data_mut();
        host.allowed = time_allowed(&host.plugin.limits, &call);
        host.deadline = Instant::now() + host.allowed;
        host.call = call;
        host.long.store(false, Ordering::Relaxed);
        host.limiter.forget_refusal();
        host.outgoing.refused = None;
        host.ran_on = None;
        host.invoked = 0;
        wind_up(store)
    }

    /// Counts what the host keeps for the guest.
    ///
    /// # Errors
    /// `limit` where that is more than as much again as the guest may have of memory.
    pub(crate) fn keep(&self, bytes: usize) -> Result<Kept, TaskError> {
        let (name, most) = (&self.plugin.name, self.plugin.limits.memory);
        let over = || {
            TaskError::limit(format!(
                "the tensors and models that `{name}` holds take over {most}"
            ))
            .with_field("limits.memory")
            .with_hint("drop what is not needed any more, or raise `limits.memory` in its manifest")
        };
        self.limiter.keep(bytes).ok_or_else(over)
    }

    /// At each tick a running guest gives way to its neighbours, until its time is over.
    fn tick(&self) -> wasmtime::Result<UpdateDeadline> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(wasmtime::Error::new(self.time_over()));
        }
        if has_just_come(self.allowed, left) {
            return Ok(UpdateDeadline::Continue(1));
        }
        self.long.store(true, Ordering::Relaxed);
        Ok(UpdateDeadline::Yield(1))
    }

    /// The time until the deadline, with the tick by which a running guest may be late.
    pub(crate) fn patience(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now()) + EPOCH_TICK
    }

    pub(crate) fn time_over(&self) -> TaskError {
        self.plugin.time_over(self.allowed)
    }

    /// An error that the plugin answered, with what the host knows of its cause.
    pub(crate) fn told(&self, error: TaskError) -> TaskError {
        use ErrorKind::{Denied, Failed, Internal, Limit, Unavailable};
        match (error.kind, &self.outgoing.refused) {
            (Limit, _) if self.limiter.refused() == Some(Refused::Memory) => {
                let memory = self.plugin.limits.memory;
                error.with_field("limits.memory").with_hint(format!(
                    "its memory is {memory}: raise `limits.memory` in its manifest"
                ))
            }
            (Failed | Denied | Unavailable | Internal, Some(grant)) => error.with_hint(format!(
                "the host denied it a request in this call: if that is why, `asks` in its manifest has to name `{grant}`, and its operator to \
                 allow it"
            )),
            (Internal, None) => {
                error.with_hint("the plugin itself is defective: correct it, or tell its author")
            }
            _ => error,
        }
    }

    /// What a trap or a failed host function means to the caller.
    pub(crate) fn explain(&self, error: &wasmtime::Error) -> TaskError {
        if let Some(error) = error.downcast_ref::<TaskError>() {
            return error.clone();
        }
        let (name, limits) = (&self.plugin.name, &self.plugin.limits);
        match self.limiter.refused() {
            Some(Refused::Memory) => {
                return TaskError::limit(format!(
                    "`{name}` needed more than its {} of memory",
                    limits.memory
                ))
                .with_field("limits.memory")
                .with_hint("raise `limits.memory` in its manifest");
            }
            Some(Refused::Table) => {
                return TaskError::limit(format!(
                    "`{name}` needed a table over {} elements",
                    limits.table_elements
                ))
                .with_field("limits.table-elements");
            }
            None => {}
        }
        if error
            .root_cause()
            .to_string()
            .starts_with("too much data is being copied")
        {
            let most = ByteSize(self.plugin.most_copied() as u64);
            return TaskError::limit(format!("`{name}` handed over more than {most} at once"))
                .with_field("limits.output")
                .with_hint("answer in smaller pieces, or raise `limits.output` in its manifest");
        }
        if let Some(ResourceTableError::Full) = error.downcast_ref() {
            return TaskError::limit(format!(
                "`{name}` holds {MOST_HANDLES} handles of the host already"
            ));
        }
        match error.downcast_ref::<Trap>() {
            Some(Trap::OutOfFuel) => {
                let fuel = limits.fuel.unwrap_or_default();
                TaskError::limit(format!("`{name}` used up its {fuel} units of fuel"))
                    .with_field("limits.fuel")
            }
            Some(Trap::Interrupt) => self.time_over(),
            Some(trap) => TaskError::failed(format!("`{name}` trapped: {trap}"))
                .with_hint("-v shows what it wrote; of a node `karman node logs` does"),
            None => TaskError::new(ErrorKind::Internal, format!("`{name}`: {}", root_cause(error))),
        }
    }
}

/// Gives a call its first tick, and its fuel where the plugin is metered.
fn wind_up(store: &mut Store<Host>) -> Result<(), TaskError> {
    store.set_epoch_deadline(1);
    let Some(fuel) = store.data().plugin.limits.fuel else {
        return Ok(());
    };
    store
        .set_fuel(fuel)
        .map_err(|error| TaskError::internal(error.to_string()))
}

/// Whether a call is younger than half a tick: that a tick meets it says nothing of how long it takes.
fn has_just_come(allowed: Duration, left: Duration) -> bool {
    allowed.saturating_sub(left) < EPOCH_TICK / 2
}

fn time_allowed(limits: &Limits, call: &CallContext) -> Duration {
    call.within.map_or(limits.time, |within| within.min(limits.time))
}

fn root_cause(error: &wasmtime::Error) -> String {
    error.chain().last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tick_says_nothing_of_a_call_that_has_just_come() {
        let allowed = Duration::from_secs(1);
        let after = |micros| has_just_come(allowed, allowed - Duration::from_micros(micros));
        assert_eq!([20, 4_999, 5_000, 10_000].map(after), [true, true, false, false]);
    }
}
