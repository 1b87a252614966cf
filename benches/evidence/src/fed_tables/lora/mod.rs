//! Federated low-rank adapters: which way of aggregating unequal ranks adapts a net best, for how many bytes; and block rounds.
//!
//! A net of 64, 48, 48 and 10 is trained on transposed digits; eight clients with unequal shares of the labels then adapt it to upright
//! ones, in three rounds of three passes, by adapters of ranks 1 to 16 at its two hidden layers. Each method has its step tuned on seeds that
//! the table does not use.

mod blocks;
mod methods;

use super::{Scale, per_seed, statistics};
use anyhow::Result;
use fastrand::Rng;
use karman_fed::lora::{Adapter, Weighted, florist};
use karman_study::interval::{Estimate, bootstrap, mean};
use karman_study::report::{Report, Target};
use methods::{METHODS, Outcome};
use std::collections::BTreeMap;

pub(super) fn cells() -> Vec<String> {
    let accuracy = METHODS.iter().map(|(name, _)| format!("lora_accuracy.{name}"));
    let others = METHODS.iter().filter(|(name, _)| *name != "florist");
    let p_values = others.map(|(name, _)| format!("lora_p_florist_vs.{name}"));
    let bytes = METHODS
        .iter()
        .map(|(name, _)| format!("lora_bytes_vs_factor_mean.{name}"));
    let all = accuracy
        .chain(p_values)
        .chain(bytes)
        .chain(["florist_exactness".into()]);
    all.chain(blocks::cells()).collect()
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    report.figure(
        "florist_exactness",
        exactness()?,
        "relative",
        Target::AtMost(1e-5),
    );
    let mut accuracies: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    let mut bytes: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, method) in METHODS {
        let rate = methods::tuned(method)?;
        let outcomes: Vec<Outcome> =
            per_seed(scale.seeds.clone(), |seed| methods::adapt(method, rate, seed))?;
        let percent: Vec<f64> = outcomes.iter().map(|outcome| 100.0 * outcome.accuracy).collect();
        let key = format!("lora_accuracy.{name}");
        report.estimate(&key, bootstrap(&percent, mean), "%", Target::Shown);
        report.keep_raw(&key, &percent);
        report.keep_raw(&format!("lora_rate.{name}"), &rate);
        bytes.insert(
            name,
            outcomes.iter().map(|outcome| outcome.bytes as f64).collect(),
        );
        accuracies.insert(name, percent);
    }
    for (name, _) in METHODS {
        let pairs: Vec<(f64, f64)> = bytes[name]
            .iter()
            .copied()
            .zip(bytes["factor-mean"].iter().copied())
            .collect();
        let key = format!("lora_bytes_vs_factor_mean.{name}");
        report.estimate(
            &key,
            bootstrap(&pairs, super::ratio_of_sums),
            "ratio",
            Target::Shown,
        );
    }
    ordering(report, &accuracies);
    blocks::study(report, scale)
}

/// FLoRIST against each of the others, pair by pair.
fn ordering(report: &mut Report, accuracies: &BTreeMap<&str, Vec<f64>>) {
    let others: Vec<&str> = accuracies
        .keys()
        .copied()
        .filter(|name| *name != "florist")
        .collect();
    let p_value = |name: &&str| {
        let pairs = accuracies["florist"].iter().zip(&accuracies[name]);
        statistics::signed_rank(&pairs.map(|(ours, theirs)| ours - theirs).collect::<Vec<f64>>())
    };
    let corrected = statistics::holm(&others.iter().map(p_value).collect::<Vec<f64>>());
    for (name, p) in others.iter().zip(corrected) {
        report.estimate(
            &format!("lora_p_florist_vs.{name}"),
            Estimate::exact(p),
            "p",
            Target::Shown,
        );
    }
}

/// The largest relative error of the pair with everything kept, over a hundred draws of clients.
fn exactness() -> Result<f64> {
    let mut random = Rng::with_seed(11);
    let mut most = 0.0f64;
    for _ in 0..100 {
        let (rows, columns) = (random.usize(1..64), random.usize(1..64));
        let clients: Vec<(Adapter, f64)> = (0..random.usize(1..9))
            .map(|_| {
                let rank = random.usize(1..17);
                let mut draw = |count: usize| (0..count).map(|_| random.f32() - 0.5).collect::<Vec<f32>>();
                let (b, a) = (draw(rows * rank), draw(rank * columns));
                Ok((
                    Adapter::new(rows, columns, rank, b, a)?,
                    1.0 + 99.0 * random.f64(),
                ))
            })
            .collect::<Result<_>>()?;
        let weighted: Vec<Weighted<'_>> = clients
            .iter()
            .map(|(adapter, weight)| Weighted {
                adapter,
                weight: *weight,
            })
            .collect();
        let total: f64 = clients.iter().map(|(_, weight)| weight).sum();
        let mut exact = vec![0.0f64; rows * columns];
        for (adapter, weight) in &clients {
            for (place, sum) in exact.iter_mut().enumerate() {
                let (i, j) = (place / columns, place % columns);
                let rank = adapter.rank();
                let product = (0..rank)
                    .map(|k| f64::from(adapter.b()[i * rank + k]) * f64::from(adapter.a()[k * columns + j]));
                *sum += weight / total * product.sum::<f64>();
            }
        }
        let ours = florist(&weighted, 1.0)?.adapter().product();
        let error: f64 = ours
            .iter()
            .zip(&exact)
            .map(|(x, y)| (f64::from(*x) - y).powi(2))
            .sum();
        most = most.max((error / exact.iter().map(|y| y * y).sum::<f64>()).sqrt());
    }
    Ok(most)
}
