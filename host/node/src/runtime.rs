use crate::config::NodeConfig;
use crate::home::Home;
use crate::services::{ModelSource, NodeCompute, NodeModels, NodeSettings, StoreBuckets, WithGpu};
use karman_engine::capability::invoke::Invoke;
use karman_engine::{CompileCache, Engine, EngineOptions, Plugin, Services};
use karman_mesh::wall_clock;
use karman_store::NodeKeys;
use karman_types::{CallContext, GrantSet, NodeId, TaskError, TaskId, Tier};
use parking_lot::RwLock;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Everything that it takes to run a plugin on this machine: the engine, and behind it this node's store and models.
///
/// `karman run` and `karman serve` need no more; [`Node`](crate::Node) adds the plugins that stay and the listener.
#[derive(Clone)]
pub struct Runtime {
    engine: Engine,
    home: Home,
    models: Arc<NodeModels>,
    config: Arc<NodeConfig>,
    id: NodeId,
    tier: Arc<RwLock<Tier>>,
}

/// Where a runtime keeps things and what it runs itself with.
#[derive(Clone, Debug)]
pub struct RuntimeOptions {
    /// The node's folder: state and keys.
    pub state: PathBuf,
    /// Where compiled code is kept.
    pub cache: PathBuf,
    /// This program, to try drivers in a child process.
    pub program: Option<PathBuf>,
}

impl Runtime {
    /// Sets the engine up over the node's folder, which is not opened before something in it is needed.
    ///
    /// # Errors
    /// `internal` when the engine cannot start or the node's keys cannot be read.
    pub fn new(
        config: NodeConfig,
        options: RuntimeOptions,
        invoke: Option<Arc<dyn Invoke>>,
    ) -> Result<Self, TaskError> {
        let internal = |error: &dyn std::fmt::Display| TaskError::internal(error.to_string());
        let home = Home::with_limits(options.state, config.store.clone());
        let keys = NodeKeys::open(home.folder());
        let keys = keys.map_err(|error| TaskError::new(error.kind(), error.to_string()))?;
        let source = ModelSource {
            backend: config.backend,
            onnxruntime: config.onnxruntime.clone(),
            program: options.program.clone(),
            limits: config.models.clone(),
            pace: config.compute.clone(),
            batches: config.batches.clone(),
        };
        // Without one the lines go to the terminal of who runs the plugin, and none is lost.
        let in_a_node = invoke.is_some();
        let tiles = options.cache.join("gpu-tiles.json");
        let compute = NodeCompute::new(config.gpu.clone(), options.program, tiles);
        let models = NodeModels::new(home.clone(), source, compute.clone());
        let services = Services {
            invoke,
            compute: Some(compute.shared()),
            models: Some(Arc::new(WithGpu::new(models.clone(), compute))),
            buckets: Some(Arc::new(StoreBuckets(home.clone()))),
            settings: Some(Arc::new(NodeSettings {
                home: home.clone(),
                values: config.config.clone(),
            })),
            progress: None,
        };
        let cache = CompileCache::open(&options.cache, *keys.mac())
            .inspect_err(
                |error| tracing::warn!(folder = %options.cache.display(), %error, "no compile cache"),
            )
            .ok();
        let engine = Engine::new(EngineOptions {
            cache,
            services,
            ceiling: Some(config.ceiling()),
            policy_instances: Some(config.policies.instances.get()),
            trusted: config.signed_only.then(|| config.trusted_keys.clone()),
            limit_logs: in_a_node,
            ..EngineOptions::default()
        })
        .map_err(|error| internal(&error))?;
        Ok(Self {
            engine,
            home,
            models,
            id: keys.node().id(),
            tier: Arc::new(RwLock::new(config.tier.unwrap_or_default())),
            config: Arc::new(config),
        })
    }

    /// Loads a component: verifies, compiles or takes from the cache, links. Blocks.
    ///
    /// `name` is what a foreign component is called; `allowed` is what the operator allows besides the defaults.
    ///
    /// # Errors
    /// Those of [`karman_engine::LoadError`]; `denied` where it would see the node's own folder.
    pub fn load(&self, bytes: &[u8], name: &str, allowed: &GrantSet) -> Result<Arc<Plugin>, TaskError> {
        let allowed = self.allowed(name, allowed);
        let plugin = self
            .engine
            .load(bytes, &allowed, |world| self.config.foreign(name, world))?;
        self.home.must_not_be_granted(plugin.grants().iter())?;
        if plugin
            .package()
            .imports
            .iter()
            .any(|import| import.starts_with("wasi:nn/"))
        {
            // Looking for drivers takes a tenth of a second, which would otherwise count against the first call.
            self.models.backends();
        }
        Ok(plugin)
    }

    /// All that is allowed to a plugin of this name, the defaults and what `node.toml` gives it included.
    pub(crate) fn allowed(&self, name: &str, allowed: &GrantSet) -> GrantSet {
        let defaults = self.config.default_grants();
        let allowed = defaults.iter().chain(allowed.iter());
        allowed.chain(self.foreign_grants(name)).cloned().collect()
    }

    /// What `node.toml` gives to a foreign component stands for the operator's word.
    fn foreign_grants(&self, name: &str) -> impl Iterator<Item = &karman_types::Grant> {
        self.config
            .foreign_entry(name)
            .into_iter()
            .flat_map(|foreign| foreign.grants.iter())
    }

    /// The context of a call that begins here.
    pub fn context(&self, within: Option<Duration>) -> CallContext {
        let now = wall_clock();
        CallContext {
            task: TaskId::from_parts(now.as_millis() as u64, unguessable()),
            attempt: 1,
            idempotency_key: None,
            within,
            node: self.id,
            tier: self.tier(),
            chain: Arc::default(),
        }
    }

    /// Where the node stands, as it is told to tasks.
    pub fn tier(&self) -> Tier {
        *self.tier.read()
    }

    /// Its membership says where it stands. Judging that takes longer than a small task, so that no call does.
    pub(crate) fn stands(&self, tier: Tier) {
        *self.tier.write() = tier;
    }

    /// The engine.
    pub const fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The node's folder.
    pub const fn home(&self) -> &Home {
        &self.home
    }

    /// The node's models.
    pub const fn models(&self) -> &Arc<NodeModels> {
        &self.models
    }

    /// The node's configuration.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// The node's id.
    pub const fn id(&self) -> NodeId {
        self.id
    }
}

/// Whoever knows the id of a task may ask for its result.
fn unguessable() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    u128::from_le_bytes(bytes)
}
