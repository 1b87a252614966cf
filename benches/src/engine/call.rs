use super::Setting;
use anyhow::Result;
use bindings::TaskPre;
use bindings::exports::karman::task::handler::Request;
use karman_engine::{Allocation, Engine, EngineOptions, Machine, Plugin};
use karman_study::pairs::{self, median};
use karman_study::report::{Report, Target};
use karman_types::{CallContext, GrantSet, Manifest, NodeId, TaskId, TaskRequest, Tier};
use std::sync::Arc;
use std::time::Instant;
use wasmtime::component::{Component, Linker};
use wasmtime::{Config, Enabled, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

const CALLS_PER_BLOCK: usize = 2_000;

/// Instantiate + call + drop with 1 KiB in, on the same component, in the same process: p50 of each block.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let bytes = std::fs::read(setting.guest("tiny")?)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let engine = Engine::new(EngineOptions::default())?;
    let plugin = engine.load(&bytes, &GrantSet::default(), |world| {
        Manifest::foreign("tiny", world)
    })?;
    let bare = Bare::new(&bytes)?;
    let ours = || runtime.block_on(ours(&plugin));
    let theirs = || runtime.block_on(bare.block());
    pairs::measure(2, ours, theirs)?;
    let pairs = pairs::measure(setting.blocks(), ours, theirs)?;
    report.figure(
        "call_us",
        median(pairs.iter().map(|pair| pair.ours).collect()),
        "us",
        Target::Shown,
    );
    report.figure(
        "bare_call_us",
        median(pairs.iter().map(|pair| pair.theirs).collect()),
        "us",
        Target::Shown,
    );
    report.ratio("call_vs_bare_wasmtime", pairs, Target::AtMost(1.3));
    Ok(())
}

/// A call that nobody in particular makes.
pub(crate) fn context() -> CallContext {
    CallContext {
        task: TaskId::from_parts(0, 0),
        attempt: 1,
        idempotency_key: None,
        within: None,
        node: NodeId::of_key(b"bench"),
        tier: Tier::Edge,
        chain: Arc::default(),
    }
}

async fn ours(plugin: &Arc<Plugin>) -> Result<f64> {
    let body = bytes::Bytes::from(vec![7; 1024]);
    let mut times = Vec::with_capacity(CALLS_PER_BLOCK);
    for _ in 0..CALLS_PER_BLOCK {
        let started = Instant::now();
        let request = TaskRequest {
            body: body.clone(),
            ..TaskRequest::default()
        };
        plugin.call(request, context()).await?;
        times.push(started.elapsed().as_secs_f64() * 1e6);
    }
    Ok(median(times))
}

#[allow(clippy::use_self, clippy::or_fun_call, reason = "generated code")]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../wit/task",
        inline: "
            package karman:bench;
            world task { export karman:task/handler@0.1.0; }
        ",
        world: "karman:bench/task",
        exports: { default: async },
    });
}

/// wasmtime as its own documentation has it for speed, on the same component: pooling, copy-on-write, generated bindings
/// over an `InstancePre`; no limits, no deadline, no host state.
struct Bare {
    engine: wasmtime::Engine,
    pre: TaskPre<()>,
}

impl Bare {
    fn new(bytes: &[u8]) -> wasmtime::Result<Self> {
        let mut config = Config::new();
        if let Allocation::Pool { slots, keeps } = Allocation::choose(&Machine::probe()) {
            let mut pool = PoolingAllocationConfig::new();
            pool.total_component_instances(slots)
                .total_memories(slots)
                .total_stacks(slots)
                .total_tables(slots);
            pool.linear_memory_keep_resident(keeps as usize)
                .table_keep_resident(16 << 10);
            pool.async_stack_keep_resident(32 << 10)
                .pagemap_scan(Enabled::Auto);
            config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
        }
        let engine = wasmtime::Engine::new(&config)?;
        let component = Component::from_binary(&engine, bytes)?;
        let mut linker = Linker::new(&engine);
        linker.define_unknown_imports_as_traps(&component)?;
        let pre = TaskPre::new(linker.instantiate_pre(&component)?)?;
        Ok(Self { engine, pre })
    }

    async fn block(&self) -> Result<f64> {
        let mut times = Vec::with_capacity(CALLS_PER_BLOCK);
        for _ in 0..CALLS_PER_BLOCK {
            let started = Instant::now();
            self.call().await?;
            times.push(started.elapsed().as_secs_f64() * 1e6);
        }
        Ok(median(times))
    }

    async fn call(&self) -> wasmtime::Result<()> {
        let request = Request {
            content_type: String::new(),
            metadata: Vec::new(),
            body: vec![7; 1024],
        };
        let mut store = Store::new(&self.engine, ());
        let task = self.pre.instantiate_async(&mut store).await?;
        let answer = task
            .karman_task_handler()
            .call_handle(&mut store, &request)
            .await?;
        answer
            .map(|_| ())
            .map_err(|error| wasmtime::format_err!("the guest answered with {error:?}"))
    }
}
