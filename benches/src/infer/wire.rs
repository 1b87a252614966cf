//! Two nodes on loopback: what a request takes, against its two fragments and the same bytes over bare quinn.

use super::nodes::{self, Nodes};
use super::{Setting, limits, network, options};
use crate::mesh::Wire;
use anyhow::{Result, ensure};
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
    NETWORKS.map(key).to_vec()
}

fn key(network: Architecture) -> String {
    format!("split_vs_compute_plus_wire.{network}")
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
    let body: Bytes = crossing
        .iter()
        .flat_map(|(_, tensor)| tensor.bytes().to_vec())
        .collect::<Vec<u8>>()
        .into();
    let expected = halves[1].run(crossing)?;
    let first = setting
        .runtime
        .block_on(nodes.edge.run_model(name, inputs.clone()))?;
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
            let ran = edge.run_model(&name, inputs).await;
            (ran, started.elapsed().as_secs_f64())
        });
        let (ran, took) = setting.runtime.block_on(asked)?;
        legs.borrow_mut().push(ran?.legs);
        Ok(took)
    };
    let theirs = || {
        let inputs = inputs.clone();
        let started = Instant::now();
        let crossing = halves[0].run(inputs)?;
        std::hint::black_box(halves[1].run(crossing)?);
        Ok(started.elapsed().as_secs_f64() + wire.send(body.clone())?)
    };
    pairs::measure(WARM_UP, ours, theirs)?;
    legs.borrow_mut().clear();
    let pairs = pairs::measure(setting.pairs(), ours, theirs)?;
    report.figure(
        &format!("split_bytes.{name}"),
        body.len() as f64,
        "B",
        Target::Shown,
    );
    let ms = median(pairs.iter().map(|pair| pair.theirs * 1e3).collect());
    report.figure(&format!("compute_plus_wire_ms.{name}"), ms, "ms", Target::Shown);
    report.ratio(&key(architecture), pairs, Target::AtMost(1.05));
    where_it_went(report, name, &legs.into_inner());
    Ok(())
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
