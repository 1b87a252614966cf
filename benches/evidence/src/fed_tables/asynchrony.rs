//! How long synchronous, semi-asynchronous and buffered runs take to an accuracy when speeds are log-normal.

use super::digits::{by_label, split};
use super::net::Net;
use super::world::{Client, World};
use super::{Scale, draws, per_seed};
use anyhow::Result;
use fastrand::Rng;
use karman_fed::Run;
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};

const CLIENTS: usize = 50;
const TARGET: f64 = 0.9;
const ALPHAS: [f64; 2] = [0.5, 1.0];

/// What each pace is tuned among, on seeds that no table uses. Waiting for the slowest of many is no fair comparator: a synchronous run
/// may also have fewer clients, or give up on the slow ones.
const PACES: [(&str, &[&str]); 3] = [
    (
        "synchronous",
        &[
            "clients = 5\ntimeout = '1 d'",
            "clients = 10\ntimeout = '1 d'",
            "clients = 20\ntimeout = '1 d'",
            "clients = 10\ntimeout = '4 s'",
            "clients = 20\ntimeout = '2 s'",
            "clients = 20\ntimeout = '4 s'",
            "clients = 20\ntimeout = '10 s'",
        ],
    ),
    (
        "semi-asynchronous",
        &[
            "clients = 20\nenough = 5\nwait = '1 d'\ntimeout = '1 d'",
            "clients = 20\nenough = 10\nwait = '1 d'\ntimeout = '1 d'",
            "clients = 20\nenough = 15\nwait = '1 d'\ntimeout = '1 d'",
        ],
    ),
    (
        "buffered",
        &[
            "at-once = 20\nbuffer = 5\ntimeout = '1 d'",
            "at-once = 20\nbuffer = 10\ntimeout = '1 d'",
            "at-once = 20\nbuffer = 20\ntimeout = '1 d'",
        ],
    ),
];
const TUNING_SEEDS: std::ops::Range<u64> = 1000..1004;

/// The settings with the shortest times, as a geometric mean over both shares.
fn tuned(name: &str, settings: &[&str]) -> Result<String> {
    let mut best = (f64::INFINITY, String::new());
    for setting in settings {
        let pace = format!("mode = '{name}'\n{setting}");
        let mut sum = 0.0;
        for alpha in ALPHAS {
            let seconds = per_seed(TUNING_SEEDS, |seed| race(&pace, alpha, seed))?;
            sum += seconds.iter().map(|seconds| seconds.ln()).sum::<f64>();
        }
        if sum < best.0 {
            best = (sum, pace);
        }
    }
    Ok(best.1)
}

pub(super) fn cells() -> Vec<String> {
    let paces = ["semi-asynchronous", "buffered"];
    paces
        .iter()
        .flat_map(|pace| ALPHAS.iter().map(move |alpha| cell(pace, *alpha)))
        .collect()
}

fn cell(pace: &str, alpha: f64) -> String {
    format!("time_to_target_vs_synchronous.dirichlet-{alpha}.{pace}")
}

/// Seconds to 90 % with a perceptron; speeds are log-normal with sigma 1.
fn race(pace: &str, alpha: f64, seed: u64) -> Result<f64> {
    let mut random = Rng::with_seed(seed);
    let split = split(&mut random);
    let shards = by_label(split.train, CLIENTS, alpha, &mut random);
    let clients = shards.into_iter().map(|samples| {
        let mut client = Client::new(samples);
        client.per_sample = 0.05 * draws::log_normal(1.0, &mut random);
        client.transfer = 0.1;
        client
    });
    let clients: Vec<Client> = clients.collect();
    let run = Run::from_toml(&format!(
        "name = 'asynchrony'\nrounds = 400\nstart-with = {CLIENTS}\n[pace]\n{pace}\n\
         [limits]\nfailed-rounds = 1000\n[training]\nepochs = 2\nbatch = 8\nlearning-rate = 0.05\npartial-work = false\n[evaluation]\nevery = 0\n"
    ))?;
    let world = World {
        net: &Net::perceptron(),
        clients,
        held: &split.held,
        run,
        seed: random.u64(..),
        target: Some(TARGET),
    };
    Ok(world.play()?.last().map_or(f64::INFINITY, |point| point.seconds))
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    let paces = PACES.map(|(name, settings)| tuned(name, settings).map(|pace| (name, pace)));
    let paces: Vec<(&str, String)> = paces.into_iter().collect::<Result<_>>()?;
    report.keep_raw("paces", &paces);
    for alpha in ALPHAS {
        let mut seconds = Vec::new();
        for (name, pace) in &paces {
            let of_pace = per_seed(scale.seeds.clone(), |seed| race(pace, alpha, seed))?;
            let key = format!("seconds_to_target.dirichlet-{alpha}.{name}");
            report.estimate(&key, bootstrap(&of_pace, mean), "s", Target::Shown);
            report.keep_raw(&key, &of_pace);
            seconds.push(of_pace);
        }
        for ((name, _), of_pace) in PACES.iter().zip(&seconds).skip(1) {
            let pairs: Vec<(f64, f64)> = of_pace.iter().copied().zip(seconds[0].iter().copied()).collect();
            report.estimate(
                &cell(name, alpha),
                bootstrap(&pairs, super::ratio_of_sums),
                "ratio",
                Target::AtMost(1.0),
            );
        }
    }
    Ok(())
}
