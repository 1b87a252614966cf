//! How accurate each strategy is after the same rounds on labels dealt out by Dirichlet shares.

use super::digits::{by_label, split};
use super::net::Net;
use super::world::{Client, World};
use super::{Scale, per_seed};
use anyhow::{Context, Result};
use fastrand::Rng;
use karman_fed::Run;
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};
use std::collections::BTreeMap;

/// The strategies, each with its section of the description; `RATE` stands for the server's step where that is tuned.
const STRATEGIES: [(&str, &str); 12] = [
    ("fed-avg", "name = 'fed-avg'"),
    ("fed-prox", "name = 'fed-prox'\nmu = 0.1"),
    ("fed-avg-m", "name = 'fed-avg-m'\nrate = RATE"),
    ("fed-adam", "name = 'fed-adam'\nrate = RATE"),
    ("fed-yogi", "name = 'fed-yogi'\nrate = RATE"),
    ("fed-adagrad", "name = 'fed-adagrad'\nrate = RATE"),
    ("scaffold", "name = 'scaffold'"),
    ("fed-nova", "name = 'fed-nova'"),
    ("krum", "name = 'krum'\nliars = 1"),
    ("multi-krum", "name = 'krum'\nliars = 1\nkeep = 7"),
    ("bulyan", "name = 'bulyan'\nliars = 1"),
    ("median", "name = 'median'"),
];

const TRIMMED: (&str, &str) = ("trimmed-mean", "name = 'trimmed-mean'\nshare = 0.1");

const ALPHAS: [f64; 3] = [0.1, 0.5, 1.0];
const NETS: [&str; 2] = ["regression", "perceptron"];

/// Tuned on seeds that no table uses, for each strategy and net, at the middle share.
const RATES: [&str; 4] = ["0.01", "0.03", "0.1", "0.3"];
const TUNING_SEEDS: std::ops::Range<u64> = 1000..1004;

fn strategies() -> impl Iterator<Item = (&'static str, &'static str)> {
    STRATEGIES.into_iter().chain([TRIMMED])
}

pub(super) fn cells() -> Vec<String> {
    let mut cells = Vec::new();
    for net in NETS {
        for alpha in ALPHAS {
            cells.extend(strategies().map(|(strategy, _)| cell(net, alpha, strategy)));
        }
    }
    cells
}

fn cell(net: &str, alpha: f64, strategy: &str) -> String {
    format!("accuracy.{net}.dirichlet-{alpha}.{strategy}")
}

fn net(name: &str) -> Net {
    match name {
        "regression" => Net::regression(),
        _ => Net::perceptron(),
    }
}

/// The accuracy after the last round: 20 clients, 10 a round, 2 passes in batches of 16 at a step of 0.05.
fn accuracy(net: &Net, alpha: f64, section: &str, rounds: u64, seed: u64) -> Result<f64> {
    let mut random = Rng::with_seed(seed);
    let split = split(&mut random);
    let shards = by_label(split.train, 20, alpha, &mut random);
    // Its variates are plain means in the paper.
    let weights = if section.contains("scaffold") {
        "uniform"
    } else {
        "samples"
    };
    let run = Run::from_toml(&format!(
        "name = 'convergence'\nrounds = {rounds}\nstart-with = 20\nweights = '{weights}'\n[pace]\nmode = 'synchronous'\nclients = 10\n\
         [strategy]\n{section}\n[training]\nepochs = 2\nbatch = 16\nlearning-rate = 0.05\n[evaluation]\nevery = 0\n"
    ))?;
    let world = World {
        net,
        clients: shards.into_iter().map(Client::new).collect(),
        held: &split.held,
        run,
        seed: random.u64(..),
        target: None,
    };
    world
        .play()?
        .last()
        .map(|point| point.accuracy)
        .context("a run without a version")
}

/// The server's step with the best mean accuracy on the tuning seeds, for every strategy that has one to tune.
fn tuned(name: &str, section: &'static str, scale: &Scale) -> Result<String> {
    if !section.contains("RATE") {
        return Ok(section.into());
    }
    let net = net(name);
    let mut best = (f64::MIN, String::new());
    // FedAvgM moves by whole updates, the others by their signs, more or less.
    let rates = RATES
        .iter()
        .chain(section.contains("fed-avg-m").then_some(&"1.0"));
    for rate in rates {
        let section = section.replace("RATE", rate);
        let of_rate = per_seed(TUNING_SEEDS, |seed| {
            accuracy(&net, 0.5, &section, scale.rounds, seed)
        })?;
        let sum: f64 = of_rate.iter().sum();
        if sum > best.0 {
            best = (sum, section);
        }
    }
    Ok(best.1)
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    let mut chosen = BTreeMap::new();
    for name in NETS {
        for (strategy, section) in strategies() {
            let section = tuned(name, section, scale)?;
            for alpha in ALPHAS {
                let net = net(name);
                let shares = per_seed(scale.seeds.clone(), |seed| {
                    accuracy(&net, alpha, &section, scale.rounds, seed)
                })?;
                let percent: Vec<f64> = shares.iter().map(|share| 100.0 * share).collect();
                let key = cell(name, alpha, strategy);
                report.estimate(&key, bootstrap(&percent, mean), "%", Target::Shown);
                report.keep_raw(&key, &percent);
            }
            chosen.insert(format!("{name}.{strategy}"), section);
        }
    }
    report.keep_raw("strategies", &chosen);
    Ok(())
}
