//! How long each selection takes to an accuracy, under eight skews and with equal clients.

use super::digits::{Sample, by_label, by_quantity, equal, split};
use super::net::Net;
use super::world::{Client, Point, World};
use super::{Scale, draws, per_seed};
use anyhow::Result;
use fastrand::Rng;
use karman_fed::Run;
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};
use std::collections::BTreeMap;
use std::ops::Range;

const CLIENTS: usize = 100;
const CHOSEN: usize = 10;
/// The accuracy to reach, and how many rounds it may take; who does not reach it counts with all of them.
const TARGET: f64 = 0.85;
const ROUNDS: u64 = 300;

/// What is unequal about clients.
#[derive(Clone, Copy)]
enum Skew {
    /// How many samples: Dirichlet.
    Quantity(f64),
    /// Which labels: Dirichlet.
    Label(f64),
    /// Labels by Dirichlet 0.5, and how speed goes with the amount of data: slow clients have most (−1), no matter (0), fast ones have most (1).
    Speed(i8),
    /// Labels by Dirichlet 0.5, and three in ten orders come to nothing.
    DropOut,
    /// Nothing at all.
    Equal,
}

const SKEWS: [(&str, Skew); 9] = [
    ("quantity-0.3", Skew::Quantity(0.3)),
    ("quantity-1", Skew::Quantity(1.0)),
    ("label-0.1", Skew::Label(0.1)),
    ("label-0.5", Skew::Label(0.5)),
    ("speed-slow-have-most", Skew::Speed(-1)),
    ("speed-no-matter", Skew::Speed(0)),
    ("speed-fast-have-most", Skew::Speed(1)),
    ("drop-out-30", Skew::DropOut),
    ("equal", Skew::Equal),
];

const POLICIES: [&str; 5] = ["bandit", "random", "oort", "fastest", "power-of-choice"];

/// The settings among which the two policies that have any are tuned, on seeds that no table uses, over all eight skews.
const TUNED: [(&str, &[&str]); 2] = [
    (
        "bandit",
        &[
            "",
            "discount = 0.98",
            "explore = 0.3",
            "returns = 0.5",
            "returns = 0.7",
            "caution = 0.8",
        ],
    ),
    (
        "oort",
        &[
            "explore = 0.9\npenalty = 2.0",
            "explore = 0.9\npenalty = 1.0",
            "explore = 0.5\npenalty = 2.0",
            "explore = 0.5\npenalty = 1.0",
            "explore = 0.2\npenalty = 2.0",
            "explore = 0.2\npenalty = 1.0",
        ],
    ),
];
const TUNING_SEEDS: Range<u64> = 1000..1010;

pub(super) fn cells() -> Vec<String> {
    let against = |other: &'static str| SKEWS.iter().map(move |(skew, _)| cell(other, skew));
    against("random").chain(against("oort")).collect()
}

fn cell(other: &str, skew: &str) -> String {
    format!("time_to_target_vs_{other}.{skew}")
}

/// Speeds are log-normal with sigma 1, links 1 to 50 Mbit/s; a sample's gradient takes 50 ms at the median.
fn clients(train: Vec<Sample>, skew: Skew, random: &mut Rng) -> Vec<Client> {
    let shards = match skew {
        Skew::Quantity(alpha) => by_quantity(train, CLIENTS, alpha, random),
        Skew::Label(alpha) => by_label(train, CLIENTS, alpha, random),
        Skew::Speed(_) | Skew::DropOut => by_label(train, CLIENTS, 0.5, random),
        Skew::Equal => equal(train, CLIENTS),
    };
    let mut slowness: Vec<f64> = (0..CLIENTS).map(|_| draws::log_normal(1.0, random)).collect();
    let mut order: Vec<usize> = (0..CLIENTS).collect();
    match skew {
        Skew::Speed(correlation) if correlation != 0 => {
            order.sort_by_key(|i| shards[*i].len());
            slowness.sort_by(f64::total_cmp);
            if correlation > 0 {
                slowness.reverse();
            }
        }
        Skew::Equal => slowness.fill(1.0),
        _ => {}
    }
    let mut paired = vec![1.0; CLIENTS];
    order
        .iter()
        .zip(slowness)
        .for_each(|(i, slowness)| paired[*i] = slowness);
    let bits = 2.0 * 32.0 * Net::regression().length() as f64;
    let client = |(samples, slowness): (Vec<Sample>, f64)| {
        let rate = if matches!(skew, Skew::Equal) {
            10e6
        } else {
            1e6 + 49e6 * random.f64()
        };
        let mut client = Client::new(samples);
        client.per_sample = 0.05 * slowness;
        client.transfer = bits / rate;
        client.drop_out = if matches!(skew, Skew::DropOut) { 0.3 } else { 0.0 };
        client
    };
    shards.into_iter().zip(paired).map(client).collect()
}

/// The settings with the shortest times, as a geometric mean over the skews.
fn tuned(policy: &str) -> Result<String> {
    let settings = TUNED
        .iter()
        .find(|(name, _)| *name == policy)
        .map_or(&[""][..], |(_, settings)| settings);
    let mut best = (f64::INFINITY, String::new());
    for setting in settings {
        let section = format!("name = '{policy}'\n{setting}");
        let mut sum = 0.0;
        // One setting needs no tuning.
        for (_, skew) in SKEWS.iter().filter(|_| settings.len() > 1) {
            let seconds = per_seed(TUNING_SEEDS, |seed| race(*skew, &section, seed))?;
            sum += seconds.iter().map(|seconds| seconds.ln()).sum::<f64>();
        }
        if sum < best.0 {
            best = (sum, section);
        }
    }
    Ok(best.1)
}

/// The seconds to the target.
fn race(skew: Skew, section: &str, seed: u64) -> Result<f64> {
    let mut random = Rng::with_seed(seed);
    let split = split(&mut random);
    let clients = clients(split.train, skew, &mut random);
    let run = Run::from_toml(&format!(
        "name = 'selection'\nrounds = {ROUNDS}\nstart-with = {CLIENTS}\n[pace]\nmode = 'synchronous'\nclients = {CHOSEN}\nminimum = 1\n\
         timeout = '1 d'\n[selection]\n{section}\n[training]\nepochs = 2\nbatch = 8\nlearning-rate = 0.05\n\
         partial-work = false\n[evaluation]\nevery = 0\n"
    ))?;
    let world = World {
        net: &Net::regression(),
        clients,
        held: &split.held,
        run,
        seed: random.u64(..),
        target: Some(TARGET),
    };
    Ok(world
        .play()?
        .last()
        .map_or(f64::INFINITY, |Point { seconds, .. }| *seconds))
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    let sections = POLICIES.map(|policy| tuned(policy).map(|section| (policy, section)));
    let sections: Vec<(&str, String)> = sections.into_iter().collect::<Result<_>>()?;
    report.keep_raw("selections", &sections);
    for (name, skew) in SKEWS {
        let mut seconds: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (policy, section) in &sections {
            seconds.insert(
                policy,
                per_seed(scale.selections.clone(), |seed| race(skew, section, seed))?,
            );
        }
        for policy in POLICIES {
            let key = format!("seconds_to_target.{name}.{policy}");
            report.estimate(&key, bootstrap(&seconds[policy], mean), "s", Target::Shown);
        }
        for other in ["random", "oort"] {
            let pairs: Vec<(f64, f64)> = seconds["bandit"]
                .iter()
                .copied()
                .zip(seconds[other].iter().copied())
                .collect();
            // Published: 32 to 50 % shorter. With equal clients there is nothing to learn, and nothing may be lost.
            let target = match skew {
                Skew::Equal if other == "random" => Target::AtMost(1.05),
                Skew::Equal => Target::Shown,
                _ => Target::AtMost(0.68),
            };
            report.estimate(
                &cell(other, name),
                bootstrap(&pairs, super::ratio_of_sums),
                "ratio",
                target,
            );
        }
        report.keep_raw(&format!("seconds_to_target.{name}"), &seconds);
    }
    Ok(())
}
