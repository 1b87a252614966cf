//! What it costs to run a model through Karman: on one node against ONNX Runtime called directly, over two nodes against what
//! computing and sending take by themselves, and as a pipeline of three against its slowest stage. All with the same library, threads and
//! options, everything in one run.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `infer_vs_onnxruntime.MODEL.tN` | 300 alternated pairs (MobileNetV2: 1,200) over six loads of both sides, N threads: `compute` of `wasi:nn` as a sandboxed plugin sees it, from a tensor in host memory to an output in host memory, over ONNX Runtime's C interface (through the thin bindings of `ort`, input and output left where they are) | 1.03 |
//! | `infer_vs_onnxruntime` | the worst of these | 1.03 |
//! | `infer_added_us.digits-l` | a model under 1 ms: what that takes longer | 50 us |
//! | `whole_call_vs_onnxruntime.MODEL.tN`, `whole_call_added_us.digits-l` | the same for the whole call of the plugin: an instance of its own, the input's bytes copied into its memory and out again to a tensor, the output's likewise | shown |
//! | `split_vs_compute_plus_wire.MODEL` | a request over two nodes on loopback, cut in the middle of its time, over its two fragments called directly plus the same bytes there over bare quinn | 1.05 |
//! | `split_vs_by_hand.MODEL` | the same request over the same two fragments in two processes written for nothing else: the first one runs its fragment and sends the bytes over bare quinn, the second one runs its own and sends back what that gives; on the threads that the network is on or in their place, whichever is faster | 1.05 |
//! | `pipeline_vs_slowest_stage` | results per second of three nodes on emulated tiers (16, 12 and 8 times slower than the machine), four requests for each stage under way, over those of the slowest stage's fragment alone on its node with as many | 0.9 |
//! | `pipeline_busy.STAGE`, `pipeline_stage_ms.STAGE`, `pipeline_stage_alone_ms` | for how much of the time each stage was busy, what it took, and what one result of the slowest took alone | shown |
//! | `pipeline_cpu_demand` | cores in use meanwhile, load generator included | 1.6 |

mod alone;
mod direct;
mod nodes;
mod pipeline;
mod wire;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{LoadOptions, ModelLimits, OnnxRuntime, SearchPlaces};
use karman_study::machine::beside_us;
use karman_study::report::Report;
use karman_types::ByteSize;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// What all parts of the study share.
pub(crate) struct Setting {
    karman: PathBuf,
    guest: Vec<u8>,
    library: OnnxRuntime,
    pub(crate) quick: bool,
    pub(crate) runtime: Runtime,
    folder: TempDir,
}

pub(crate) fn run(quick: bool) -> Result<Report> {
    let guest = "target/guests/infer.wasm";
    let setting = Setting {
        karman: beside_us("karman")?,
        guest: std::fs::read(guest)
            .with_context(|| format!("{guest} is missing; run `cargo xtask guests infer` first"))?,
        library: library()?,
        quick,
        runtime: Runtime::new()?,
        folder: tempfile::tempdir()?,
    };
    eprintln!("{:?}", setting.library);
    let mut report = Report::new("infer");
    report.register(
        alone::cells()
            .into_iter()
            .chain(wire::cells())
            .chain(pipeline::cells()),
    );
    wire::run(&setting, &mut report)?;
    pipeline::run(&setting, &mut report)?;
    alone::run(&setting, &mut report)?;
    Ok(report)
}

/// ONNX Runtime from `KARMAN_ONNXRUNTIME`, or wherever it lies.
pub(crate) fn library() -> Result<OnnxRuntime> {
    let named = std::env::var_os("KARMAN_ONNXRUNTIME").map(PathBuf::from);
    let found = named.or_else(|| SearchPlaces::from_env().find().into_iter().next());
    let path = found
        .context("no ONNX Runtime here: `pip install onnxruntime`, or name it with KARMAN_ONNXRUNTIME")?;
    Ok(OnnxRuntime::load(&path)?)
}

impl Setting {
    /// A folder of its own in that of the study.
    fn place(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    const fn pairs(&self) -> usize {
        if self.quick { 20 } else { 300 }
    }
}

/// A network of the zoo at its true size.
fn network(architecture: Architecture) -> Result<Bytes> {
    let file = architecture.generate(&Variant::default());
    ensure!(!file.is_empty(), "{architecture} was not made");
    Ok(file)
}

/// Room for VGG16.
fn limits() -> ModelLimits {
    ModelLimits {
        model: ByteSize::gib(1),
        constants: ByteSize::gib(1),
        tensor: ByteSize::gib(1),
        run: ByteSize::gib(8),
        ..ModelLimits::default()
    }
}

pub(crate) fn options(threads: usize) -> Result<LoadOptions> {
    Ok(LoadOptions {
        threads: NonZeroUsize::new(threads).context("no threads")?,
        limits: limits(),
        ..LoadOptions::default()
    })
}
