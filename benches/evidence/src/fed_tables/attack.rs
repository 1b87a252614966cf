//! What is left of the accuracy when some clients lie.

use super::digits::{by_label, split};
use super::net::Net;
use super::world::{Attack, Client, World};
use super::{Scale, per_seed};
use anyhow::{Context, Result};
use fastrand::Rng;
use karman_fed::{Run, RunError};
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};

const CLIENTS: usize = 20;
const LIARS: [usize; 3] = [2, 4, 6];

const ATTACKS: [(&str, Attack); 4] = [
    ("sign-flip", Attack::SignFlip),
    ("scaling", Attack::Scaling),
    ("label-flip", Attack::LabelFlip),
    ("inner-product", Attack::InnerProduct),
];

/// The mean as a comparator, and the robust rules, each told how many liars there are.
const RULES: [&str; 6] = [
    "fed-avg",
    "median",
    "trimmed-mean",
    "krum",
    "multi-krum",
    "bulyan",
];

fn section(rule: &str, liars: usize) -> String {
    match rule {
        "trimmed-mean" => format!("name = 'trimmed-mean'\nshare = {}", liars as f64 / CLIENTS as f64),
        "krum" => format!("name = 'krum'\nliars = {liars}"),
        "multi-krum" => format!("name = 'krum'\nliars = {liars}\nkeep = {}", CLIENTS - liars - 2),
        "bulyan" => format!("name = 'bulyan'\nliars = {liars}"),
        rule => format!("name = '{rule}'"),
    }
}

pub(super) fn cells() -> Vec<String> {
    let mut cells: Vec<String> = RULES.iter().map(|rule| honest_cell(rule)).collect();
    for (attack, _) in ATTACKS {
        for liars in LIARS {
            cells.extend(RULES.iter().map(|rule| cell(attack, liars, rule)));
        }
    }
    cells
}

fn cell(attack: &str, liars: usize, rule: &str) -> String {
    format!(
        "attacked_accuracy.{attack}.{}-percent.{rule}",
        100 * liars / CLIENTS
    )
}

fn honest_cell(rule: &str) -> String {
    format!("attacked_accuracy.none.{rule}")
}

/// The accuracy of logistic regression after the last round with all 20 clients, labels dealt out by Dirichlet 1.
fn accuracy(section: &str, attack: Option<Attack>, liars: usize, scale: &Scale, seed: u64) -> Result<f64> {
    let mut random = Rng::with_seed(seed);
    let split = split(&mut random);
    let shards = by_label(split.train, CLIENTS, 1.0, &mut random);
    let mut clients: Vec<Client> = shards.into_iter().map(Client::new).collect();
    for liar in random.choose_multiple(0..CLIENTS, liars) {
        clients[liar].attack = attack;
    }
    let world = World {
        net: &Net::regression(),
        clients,
        held: &split.held,
        run: described(section, scale.rounds)?,
        seed: random.u64(..),
        target: None,
    };
    world
        .play()?
        .last()
        .map(|point| point.accuracy)
        .context("a run without a version")
}

fn described(section: &str, rounds: u64) -> Result<Run, RunError> {
    Run::from_toml(&format!(
        "name = 'attack'\nrounds = {rounds}\nstart-with = {CLIENTS}\nweights = 'uniform'\n\
         [pace]\nmode = 'synchronous'\nclients = {CLIENTS}\n[strategy]\n{section}\n\
         [training]\nepochs = 2\nbatch = 16\nlearning-rate = 0.05\n[evaluation]\nevery = 0\n"
    ))
}

pub(super) fn study(report: &mut Report, scale: &Scale) -> Result<()> {
    for rule in RULES {
        // What the rule costs when nobody lies, though it was told that a tenth may.
        show(
            report,
            &honest_cell(rule),
            &section(rule, LIARS[0]),
            None,
            0,
            scale,
        )?;
    }
    for (name, attack) in ATTACKS {
        for liars in LIARS {
            for rule in RULES {
                show(
                    report,
                    &cell(name, liars, rule),
                    &section(rule, liars),
                    Some(attack),
                    liars,
                    scale,
                )?;
            }
        }
    }
    Ok(())
}

fn show(
    report: &mut Report,
    key: &str,
    section: &str,
    attack: Option<Attack>,
    liars: usize,
    scale: &Scale,
) -> Result<()> {
    if let Err(error) = described(section, scale.rounds) {
        report.void(key, format!("not defined: {error}"));
        return Ok(());
    }
    let shares = per_seed(scale.seeds.clone(), |seed| {
        accuracy(section, attack, liars, scale, seed)
    })?;
    let percent: Vec<f64> = shares.iter().map(|share| 100.0 * share).collect();
    report.estimate(key, bootstrap(&percent, mean), "%", Target::Shown);
    report.keep_raw(key, &percent);
    Ok(())
}
