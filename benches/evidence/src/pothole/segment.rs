//! Who learns what: all windows in one place, vehicles together, vehicles alone.

use super::federated::federated;
use super::registered::{Registered, Steps};
use crate::fed_tables::per_seed;
use anyhow::Result;
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};
use pothole_learn::fleet::{Drive, Habits, Window};
use pothole_learn::loss::Judged;
use pothole_learn::road::Kind;
use pothole_learn::{How, Unet};
use serde::Serialize;
use std::ops::Range;

const CONTENDERS: [&str; 3] = ["central", "federated", "local"];
const MEASURES: [&str; 3] = ["sample_f1", "pothole_sample_f1", "pothole_event_f1"];
const PAIRED: [&str; 2] = ["f1_below_central_points", "f1_above_local_points"];

/// By contender, and then by measure.
#[derive(Clone, Copy, Debug, Default, Serialize)]
struct Outcome([[f64; 3]; 3]);

pub(super) fn cells() -> Vec<String> {
    let each = MEASURES
        .into_iter()
        .flat_map(|measure| CONTENDERS.map(|contender| format!("{measure}.{contender}")));
    each.chain(PAIRED.map(String::from)).collect()
}

pub(super) fn study(report: &mut Report, registered: &Registered, seeds: Range<u64>) -> Result<()> {
    let outcomes = per_seed(seeds, |seed| outcome(registered, seed))?;
    for (place, measure) in MEASURES.into_iter().enumerate() {
        for (at, contender) in CONTENDERS.into_iter().enumerate() {
            let values: Vec<f64> = outcomes.iter().map(|outcome| outcome.0[at][place]).collect();
            let key = format!("{measure}.{contender}");
            report.estimate(&key, bootstrap(&values, mean), "F1", Target::Shown);
        }
    }
    let targets = [Target::AtMost(5.0), Target::AtLeast(0.0)];
    for (key, ((more, less), target)) in PAIRED.into_iter().zip([(0, 1), (1, 2)].into_iter().zip(targets)) {
        let points = outcomes
            .iter()
            .map(|outcome| 100.0 * (outcome.0[more][0] - outcome.0[less][0]));
        let points: Vec<f64> = points.collect();
        report.estimate(key, bootstrap(&points, mean), "points", target);
    }
    report.keep_raw("outcomes", &outcomes);
    Ok(())
}

fn outcome(registered: &Registered, seed: u64) -> Result<Outcome> {
    let (fleet, training) = (&registered.fleet, &registered.training);
    let unet = Unet::new();
    let windows = |vehicle: u32, drive: Drive, count: usize| Habits::of(seed, vehicle).windows(drive, count);
    let own: Vec<Vec<Window>> = (0..fleet.vehicles)
        .map(|vehicle| windows(vehicle, Drive::Train, fleet.windows))
        .collect();
    let held: Vec<Window> = (0..fleet.vehicles)
        .flat_map(|vehicle| windows(vehicle, Drive::Held, fleet.held))
        .collect();
    let start = unet.initial(seed);
    let taught = |windows: &[Window], steps: &Steps| {
        let how = How {
            epochs: training.passes,
            batch: steps.batch,
            rate: steps.learning_rate,
            most_steps: None,
            proximal: 0.0,
            seed,
        };
        let model = how.teach(&unet, windows, &start, None, |_| {}).model;
        measured(&unet.judge(&model, &held))
    };
    let together = federated(&unet, &own, &start, training, seed)?;
    let mut local = [0.0; 3];
    for windows in &own {
        let alone = taught(windows, &training.local);
        let share = 1.0 / own.len() as f64;
        local
            .iter_mut()
            .zip(alone)
            .for_each(|(sum, one)| *sum += share * one);
    }
    Ok(Outcome([
        taught(&own.concat(), &training.central),
        measured(&unet.judge(&together, &held)),
        local,
    ]))
}

fn measured(judged: &Judged) -> [f64; 3] {
    let pothole = Kind::Pothole.index();
    [
        judged.things().f1(),
        judged.samples[pothole].f1(),
        judged.events[pothole].f1(),
    ]
}
