//! Block rounds in the form of ParaBlock: how long they take, and what it costs that other blocks are a round old.

use crate::fed_tables::digits::{self, Sample, by_label};
use crate::fed_tables::draws::log_normal;
use crate::fed_tables::net::{Net, add};
use crate::fed_tables::{Scale, per_seed};
use anyhow::Result;
use fastrand::Rng;
use karman_fed::lora::{BlockSchedule, Pipeline, Step};
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};
use std::collections::BTreeMap;

/// Transfer over training, at the median.
const CASES: [f64; 5] = [0.25, 0.5, 1.0, 2.0, 4.0];
/// How much each of them varies from round to round: the sigma of a log-normal.
const JITTER: f64 = 0.05;
const ROUNDS: u64 = 200;

pub(super) fn cells() -> Vec<String> {
    let times = CASES.iter().map(|case| time_cell(*case));
    times.chain(["parablock_accuracy_gap_points".into()]).collect()
}

fn time_cell(case: f64) -> String {
    format!("parablock_round_vs_longer.transfer-{case}")
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    for case in CASES {
        let ratios = per_seed(scale.seeds.clone(), |seed| Ok(round_over_longer(case, seed)))?;
        report.estimate(
            &time_cell(case),
            bootstrap(&ratios, mean),
            "ratio",
            Target::AtMost(1.05),
        );
    }
    let gaps = per_seed(scale.seeds.clone(), |seed| {
        Ok(100.0 * (trained(false, seed) - trained(true, seed)))
    })?;
    let key = "parablock_accuracy_gap_points";
    report.estimate(key, bootstrap(&gaps, mean), "points", Target::AtMost(1.0));
    report.keep_raw(key, &gaps);
    Ok(())
}

/// The mean time of a round over the longer of the mean times of its parts.
fn round_over_longer(transfer: f64, seed: u64) -> f64 {
    let mut random = Rng::with_seed(seed);
    let mut times = |median: f64| -> Vec<f64> {
        (0..ROUNDS)
            .map(|_| median * log_normal(JITTER, &mut random))
            .collect()
    };
    let (train, exchange) = (times(1.0), times(transfer));
    let mut pipeline = Pipeline::new(BlockSchedule::new(8, seed), ROUNDS);
    let mut running: Vec<(f64, Step)> = Vec::new();
    let mut now = 0.0;
    let mut steps = pipeline.begin();
    loop {
        for step in steps {
            let end = match step {
                Step::Train { round, .. } => train[round as usize],
                Step::Exchange { round, .. } => exchange[round as usize],
            };
            running.push((now + end, step));
        }
        let first = (0..running.len()).min_by(|a, b| running[*a].0.total_cmp(&running[*b].0));
        let Some(first) = first else { break };
        let (at, step) = running.swap_remove(first);
        now = at;
        steps = match step {
            Step::Train { round, .. } => pipeline.trained(round),
            Step::Exchange { round, .. } => pipeline.exchanged(round),
        };
    }
    // Nothing hides the first training and the last exchange.
    let hidden = now - train[0] - exchange[ROUNDS as usize - 1];
    let longer = mean(&train).max(mean(&exchange));
    hidden / (ROUNDS - 1) as f64 / longer
}

/// The accuracy after 60 block rounds of eight clients; overlapped, the aggregate of a round is installed a round later.
fn trained(overlapped: bool, seed: u64) -> f64 {
    let mut random = Rng::with_seed(seed);
    let split = digits::split(&mut random);
    let shards = by_label(split.train, 8, 0.5, &mut random);
    let net = Net::deep();
    let mut model = net.initial(&mut random);
    let blocks = net.layers().count() as u32;
    let schedule = BlockSchedule::new(blocks, seed);
    // What was trained and is not installed yet, by the round in which it will be.
    let mut coming: BTreeMap<u64, Vec<f32>> = BTreeMap::new();
    for round in 0..60 {
        if let Some(change) = coming.remove(&round) {
            add(&mut model, 1.0, &change);
        }
        let block = schedule.block(round) as usize;
        let total: usize = shards.iter().map(Vec::len).sum();
        let mut change = vec![0.0; model.len()];
        for shard in &shards {
            let of_client = train_block(&net, &model, block, shard, &mut random);
            add(&mut change, shard.len() as f32 / total as f32, &of_client);
        }
        coming.insert(round + 1 + u64::from(overlapped), change);
    }
    for change in coming.into_values() {
        add(&mut model, 1.0, &change);
    }
    net.accuracy(&model, &split.held)
}

/// Two passes that change one layer only.
fn train_block(net: &Net, start: &[f32], block: usize, shard: &[Sample], random: &mut Rng) -> Vec<f32> {
    let offsets = net.offsets();
    let range = offsets[block]..offsets.get(block + 1).copied().unwrap_or(start.len());
    let mut model = start.to_vec();
    let mut order: Vec<&Sample> = shard.iter().collect();
    for _ in 0..2 {
        random.shuffle(&mut order);
        for batch in order.chunks(16) {
            let (gradient, _) = net.gradient(&model, batch);
            add(&mut model[range.clone()], -0.05, &gradient[range.clone()]);
        }
    }
    add(&mut model, -1.0, start);
    model
}
