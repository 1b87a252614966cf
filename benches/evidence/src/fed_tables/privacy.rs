//! `fed-privacy`: what differential privacy costs in accuracy.
//!
//! 200 clients with the same number of digits each, of which chance draws a quarter in every round; clipped updates and the discrete Gaussian
//! noise of the coordinator that ships, whose account says what is spent (δ = 1e-5, one client more or less). Multinomial logistic
//! regression, 60 rounds, 30 seeds; the size of a step and the norm were chosen on other seeds. A row is a noise multiplier.
//!
//! | key | what |
//! |---|---|
//! | `accuracy.noise-Z`, `accuracy.without` | held-out accuracy in percent after the last round; without noise and clipping |
//! | `epsilon.noise-Z` | what was spent until then |

use super::digits::{equal, split};
use super::net::Net;
use super::per_seed;
use super::world::{Client, World};
use anyhow::{Context, Result};
use fastrand::Rng;
use karman_fed::Run;
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Kind, Report, Target};

const CLIENTS: usize = 200;
const ROUNDS: u64 = 60;
const NOISE: [f64; 7] = [0.5, 0.7, 1.0, 1.5, 2.5, 4.0, 8.0];
/// Settings that are tuned for each noise: norm of an update, and size of a step.
const SETTINGS: [(f64, f64); 4] = [(0.3, 0.05), (0.6, 0.05), (0.6, 0.1), (1.2, 0.1)];
const TUNING_SEEDS: std::ops::Range<u64> = 1000..1004;

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<()> {
    let seeds = if quick { 0..2 } else { 0..30 };
    let mut report = Report::new("fed-privacy");
    report.kind(Kind::Simulated);
    let keys = NOISE
        .iter()
        .flat_map(|noise| ["accuracy", "epsilon"].map(|of| key(of, *noise)));
    report.register(keys.chain(["accuracy.without".into()]));
    let mut table = Vec::new();
    for noise in NOISE.map(Some).into_iter().chain([None]) {
        let setting = tuned(noise)?;
        let ended = per_seed(seeds.clone(), |seed| learn(noise, setting, seed))?;
        let accuracies: Vec<f64> = ended.iter().map(|(accuracy, _)| *accuracy).collect();
        let accuracy = bootstrap(&accuracies, mean);
        match noise {
            None => report.estimate("accuracy.without", accuracy, "%", Target::Shown),
            Some(noise) => {
                report.estimate(&key("accuracy", noise), accuracy, "%", Target::Shown);
                // The account depends on no seed.
                let epsilon = ended.first().and_then(|(_, epsilon)| *epsilon);
                let epsilon = epsilon.context("a private run says what it has spent")?;
                report.figure(&key("epsilon", noise), epsilon, "", Target::Shown);
            }
        }
        table.push((noise, setting, ended));
    }
    report.keep_raw("runs", &table);
    report.write_and_print()
}

fn key(of: &str, noise: f64) -> String {
    format!("{of}.noise-{noise}")
}

/// The setting by which it comes furthest.
fn tuned(noise: Option<f64>) -> Result<(f64, f64)> {
    let mut best = (f64::NEG_INFINITY, SETTINGS[0]);
    for setting in SETTINGS {
        let accuracies: Vec<f64> = per_seed(TUNING_SEEDS, |seed| Ok(learn(noise, setting, seed)?.0))?;
        let accuracy = mean(&accuracies);
        if accuracy > best.0 {
            best = (accuracy, setting);
        }
    }
    Ok(best.1)
}

/// The accuracy in percent after the last round, and ε.
fn learn(noise: Option<f64>, (norm, rate): (f64, f64), seed: u64) -> Result<(f64, Option<f64>)> {
    let mut random = Rng::with_seed(seed);
    let split = split(&mut random);
    let clients = equal(split.train, CLIENTS).into_iter().map(Client::new).collect();
    let privacy = noise.map_or_else(String::new, |noise| {
        format!(
            "[privacy]\nnoise-multiplier = {noise:?}\nrate = 0.25\ndelta = 1e-5\nclipping = {{ kind = 'fixed', norm = {norm} }}\n"
        )
    });
    let run = Run::from_toml(&format!(
        "name = 'privacy'\nrounds = {ROUNDS}\nstart-with = {CLIENTS}\nweights = 'uniform'\n[pace]\nmode = 'synchronous'\n\
         clients = {}\nminimum = 1\n{privacy}[training]\nepochs = 5\nbatch = 8\nlearning-rate = {rate}\npartial-work = false\n\
         [evaluation]\nevery = 0\n",
        CLIENTS / 4
    ))?;
    let world = World {
        net: &Net::regression(),
        clients,
        held: &split.held,
        run,
        seed: random.u64(..),
        target: None,
    };
    let last = world.play()?.pop().context("no round came to its end")?;
    Ok((100.0 * last.accuracy, last.epsilon))
}
