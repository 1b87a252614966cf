use crate::allocation::{Allocation, Machine};
use crate::cache::{CompileCache, CompiledFrom};
use crate::capability::{self, Services};
use crate::compile;
use crate::epoch::EpochClock;
use crate::error::LoadError;
use crate::host::Host;
use crate::idle::IdlePlaces;
use crate::plugin::{Export, Plugin};
use crate::policy;
use crate::workers::Workers;
use karman_package::{Package, PublicKey, ReadLimits};
use karman_types::{Digest, GrantSet, Limits, Manifest, World};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, OptLevel};

/// The stack of one guest, of which compiled code may use three quarters; host functions run on the rest.
const STACK_BYTES: usize = 1 << 20;

/// The options of an engine.
#[derive(Clone, Default)]
pub struct EngineOptions {
    /// Where compiled code is kept; without it every load compiles.
    pub cache: Option<CompileCache>,
    /// What plugins reach outside the engine.
    pub services: Services,
    /// How instances get their memory; chosen from the machine when not said.
    pub allocation: Option<Allocation>,
    /// Threads for long calls; one for each core when not said.
    pub workers: Option<usize>,
    /// Instances of policies that may run at once; [`policy::DEFAULT_INSTANCES`] when not said.
    pub policy_instances: Option<u16>,
    /// Whether what plugins write into the log is limited: to 100 lines and 64 KiB in a second, ten times that at once.
    pub limit_logs: bool,
    /// The most that a plugin may ask for; [`Limits::ceiling`] when not said.
    pub ceiling: Option<Limits>,
    /// With keys here, only plugins signed by one of them load.
    pub trusted: Option<Vec<PublicKey>>,
}

/// Compiles, links and runs plugins. Cheap to clone; one per process is enough.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    plain: Wasm,
    metered: OnceLock<Wasm>,
    policies: OnceLock<wasmtime::Engine>,
    policy_places: Arc<Semaphore>,
    aggregating: Mutex<()>,
    clock: EpochClock,
    allocation: Allocation,
    options: EngineOptions,
    ceiling: Limits,
    live: Arc<Semaphore>,
    idle: IdlePlaces,
    workers: Arc<Workers>,
}

/// One wasmtime engine with every interface linked.
pub(crate) struct Wasm {
    pub(crate) engine: wasmtime::Engine,
    pub(crate) linker: Linker<Host>,
}

/// An engine that could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("the Wasm engine cannot start: {0}")]
pub struct EngineError(String);

impl Engine {
    /// Sets an engine up. Reserves address space, starts the epoch clock.
    ///
    /// # Errors
    /// When neither a pool nor allocation on demand fits this machine, or threads cannot be started.
    pub fn new(options: EngineOptions) -> Result<Self, EngineError> {
        let clock = EpochClock::start().map_err(|error| EngineError(error.to_string()))?;
        let wanted = options
            .allocation
            .unwrap_or_else(|| Allocation::choose(&Machine::probe()));
        let (plain, allocation) = Wasm::fitting(wanted)?;
        clock.add(&plain.engine);
        let idle = IdlePlaces::of(allocation.slots());
        tracing::info!(%allocation, "Wasm engine ready");
        Ok(Self(Arc::new(Inner {
            plain,
            metered: OnceLock::new(),
            policies: OnceLock::new(),
            policy_places: Arc::new(Semaphore::new(policy_instances(&options))),
            aggregating: Mutex::default(),
            allocation,
            ceiling: options.ceiling.clone().unwrap_or_else(Limits::ceiling),
            live: Arc::new(Semaphore::new(most_live(allocation, &idle))),
            idle,
            workers: Arc::new(Workers::new(options.workers, clock.runs().clone())),
            clock,
            options,
        })))
    }

    /// Reads, verifies, compiles (or takes from the cache) and links a component. Blocks for as long as compiling takes:
    /// seconds for a Python or JavaScript component that is not in the cache.
    ///
    /// `allowed` is what the operator allows; the plugin holds what it asks for *and* is allowed. `foreign` gives
    /// the manifest for a component that brings none.
    ///
    /// # Errors
    /// See [`LoadError`]; nothing is compiled before the signature and the manifest have been checked.
    pub fn load(
        &self,
        bytes: &[u8],
        allowed: &GrantSet,
        foreign: impl FnOnce(World) -> Manifest,
    ) -> Result<Arc<Plugin>, LoadError> {
        let package = Package::read(bytes, &ReadLimits::default())?;
        let manifest = package.manifest.clone().unwrap_or_else(|| foreign(package.world));
        self.check_trust(&package, &manifest)?;
        if let Some((limit, asked, most)) = self.over(package.world, &manifest.limits) {
            return Err(LoadError::OverLimit {
                name: manifest.name,
                limit,
                asked,
                most,
            });
        }
        let link = |error: wasmtime::Error| LoadError::Link(format!("{error:#}"));
        let linked = if package.world.decides() {
            let engine = self.policies()?;
            let (component, from) = self.compile(engine, package.id, bytes)?;
            let pre = policy::link(engine, &component).map_err(link)?;
            (Export::apart(package.world, pre).map_err(link)?, from)
        } else {
            let wasm = self.wasm_for(&manifest)?;
            let (component, from) = self.compile(&wasm.engine, package.id, bytes)?;
            let pre = wasm.linker.instantiate_pre(&component).map_err(link)?;
            (Export::of(&package, &manifest, pre).map_err(link)?, from)
        };
        let plugin = Plugin::new(self.clone(), package, manifest, allowed, linked);
        self.0.idle.add(&plugin);
        Ok(plugin)
    }

    /// How instances get their memory here.
    pub fn allocation(&self) -> Allocation {
        self.0.allocation
    }

    fn check_trust(&self, package: &Package, manifest: &Manifest) -> Result<(), LoadError> {
        let Some(trusted) = &self.0.options.trusted else {
            return Ok(());
        };
        let name = manifest.name.clone();
        match &package.publisher {
            None => Err(LoadError::Unsigned { name }),
            Some(key) if !trusted.contains(key) => Err(LoadError::Untrusted { name, key: *key }),
            Some(_) => Ok(()),
        }
    }

    /// Fuel is counted by compiled code, so a metered plugin is compiled by an engine of its own.
    fn wasm_for(&self, manifest: &Manifest) -> Result<&Wasm, LoadError> {
        if manifest.limits.fuel.is_none() {
            return Ok(&self.0.plain);
        }
        if let Some(metered) = self.0.metered.get() {
            return Ok(metered);
        }
        let metered = Wasm::new(Allocation::OnDemand { slots: 0 }, true)
            .map_err(|error| LoadError::Link(format!("{error:#}")))?;
        Ok(self.0.metered.get_or_init(|| {
            self.0.clock.add(&metered.engine);
            metered
        }))
    }

    /// Policies and strategies are compiled so that they do the same everywhere, and run without a clock.
    fn policies(&self) -> Result<&wasmtime::Engine, LoadError> {
        if let Some(engine) = self.0.policies.get() {
            return Ok(engine);
        }
        let engine = policy::engine().map_err(|error| LoadError::Link(format!("{error:#}")))?;
        Ok(self.0.policies.get_or_init(|| engine))
    }

    fn compile(
        &self,
        engine: &wasmtime::Engine,
        id: Digest,
        bytes: &[u8],
    ) -> Result<(Component, CompiledFrom), LoadError> {
        match &self.0.options.cache {
            Some(cache) => cache.load(engine, id, bytes),
            None => Ok((compile::compile(engine, bytes)?, CompiledFrom::Source)),
        }
    }

    pub(crate) fn limits_logs(&self) -> bool {
        self.0.options.limit_logs
    }

    pub(crate) fn services(&self) -> &Services {
        &self.0.options.services
    }

    pub(crate) fn workers(&self) -> &Arc<Workers> {
        &self.0.workers
    }

    /// The first of these limits that lies over what a plugin of this world may ask for: its name, what is asked, what is allowed.
    pub(crate) fn over(&self, world: World, limits: &Limits) -> Option<(&'static str, String, String)> {
        let fuel = || policy::over(world, limits);
        limits.over(&self.0.ceiling).or_else(fuel)
    }

    /// Instances of policies that may run at once.
    pub(crate) fn policy_instances(&self) -> usize {
        policy_instances(&self.0.options)
    }

    /// Instances of policies that may still be made.
    pub(crate) fn policy_places(&self) -> &Arc<Semaphore> {
        &self.0.policy_places
    }

    /// Held by the strategy that closes a round.
    pub(crate) fn aggregating(&self) -> &Mutex<()> {
        &self.0.aggregating
    }

    /// Instances that may still be made for calls.
    pub(crate) fn live(&self) -> &Arc<Semaphore> {
        &self.0.live
    }

    /// Instances that calls may have at once.
    pub(crate) fn most_live(&self) -> usize {
        most_live(self.0.allocation, &self.0.idle)
    }

    /// Those of all plugins that wait for their next call.
    pub(crate) fn idle(&self) -> &IdlePlaces {
        &self.0.idle
    }
}

/// The places that are not kept for instances that wait.
const fn most_live(allocation: Allocation, idle: &IdlePlaces) -> usize {
    allocation.slots() as usize - idle.most()
}

fn policy_instances(options: &EngineOptions) -> usize {
    options
        .policy_instances
        .unwrap_or(policy::DEFAULT_INSTANCES)
        .into()
}

impl Wasm {
    /// With this allocation, or on demand when so much address space is not to be had after all.
    fn fitting(wanted: Allocation) -> Result<(Self, Allocation), EngineError> {
        match Self::new(wanted, false) {
            Ok(wasm) => Ok((wasm, wanted)),
            Err(error) => {
                let smaller = Allocation::OnDemand {
                    slots: wanted.slots().min(256),
                };
                tracing::warn!(%wanted, %error, "allocation does not fit; taking `{smaller}`");
                let wasm = Self::new(smaller, false).map_err(|error| EngineError(format!("{error:#}")))?;
                Ok((wasm, smaller))
            }
        }
    }

    fn new(allocation: Allocation, metered: bool) -> wasmtime::Result<Self> {
        let mut config = Config::new();
        config
            .cranelift_opt_level(OptLevel::Speed)
            .epoch_interruption(true)
            .consume_fuel(metered)
            .memory_init_cow(true)
            .async_stack_size(STACK_BYTES)
            .max_wasm_stack(STACK_BYTES / 4 * 3)
            .wasm_component_model_async(true)
            .wasm_component_model_more_async_builtins(true)
            .wasm_component_model_async_stackful(true);
        allocation.apply(&mut config);
        let engine = wasmtime::Engine::new(&config)?;
        let mut linker = Linker::new(&engine);
        capability::link(&mut linker)?;
        Ok(Self { engine, linker })
    }
}
