//! Two nodes on loopback: what a request takes, against its two fragments and the same bytes over bare quinn, each by itself; and against
//! both in two processes written for nothing else. Those meet what no program can avoid: a core that has gone idle wakes, a second process
//! finds its caches cold.

use super::nodes::{self, Nodes};
use super::{Setting, limits, network, options};
use crate::mesh::{Thread, Wire, pieces};
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use karman_infer::graph::Graph;
use karman_infer::profile::sample_inputs;
use karman_infer::zoo::Architecture;
use karman_infer::{Backend, Model, Named};
use karman_node::Leg;
use karman_study::pairs::{self, median};
use karman_study::report::{Report, Target};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

const NETWORKS: [Architecture; 2] = [Architecture::MobileNetV2, Architecture::ResNet50];
const WARM_UP: usize = 10;

pub(super) fn cells() -> Vec<String> {
    let each = NETWORKS.map(|network| [by_parts(network), by_hand(network)]);
    each.into_iter().flatten().collect()
}

fn by_parts(network: Architecture) -> String {
    format!("split_vs_compute_plus_wire.{network}")
}

fn by_hand(network: Architecture) -> String {
    format!("split_vs_by_hand.{network}")
}

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let nodes = setting
        .runtime
        .block_on(nodes::start(setting, "wire", 1.0, &[("cloud", 1.0)]))?;
    for architecture in NETWORKS {
        compare(setting, report, &nodes, architecture)?;
    }
    setting.runtime.block_on(async { drop(nodes) });
    Ok(())
}

fn compare(setting: &Setting, report: &mut Report, nodes: &Nodes, architecture: Architecture) -> Result<()> {
    let file = network(architecture)?;
    nodes.add(architecture, &file)?;
    let name = architecture.as_str();
    let profile = setting.runtime.block_on(nodes.edge.profile_model(name))?.profile;
    let ends = vec![middle(&profile.seconds())];
    let plan = setting.runtime.block_on(nodes.plan(architecture, Some(ends)))?;
    let graph = Graph::read(file, &limits())?;
    let fragments = graph.split(&graph.layers().stages(&plan.plan.assignment)?)?;
    ensure!(fragments.len() == 2, "{name} is cut into {}", fragments.len());
    let load = |at: usize| {
        setting
            .library
            .load(&fragments[at].model, &options(1)?)
            .map_err(anyhow::Error::from)
    };
    let halves: [Arc<dyn Model>; 2] = [load(0)?, load(1)?];
    let inputs = sample_inputs(&*halves[0], 1, 7)?;
    let crossing = halves[0].run(inputs.clone())?;
    ensure!(
        crossing
            .iter()
            .map(|(name, _)| name)
            .eq(halves[1].inputs().iter().map(|input| &input.name)),
        "the second fragment of {name} takes something else than the first one gives"
    );
    let body = Bytes::from(pieces(&crossing).concat());
    let expected = halves[1].run(crossing.clone())?;
    let first = setting
        .runtime
        .block_on(nodes.edge.run_model(name, inputs.clone(), None))?;
    ensure!(
        same(&first.results, &expected),
        "{name} in parts gives something else"
    );
    ensure!(first.legs.len() == 2, "{name} ran in {} parts", first.legs.len());
    // Not before it is needed: a connection on which nothing is sent ends.
    let wire = Wire::start()?;
    let legs = RefCell::new(Vec::new());
    let ours = || {
        let (edge, name, inputs) = (nodes.edge.clone(), name.to_owned(), inputs.clone());
        // As a listener calls it, and as the bare wire is timed: on the threads that the network is on.
        let asked = setting.runtime.spawn(async move {
            let started = Instant::now();
            let ran = edge.run_model(&name, inputs, None).await;
            (ran, started.elapsed().as_secs_f64())
        });
        let (ran, took) = setting.runtime.block_on(asked)?;
        legs.borrow_mut().push(ran?.legs);
        Ok(took)
    };
    let parts = || {
        let inputs = inputs.clone();
        let started = Instant::now();
        let crossing = halves[0].run(inputs)?;
        std::hint::black_box(halves[1].run(crossing)?);
        Ok(started.elapsed().as_secs_f64() + wire.send(body.clone())?)
    };
    pairs::measure(WARM_UP, ours, parts)?;
    legs.borrow_mut().clear();
    let pairs = pairs::measure(setting.pairs(), ours, parts)?;
    report.figure(
        &format!("split_bytes.{name}"),
        body.len() as f64,
        "B",
        Target::Shown,
    );
    let ms = median(pairs.iter().map(|pair| pair.theirs * 1e3).collect());
    report.figure(&format!("compute_plus_wire_ms.{name}"), ms, "ms", Target::Shown);
    report.ratio(&by_parts(architecture), pairs, Target::AtMost(1.05));
    where_it_went(report, name, &legs.take());
    let fastest = ByHand::fastest(&halves[0], &fragments[1].model, &inputs, (&crossing, &expected))?;
    let hand = || fastest.request(&inputs);
    pairs::measure(WARM_UP, ours, hand)?;
    let pairs = pairs::measure(setting.pairs(), ours, hand)?;
    let ms = median(pairs.iter().map(|pair| pair.theirs * 1e3).collect());
    report.figure(&format!("by_hand_ms.{name}"), ms, "ms", Target::Shown);
    report.ratio(&by_hand(architecture), pairs, Target::AtMost(1.05));
    Ok(())
}

/// The two fragments in two processes that are there for nothing else.
struct ByHand {
    thread: Thread,
    first: Arc<dyn Model>,
    other: Wire,
    answer: Bytes,
}

impl ByHand {
    /// The faster of both ways to run the fragments.
    fn fastest(
        first: &Arc<dyn Model>,
        second: &[u8],
        inputs: &Named,
        (crossing, results): (&Named, &Named),
    ) -> Result<Self> {
        let mut ways = Vec::new();
        for thread in Thread::ALL {
            let way = Self {
                thread,
                first: first.clone(),
                other: Wire::to_stage(second, crossing, thread)?,
                answer: pieces(results).concat().into(),
            };
            ways.push((way.median(inputs)?, way));
        }
        let fastest = ways.into_iter().min_by(|one, other| one.0.total_cmp(&other.0));
        Ok(fastest.context("two ways")?.1)
    }

    /// Seconds that a request takes.
    fn request(&self, inputs: &Named) -> Result<f64> {
        let (thread, first, inputs) = (self.thread, self.first.clone(), inputs.clone());
        let crossing = move || Ok(pieces(&thread.run(|| first.run(inputs))?));
        let (given, took) = self.other.ask(crossing)?;
        ensure!(given == self.answer, "by hand something else comes out");
        Ok(took)
    }

    fn median(&self, inputs: &Named) -> Result<f64> {
        for _ in 0..WARM_UP {
            self.request(inputs)?;
        }
        let taken: Result<Vec<f64>> = (0..3 * WARM_UP).map(|_| self.request(inputs)).collect();
        Ok(median(taken?))
    }
}

/// What the parts of a request took by the word of those who ran them.
fn where_it_went(report: &mut Report, name: &str, requests: &[Vec<Leg>]) {
    let middle = |of: &dyn Fn(&Leg) -> u64| {
        let of_request = |legs: &Vec<Leg>| legs.iter().map(of).sum::<u64>() as f64 / 1e3;
        median(requests.iter().map(of_request).collect())
    };
    let compute = middle(&|leg| leg.compute_us);
    let transfer = middle(&|leg| leg.transfer_us);
    report.figure(&format!("split_compute_ms.{name}"), compute, "ms", Target::Shown);
    report.figure(
        &format!("split_transfer_ms.{name}"),
        transfer,
        "ms",
        Target::Shown,
    );
    let encoded = requests
        .iter()
        .flatten()
        .filter(|leg| leg.encoding.is_some())
        .count();
    report.figure(
        &format!("split_encoded.{name}"),
        encoded as f64,
        "requests",
        Target::Shown,
    );
}

/// After how many layers half of the time is over.
fn middle(seconds: &[f64]) -> usize {
    let half = seconds.iter().sum::<f64>() / 2.0;
    let mut so_far = 0.0;
    let before = |seconds: &&f64| {
        so_far += **seconds;
        so_far < half
    };
    seconds.iter().take_while(before).count().max(1)
}

fn same(given: &Named, expected: &Named) -> bool {
    given.len() == expected.len()
        && given
            .iter()
            .zip(expected)
            .all(|((_, given), (_, expected))| given.bytes() == expected.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_time() {
        assert_eq!(middle(&[1.0, 1.0, 1.0, 1.0]), 1);
        assert_eq!(middle(&[1.0, 1.0, 3.0]), 2);
        assert_eq!(middle(&[3.0, 1.0]), 1);
    }
}
