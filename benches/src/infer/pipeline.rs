//! Three nodes on emulated tiers with many requests under way, against the slowest of their stages alone.

use super::nodes::{self, Nodes};
use super::{Setting, limits, network, options};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use karman_infer::graph::{Fragment, Graph};
use karman_infer::profile::sample_inputs;
use karman_infer::zoo::Architecture;
use karman_infer::{Backend, Named};
use karman_node::Leg;
use karman_node::inference::{InferResponse, InferTensor};
use karman_sched::partition::best_static;
use karman_study::pairs::{self, median};
use karman_study::report::{Report, Target};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::time::Instant;

const NETWORK: Architecture = Architecture::ResNet50;
const KEY: &str = "pipeline_vs_slowest_stage";
const DEMAND: &str = "pipeline_cpu_demand";
/// How many times slower edge, fog and cloud are than the machine.
const SLOWDOWNS: [f64; 3] = [16.0, 12.0, 8.0];
/// Requests under way for each stage.
const AT_ONCE: usize = 4;
/// Requests by which the slowest stage is found, and those before that do not count.
const TIMED: usize = 9;
const WARM_UP: usize = 5;
/// Requests of a block.
const REQUESTS: usize = 40;

pub(super) fn cells() -> Vec<String> {
    vec![KEY.to_owned(), DEMAND.to_owned()]
}

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let runtime = &setting.runtime;
    let [edge, fog, cloud] = SLOWDOWNS;
    let others = [("fog", fog), ("cloud", cloud)];
    let nodes = runtime.block_on(nodes::start(setting, "pipeline", edge, &others))?;
    let file = network(NETWORK)?;
    nodes.add(NETWORK, &file)?;
    let problem = runtime.block_on(nodes.plan(NETWORK, None))?.problem;
    // The cut whose slowest stage is as quick as can be.
    let (cut, _) = best_static(&problem, |cut| Some(problem.predict(cut).ok()?.interval_ms))
        .context("no cut can run")?;
    let ends = (0..2)
        .map(|tier| cut.iter().filter(|of| **of <= tier).count())
        .collect();
    let plan = runtime.block_on(nodes.plan(NETWORK, Some(ends)))?;
    ensure!(plan.plan.assignment == cut, "another cut is in use");
    let graph = Graph::read(file, &limits())?;
    let fragments = graph.split(&graph.layers().stages(&cut)?)?;
    ensure!(fragments.len() == 3, "a cut into {}", fragments.len());
    let activations = activations(setting, &fragments)?;
    let slowest = runtime.block_on(slowest(&nodes, &activations[0]))?;
    report.figure("pipeline_slowest_stage", slowest as f64, "", Target::Shown);
    let alone = Alone::prepare(
        setting,
        &nodes,
        slowest,
        &fragments[slowest],
        &activations[slowest],
    )?;
    let (used, taken) = (Cell::new(0.0), Cell::new(0.0));
    let legs = RefCell::new(Vec::new());
    let ours = || {
        let (before, started) = (nodes.processor_time()?, Instant::now());
        let one = async || {
            let ran = nodes
                .edge
                .run_model(NETWORK.as_str(), activations[0].clone(), None);
            let ran = ran.await?;
            legs.borrow_mut().extend(ran.legs);
            Ok(())
        };
        let rate = runtime.block_on(rate(3 * AT_ONCE, one))?;
        used.set(used.get() + nodes.processor_time()? - before);
        taken.set(taken.get() + started.elapsed().as_secs_f64());
        Ok(rate)
    };
    let theirs = || runtime.block_on(rate(3 * AT_ONCE, async || alone.run(&nodes).await));
    pairs::measure(1, ours, theirs)?;
    used.set(0.0);
    taken.set(0.0);
    legs.borrow_mut().clear();
    let pairs = pairs::measure(if setting.quick { 3 } else { 30 }, ours, theirs)?;
    where_it_went(report, &legs.borrow(), taken.get());
    let ms = median(pairs.iter().map(|pair| 1e3 / pair.theirs).collect());
    report.figure("pipeline_stage_alone_ms", ms, "ms", Target::Shown);
    report.ratio(KEY, pairs, Target::AtLeast(0.9));
    report.figure(DEMAND, used.get() / taken.get(), "cores", Target::AtMost(1.6));
    runtime.block_on(async { drop(nodes) });
    Ok(())
}

/// What each stage took, and for how much of these seconds of blocks, their beginnings and ends among them.
fn where_it_went(report: &mut Report, legs: &[Leg], seconds: f64) {
    for stage in 0..3 {
        let of_stage = legs.iter().filter(|leg| usize::from(leg.stage) == stage);
        let computed: Vec<f64> = of_stage.map(|leg| leg.compute_us as f64 / 1e3).collect();
        let busy = computed.iter().sum::<f64>() / 1e3 / seconds;
        let figures = [("busy", busy, ""), ("stage_ms", median(computed), "ms")];
        for (what, figure, unit) in figures {
            report.figure(&format!("pipeline_{what}.{stage}"), figure, unit, Target::Shown);
        }
    }
}

/// What each fragment takes.
fn activations(setting: &Setting, fragments: &[Fragment]) -> Result<Vec<Named>> {
    let mut all: Vec<Named> = Vec::new();
    let mut held: Named = Vec::new();
    for fragment in fragments {
        let model = setting.library.load(&fragment.model, &options(1)?)?;
        if all.is_empty() {
            held = sample_inputs(&*model, 1, 7)?;
        }
        let wanted = |(name, _): &&(String, karman_tensor::Tensor)| {
            fragment.inputs.iter().any(|input| input.name == *name)
        };
        let inputs: Named = held.iter().filter(wanted).cloned().collect();
        held.extend(model.run(inputs.clone())?);
        all.push(inputs);
    }
    Ok(all)
}

/// The stage that computes longest, once each has run for a while: what a session allocates in its first runs takes a slow tier longest.
async fn slowest(nodes: &Nodes, inputs: &Named) -> Result<usize> {
    let mut taken = [const { Vec::new() }; 3];
    for run in 0..WARM_UP + TIMED {
        let ran = nodes
            .edge
            .run_model(NETWORK.as_str(), inputs.clone(), None)
            .await?;
        ensure!(ran.legs.len() == 3, "it ran in {} parts", ran.legs.len());
        for leg in ran.legs.iter().filter(|_| run >= WARM_UP) {
            taken[usize::from(leg.stage)].push(leg.compute_us as f64);
        }
    }
    let middle = taken.map(median);
    let most = (0..3).max_by(|one, other| middle[*one].total_cmp(&middle[*other]));
    most.context("three stages")
}

/// A stage as a model of its own on the node that runs it in the pipeline.
struct Alone {
    stage: usize,
    inputs: Named,
    request: Bytes,
}

const ALONE: &str = "stage-alone";

impl Alone {
    fn prepare(
        setting: &Setting,
        nodes: &Nodes,
        stage: usize,
        fragment: &Fragment,
        inputs: &Named,
    ) -> Result<Self> {
        if stage == 0 {
            let store = nodes.edge.runtime().home().store()?;
            store
                .models()
                .add(ALONE, &fragment.model, None, Default::default())?;
        } else {
            let file = setting.place("stage.onnx");
            std::fs::write(&file, &fragment.model)?;
            let path = file.to_str().context("a path in UTF-8")?;
            nodes.others[stage - 1].run(&["model", "add", ALONE, path])?;
        }
        let tensors: Vec<InferTensor> = inputs
            .iter()
            .map(|(name, tensor)| InferTensor::write(name, tensor))
            .collect();
        Ok(Self {
            stage,
            inputs: inputs.clone(),
            request: serde_json::to_vec(&json!({ "inputs": tensors }))?.into(),
        })
    }

    async fn run(&self, nodes: &Nodes) -> Result<()> {
        if self.stage == 0 {
            nodes.edge.run_model(ALONE, self.inputs.clone(), None).await?;
        } else {
            let path = format!("/models/{ALONE}/run");
            let site = &nodes.others[self.stage - 1];
            let _: InferResponse = site.order(Method::POST, &path, self.request.clone()).await?;
        }
        Ok(())
    }
}

/// Results per second with so many requests under way, once as many have ended.
async fn rate(at_once: usize, one: impl AsyncFn() -> Result<()>) -> Result<f64> {
    let one = &one;
    let ended: Vec<Instant> = stream::iter(0..REQUESTS + at_once)
        .map(|_| async move { one().await.map(|()| Instant::now()) })
        .buffer_unordered(at_once)
        .try_collect()
        .await?;
    let (first, last) = (ended[at_once - 1], ended[ended.len() - 1]);
    Ok(REQUESTS as f64 / (last - first).as_secs_f64())
}
