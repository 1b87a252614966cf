use crate::cache::CompiledFrom;
use crate::capability::bindings::federated::ClientPre;
use crate::capability::bindings::lifecycle::LifecycleIndices;
use crate::capability::bindings::place::PlacePre;
use crate::capability::bindings::policy::SelectPre;
use crate::capability::bindings::route::RoutePre;
use crate::capability::bindings::strategy::StrategyPre;
use crate::capability::bindings::stream::TaskStreamPre;
use crate::capability::bindings::task::TaskIndices;
use crate::capability::wasi::Folder;
use crate::engine::Engine;
use crate::host::{Host, PluginInfo};
use crate::http::HttpInstances;
use crate::log_limit::LogLimit;
use crate::policy::Sandbox;
use crate::stats::Stats;
use crate::warm::WarmInstances;
use karman_package::{Identity, Package};
use karman_types::{CallContext, ErrorKind, GrantSet, Limits, Manifest, TaskError, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wasmtime::Store;
use wasmtime::component::InstancePre;
use wasmtime_wasi_http::handler::ProxyPre;

/// How many calls may wait for each one that may run; one more is refused.
const WAITING_PER_RUNNING: usize = 4;
/// The field of the error of a call that found no place.
const CONCURRENCY: &str = "limits.concurrency";

/// A plugin that is ready to be called. Calls in flight keep it alive after it was replaced.
pub struct Plugin {
    pub(crate) engine: Engine,
    pub(crate) info: Arc<PluginInfo>,
    pub(crate) export: Export,
    pub(crate) warm: WarmInstances,
    pub(crate) stats: Stats,
    manifest: Manifest,
    package: Package,
    compiled_from: CompiledFrom,
    running: Arc<Semaphore>,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// What a plugin exports, ready to be instantiated.
pub(crate) enum Export {
    Task {
        pre: InstancePre<Host>,
        handler: TaskIndices,
        lifecycle: Option<LifecycleIndices>,
    },
    Stream(TaskStreamPre<Host>),
    Client(ClientPre<Host>),
    /// It has a linker of its own: next to nothing can be reached from it.
    Select(SelectPre<Sandbox>),
    /// The same.
    Route(RoutePre<Sandbox>),
    /// The same.
    Place(PlacePre<Sandbox>),
    /// The same.
    Strategy(StrategyPre<Sandbox>),
    Command(InstancePre<Host>),
    Http {
        pre: ProxyPre<Host>,
        instances: HttpInstances,
    },
}

impl Export {
    /// What a package exports, linked with what plugins may reach.
    pub(crate) fn of(
        package: &Package,
        manifest: &Manifest,
        pre: InstancePre<Host>,
    ) -> wasmtime::Result<Self> {
        Ok(match package.world {
            World::Task => Self::Task {
                handler: TaskIndices::new(&pre)?,
                lifecycle: package
                    .lifecycle
                    .then(|| LifecycleIndices::new(&pre))
                    .transpose()?,
                pre,
            },
            World::TaskStream => Self::Stream(TaskStreamPre::new(pre)?),
            World::Client => Self::Client(ClientPre::new(pre)?),
            World::Command => Self::Command(pre),
            World::Http => Self::http(pre, manifest)?,
            World::PolicySelect | World::PolicyRoute | World::PolicyPlace | World::Strategy => {
                wasmtime::bail!("{} is linked on its own", package.world)
            }
        })
    }

    /// The same for what reaches nothing; none of another world.
    pub(crate) fn apart(world: World, pre: InstancePre<Sandbox>) -> wasmtime::Result<Self> {
        match world {
            World::PolicySelect => SelectPre::new(pre).map(Self::Select),
            World::PolicyRoute => RoutePre::new(pre).map(Self::Route),
            World::PolicyPlace => PlacePre::new(pre).map(Self::Place),
            World::Strategy => StrategyPre::new(pre).map(Self::Strategy),
            _ => wasmtime::bail!("{world} is linked with what plugins may reach"),
        }
    }
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Plugin({} {}, {})",
            self.manifest.name,
            self.manifest.version,
            self.package.id.short()
        )
    }
}

/// A report on one call.
#[derive(Clone, Debug, Default)]
pub struct CallReport {
    /// From the acceptance of the call to its end.
    pub took: Duration,
    /// The most bytes of linear memory in use.
    pub memory_peak: u64,
    /// Fuel used, where the plugin is metered.
    pub fuel: u64,
    /// The model and back-end that it used first, if it used one: `digits-m (onnxruntime, cpu)`.
    pub ran_on: Option<String>,
}

impl Plugin {
    pub(crate) fn new(
        engine: Engine,
        package: Package,
        manifest: Manifest,
        allowed: &GrantSet,
        (export, compiled_from): (Export, CompiledFrom),
    ) -> Arc<Self> {
        let asked: GrantSet = manifest.permissions().cloned().collect();
        let grants = Arc::new(asked.intersection(allowed));
        let info = PluginInfo {
            name: manifest.name.clone(),
            folders: Folder::of(&grants, allowed),
            grants,
            limits: manifest.limits.clone(),
            log: Arc::new(LogLimit::new(engine.limits_logs())),
        };
        let has_state = matches!(
            export,
            Export::Task {
                lifecycle: Some(_),
                ..
            }
        );
        // State lives in one instance: a second one would have another state.
        let concurrency = if manifest.warm && has_state {
            1
        } else {
            manifest.limits.concurrency as usize
        };
        Arc::new(Self {
            engine,
            info: Arc::new(info),
            export,
            warm: WarmInstances::new(manifest.warm),
            stats: Stats::default(),
            manifest,
            package,
            compiled_from,
            running: Arc::new(Semaphore::new(concurrency)),
            waiting: AtomicUsize::new(0),
            most_waiting: concurrency.saturating_mul(WAITING_PER_RUNNING).max(64),
        })
    }

    /// What it says of itself, or what was said for it.
    pub const fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The file it came from.
    pub const fn package(&self) -> &Package {
        &self.package
    }

    /// What its grants and state belong to.
    pub fn identity(&self) -> Identity {
        self.package.identity()
    }

    /// What it holds: what it asked for and the operator allows.
    pub fn grants(&self) -> &GrantSet {
        &self.info.grants
    }

    /// What it may use.
    pub fn limits(&self) -> &Limits {
        &self.info.limits
    }

    /// What it has done so far.
    pub const fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Where its compiled code came from.
    pub const fn compiled_from(&self) -> CompiledFrom {
        self.compiled_from
    }

    /// Whether this is the error of a call that found no place: it did not run, and does where there is one.
    pub fn was_full(error: &TaskError) -> bool {
        error.kind == ErrorKind::Limit && error.field.as_deref() == Some(CONCURRENCY)
    }

    /// Idle instances that it could do without: state that would be lost with one is kept.
    pub(crate) fn idle(&self) -> usize {
        match &self.export {
            Export::Http { instances, .. } => instances.idle().len(),
            Export::Task { lifecycle: None, .. } => self.warm.idle().len(),
            _ => 0,
        }
    }

    /// Gives up the one that has waited longest.
    pub(crate) fn give_up_one(&self) {
        match &self.export {
            Export::Http { instances, .. } => drop(instances.idle().give_up()),
            Export::Task { lifecycle: None, .. } => drop(self.warm.idle().give_up()),
            _ => {}
        }
    }

    /// Waits for a place among the calls that may run at once. What is waited here is no longer among the time that the call has.
    pub(crate) async fn enter(self: &Arc<Self>, context: &mut CallContext) -> Result<Entered, TaskError> {
        self.check_circle(context)?;
        let started = Instant::now();
        let running = match self.running.clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                let most = self.info.limits.concurrency as usize;
                self.wait(&self.running, most, context).await?
            }
        };
        let live = match self.engine.live().clone().try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => {
                self.wait(self.engine.live(), self.engine.most_live(), context)
                    .await?
            }
        };
        self.stats.started();
        Ok(Entered {
            plugin: self.clone(),
            started,
            ended: false,
            _running: running,
            _live: live,
        })
    }

    async fn wait(
        &self,
        places: &Arc<Semaphore>,
        count: usize,
        context: &mut CallContext,
    ) -> Result<OwnedSemaphorePermit, TaskError> {
        let name = &self.info.name;
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= self.most_waiting {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            return Err(full(format!(
                "{count} calls of `{name}` run and {} wait already",
                self.most_waiting
            )));
        }
        let _waiting = Waiting(&self.waiting);
        let most = self.info.limits.time;
        let patience = context.within.map_or(most, |within| within.min(most));
        let says = || format!("no place among the {count} running calls of `{name}` in time");
        let began = Instant::now();
        match tokio::time::timeout(patience, places.clone().acquire_owned()).await {
            Ok(Ok(permit)) => {
                let left = |within: Duration| within.saturating_sub(began.elapsed());
                context.within = context.within.map(left);
                Ok(permit)
            }
            // Whose own time is over has no use for a place elsewhere.
            _ if context.within == Some(patience) => Err(TaskError::deadline(says())),
            _ => Err(full(says())),
        }
    }

    /// No plugin serves a call that it made itself, by whatever name it asked for it.
    fn check_circle(&self, context: &CallContext) -> Result<(), TaskError> {
        let name = &*self.info.name;
        if !context.chain.iter().any(|earlier| &**earlier == name) {
            return Ok(());
        }
        let path: Vec<_> = context.chain.iter().map(|name| &**name).collect();
        Err(
            TaskError::invalid(format!("cyclic call: {} -> {name}", path.join(" -> ")))
                .with_hint("a task may not call itself through others; pass the result on instead"),
        )
    }
}

fn full(says: String) -> TaskError {
    TaskError::limit(says)
        .with_field(CONCURRENCY)
        .with_hint("try again later, or raise `limits.concurrency`")
}

struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A call that runs: its place, and its entry in the books when it ends, however it ends.
pub(crate) struct Entered {
    plugin: Arc<Plugin>,
    started: Instant,
    ended: bool,
    _running: OwnedSemaphorePermit,
    _live: OwnedSemaphorePermit,
}

impl Entered {
    /// Books the end of the call and reports it. The place is free when this is dropped.
    pub(crate) fn end(&mut self, store: Option<&Store<Host>>, error: Option<&TaskError>) -> CallReport {
        self.ended = true;
        let took = self.started.elapsed();
        let memory_peak = store.map_or(0, |store| store.data().limiter.memory_peak());
        let fuel = match (self.plugin.info.limits.fuel, store) {
            (Some(given), Some(store)) => given - store.get_fuel().unwrap_or(given).min(given),
            _ => 0,
        };
        self.plugin.stats.used(memory_peak, fuel);
        self.plugin.stats.ended(took, error);
        CallReport {
            took,
            memory_peak: memory_peak as u64,
            fuel,
            ran_on: store.and_then(|store| store.data().ran_on.clone()),
        }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if !self.ended {
            let cancelled = TaskError::cancelled("the caller went away");
            self.plugin.stats.ended(self.started.elapsed(), Some(&cancelled));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_plugin_is_told_from_one_that_reached_another_limit() {
        let memory = TaskError::limit("too much").with_field("limits.memory");
        let zero = TaskError::invalid("it is 0").with_field(CONCURRENCY);
        let found = [full("no place".into()), memory, zero].map(|error| Plugin::was_full(&error));
        assert_eq!(found, [true, false, false]);
    }
}
