//! One node: a sandboxed plugin that asks for an inference, against the library called directly.

use super::direct::Direct;
use super::{Setting, limits, network};
use crate::engine::context;
use crate::given;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use karman_engine::Plugin;
use karman_infer::graph::Graph;
use karman_infer::zoo::Architecture;
use karman_infer::{Dim, TensorInfo};
use karman_node::{BackendChoice, ComputeProfile, NodeConfig, Runtime, RuntimeOptions};
use karman_study::interval::bootstrap;
use karman_study::pairs::{self, Pair, median};
use karman_study::report::{Report, Target};
use karman_types::{Grant, GrantSet, TaskRequest};
use std::cell::RefCell;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

/// Networks, and how many times as many pairs they take: the shorter a run, the more it varies from one to the next.
const NETWORKS: [(Architecture, usize); 3] = [
    (Architecture::MobileNetV2, 4),
    (Architecture::ResNet50, 1),
    (Architecture::Vgg16, 1),
];
const THREADS: [usize; 2] = [1, 2];
/// A model that takes less than a millisecond.
const SMALL: &str = "digits-l";
const WARM_UP: usize = 10;
/// How often both sides load the model anew, in turn the one first and the other: where weights come to lie in memory is worth some percent,
/// and stays so for as long as they are loaded.
const LOADS: usize = 6;

pub(super) fn cells() -> Vec<String> {
    let each = NETWORKS
        .iter()
        .flat_map(|(network, _)| THREADS.map(|threads| key(*network, threads)));
    let others = [
        "infer_vs_onnxruntime".to_owned(),
        format!("infer_added_us.{SMALL}"),
    ];
    each.chain(others).collect()
}

fn key(network: Architecture, threads: usize) -> String {
    format!("infer_vs_onnxruntime.{network}.t{threads}")
}

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    added(setting, report)?;
    let mut worst: Option<Vec<Pair>> = None;
    for (architecture, times) in NETWORKS {
        let file = network(architecture)?;
        for threads in THREADS {
            let name = format!("{architecture}-{threads}");
            let Compared { whole, pairs } = compare(setting, &name, &file, threads, times * setting.pairs())?;
            let ratio = |pairs: &Vec<Pair>| pairs::ratio(pairs).value;
            if worst.as_ref().is_none_or(|worst| ratio(worst) < ratio(&pairs)) {
                worst = Some(pairs.clone());
            }
            let ms = median(pairs.iter().map(|pair| pair.theirs * 1e3).collect());
            report.figure(
                &format!("onnxruntime_ms.{architecture}.t{threads}"),
                ms,
                "ms",
                Target::Shown,
            );
            report.ratio(&key(architecture, threads), pairs, Target::AtMost(1.03));
            let key = format!("whole_call_vs_onnxruntime.{architecture}.t{threads}");
            report.ratio(&key, whole, Target::Shown);
        }
    }
    report.ratio(
        "infer_vs_onnxruntime",
        worst.context("no network was run")?,
        Target::AtMost(1.03),
    );
    Ok(())
}

/// What a call adds to a model that takes less than a millisecond.
fn added(setting: &Setting, report: &mut Report) -> Result<()> {
    let file = given::read(&format!("tests/models/{SMALL}.onnx"))?;
    let Compared { whole, pairs } = compare(setting, SMALL, &file, 1, 10 * setting.pairs())?;
    let mut row = |key: &str, pairs: &[Pair], target| {
        let added: Vec<f64> = pairs.iter().map(|pair| (pair.ours - pair.theirs) * 1e6).collect();
        let key = format!("{key}.{SMALL}");
        report.estimate(
            &key,
            bootstrap(&added, |added| median(added.to_vec())),
            "us",
            target,
        );
        report.keep_raw(&key, &pairs);
    };
    row("infer_added_us", &pairs, Target::AtMost(50.0));
    row("whole_call_added_us", &whole, Target::Shown);
    Ok(())
}

/// Seconds of ours and of theirs, pair by pair: of the whole call of the plugin, and of what it saw of `wasi:nn`.
struct Compared {
    whole: Vec<Pair>,
    pairs: Vec<Pair>,
}

fn compare(setting: &Setting, name: &str, file: &[u8], threads: usize, number: usize) -> Result<Compared> {
    let (mut whole, mut pairs) = (Vec::new(), Vec::new());
    for load in 0..LOADS {
        let mut case = Case::new(setting, name, file, threads)?;
        if load % 2 == 1 {
            // A node loads a model when it is called for the first time.
            case.ours()?;
        }
        case.direct = Some(Direct::load(&setting.library, file, threads)?);
        let compared = compare_loaded(case, number.div_ceil(LOADS)).context(name.to_owned())?;
        whole.extend(compared.whole);
        pairs.extend(compared.pairs);
    }
    Ok(Compared { whole, pairs })
}

fn compare_loaded(mut case: Case<'_>, number: usize) -> Result<Compared> {
    let (answer, _, _) = case.ours()?;
    let theirs = case.theirs(le_bytes)?.1;
    ensure!(answer == theirs, "the two do not give the same");
    let case = RefCell::new(case);
    let inside = RefCell::new(Vec::new());
    let ours = || {
        let (_, whole, compute) = case.borrow_mut().ours()?;
        inside.borrow_mut().push(compute);
        Ok(whole)
    };
    let theirs = || {
        Ok(case
            .borrow_mut()
            .theirs(|output| std::hint::black_box(output[0]))?
            .0)
    };
    pairs::measure(WARM_UP, ours, theirs)?;
    inside.borrow_mut().clear();
    let whole = pairs::measure(number, ours, theirs)?;
    let inside = inside.into_inner();
    let of_compute = |(pair, ours): (&Pair, f64)| Pair { ours, ..*pair };
    Ok(Compared {
        pairs: whole.iter().zip(inside).map(of_compute).collect(),
        whole,
    })
}

/// One model on both sides, with an input.
struct Case<'a> {
    setting: &'a Setting,
    plugin: Arc<Plugin>,
    direct: Option<Direct>,
    metadata: Vec<(String, String)>,
    elements: Vec<f32>,
    body: Bytes,
    shape: Vec<i64>,
}

impl<'a> Case<'a> {
    fn new(setting: &'a Setting, name: &str, file: &[u8], threads: usize) -> Result<Self> {
        let graph = Graph::read(file.to_vec(), &limits())?;
        let first = graph.inputs().first().context("a model has an input")?;
        let input = graph.edges()[*first].info.clone();
        let dims = shape(&input);
        let mut rng = fastrand::Rng::with_seed(7);
        let elements: Vec<f32> = (0..dims.iter().product::<u32>()).map(|_| rng.f32()).collect();
        let words: Vec<String> = dims.iter().map(u32::to_string).collect();
        Ok(Self {
            setting,
            plugin: plugin(setting, name, file, threads)?,
            direct: None,
            metadata: vec![
                ("model".into(), name.into()),
                ("input".into(), input.name),
                ("shape".into(), words.join(",")),
            ],
            body: le_bytes(&elements).into(),
            elements,
            shape: dims.into_iter().map(i64::from).collect(),
        })
    }

    /// The answer, and the seconds of the whole call and of what the plugin saw of `wasi:nn`.
    fn ours(&mut self) -> Result<(Bytes, f64, f64)> {
        let request = TaskRequest {
            body: self.body.clone(),
            metadata: self.metadata.clone(),
            ..TaskRequest::default()
        };
        let started = Instant::now();
        let (response, _) = self
            .setting
            .runtime
            .block_on(self.plugin.call(request, context()))?;
        let whole = started.elapsed().as_secs_f64();
        let told = response.metadata.iter().find(|(key, _)| key == "compute-ns");
        let (_, ns) = told.context("the guest does not say how long it took")?;
        Ok((response.body, whole, ns.parse::<f64>()? / 1e9))
    }

    /// Seconds, and what was read of the output.
    fn theirs<T>(&mut self, read: impl FnOnce(&[f32]) -> T) -> Result<(f64, T)> {
        let started = Instant::now();
        let direct = self.direct.as_mut().context("it is not loaded")?;
        let read = direct.run(&self.shape, &self.elements, read)?;
        Ok((started.elapsed().as_secs_f64(), read))
    }
}

fn le_bytes(elements: &[f32]) -> Vec<u8> {
    elements.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Its shape, open dimensions as one.
fn shape(input: &TensorInfo) -> Vec<u32> {
    let size = |dim: &Dim| match dim {
        Dim::Fixed(size) => *size,
        Dim::Any(_) => 1,
    };
    input.dims.iter().flatten().map(size).collect()
}

/// The plugin on a node of its own that has the model, loaded and linked.
fn plugin(setting: &Setting, name: &str, file: &[u8], threads: usize) -> Result<Arc<Plugin>> {
    let folder = setting.place(&format!("alone-{name}"));
    let config = NodeConfig {
        backend: BackendChoice::OnnxRuntime,
        onnxruntime: Some(setting.library.path().into()),
        models: limits(),
        compute: ComputeProfile {
            threads: NonZeroUsize::new(threads).context("no threads")?,
            ..ComputeProfile::default()
        },
        ..NodeConfig::default()
    };
    let options = RuntimeOptions {
        state: folder.join("state"),
        cache: folder.join("cache"),
        program: None,
    };
    let runtime = Runtime::new(config, options, None)?;
    let store = runtime.home().store()?;
    let models = store.models();
    if models.list()?.is_empty() {
        models.add(name, file, None, Default::default())?;
    }
    // To the plugin the times are what it is there for.
    let fine: GrantSet = [Grant::FineClock].into_iter().collect();
    Ok(runtime.load(&setting.guest, "infer", &fine)?)
}
