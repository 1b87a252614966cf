//! Federated averaging with 100 clients on one machine, all of them in every round, against Flower's simulation and against a
//! loop in NumPy that does nothing but the arithmetic. Same data, same shares of them, same model, steps, batch and type.
//!
//! Keys: `rounds_per_s_vs_flower.CELL` (Flower at its best over its CPUs per client), `rounds_per_s_vs_plain_loop.CELL`,
//! `memory_vs_flower` (peak of the proportional set sizes of all processes, at 10 Hz), `rounds_per_s.NAME.CELL`,
//! `accuracy_minus_flower.CELL` (on the samples held back, 90 % interval over seeds: equal where all of it is within a point). The cells:
//! `tiny` is logistic regression, one pass; `compute` a convolutional net with so many passes that NumPy takes at least 50 ms for one
//! client, which `fit_ms.plain_loop.CELL` shows.
//!
//! `accuracy.five_nodes`: not simulated, but five nodes as processes ([`nodes`]), the mean over seeds; `accuracy.five_nodes.killed`:
//! the same where the driver and two others are killed on the way.

mod contender;
#[path = "../../../plugins/fed-digits/src/digits.rs"]
#[allow(dead_code, reason = "the plugin uses the rest of it")]
mod digits;
mod nodes;

use anyhow::{Context, Result, ensure};
use contender::{Contender, Ran};
use digits::{CARRIED, Dealt, dealt};
use karman_study::interval::{bootstrap_for_equality, mean};
use karman_study::machine::beside_us;
use karman_study::pairs::{self, Pair};
use karman_study::report::{Report, Target};
use std::fs;
use std::path::Path;

/// How many take part, all of them in every round.
const CLIENTS: usize = 100;
/// How unevenly labels are dealt: the Dirichlet distribution's parameter.
const ALPHA: f64 = 0.5;
/// The least milliseconds of a fit in the cell `compute`, by NumPy.
const LEAST_FIT_MS: f64 = 50.0;
/// Two accuracies within this are equal.
const EQUAL: f64 = 0.01;
/// Flower's settings to choose the best from, for two cores and for more.
const CPUS_PER_CLIENT: [&str; 3] = ["0.5", "1", "2"];

/// What is trained.
#[derive(Clone, Copy)]
struct Cell {
    name: &'static str,
    model: &'static str,
    rounds: usize,
    epochs: usize,
    rate: f64,
    least_vs_flower: f64,
    vs_plain_loop: Target,
}

const TINY: Cell = Cell {
    name: "tiny",
    model: "regression",
    rounds: 20,
    epochs: 1,
    rate: 0.3,
    least_vs_flower: 10.0,
    vs_plain_loop: Target::Shown,
};
const COMPUTE: Cell = Cell {
    name: "compute",
    model: "convolution",
    rounds: 8,
    epochs: 300,
    rate: 0.04,
    least_vs_flower: 1.0,
    vs_plain_loop: Target::AtLeast(0.8),
};

pub(crate) fn run(quick: bool) -> Result<Report> {
    let folder = tempfile::tempdir()?;
    deal(folder.path())?;
    let program = beside_us("karman")?;
    let karman = Contender::karman(&program, folder.path())?;
    let python = std::path::absolute("target/tools/flower/bin/python")?;
    ensure!(
        python.exists(),
        "{} is missing: `cargo xtask bench fed` installs it",
        python.display()
    );
    let plain = Contender::python(&python, folder.path(), &["plain_loop.py"]);
    let mut report = Report::new("fed");
    for cell in [TINY, COMPUTE] {
        let flower = best_flower(&python, folder.path(), cell)?;
        compare(&mut report, cell, quick, [&karman, &flower, &plain])?;
    }
    nodes::run(&mut report, &program, folder.path(), quick)?;
    Ok(report)
}

/// Writes each client's share as files for the comparators: the very samples that the plugin deals to this client.
fn deal(folder: &Path) -> Result<()> {
    let records = digits::records(CARRIED).context("the digits that the plugin carries")?;
    let mut random = fastrand::Rng::with_seed(0);
    let Dealt { train, held } = Dealt::held_back(records.len(), &mut random);
    let write = |name: String, places: &[u32]| {
        let records = places.iter().map(|place| &records[*place as usize]);
        let bytes: Vec<u8> = records.flatten().copied().collect();
        fs::write(folder.join(name), bytes)
    };
    write("held.bin".into(), &held)?;
    let shares = dealt(records, train, CLIENTS, ALPHA, &mut random);
    shares
        .iter()
        .enumerate()
        .try_for_each(|(client, share)| write(format!("train-{client}.bin"), share))?;
    Ok(())
}

/// Flower with the setting by which it is fastest here.
fn best_flower(python: &Path, folder: &Path, cell: Cell) -> Result<Contender> {
    let mut best: Option<(f64, Contender)> = None;
    for cpus in CPUS_PER_CLIENT {
        let flower = Contender::python(python, folder, &["flower.py", cpus]);
        let cell = Cell { rounds: 4, ..cell };
        let ran = match flower.run(&cell, 0) {
            Ok(ran) => ran,
            // More CPUs per client than there are: nothing is ever scheduled.
            Err(error) => {
                eprintln!("flower with {cpus} CPUs per client: {error:#}");
                continue;
            }
        };
        eprintln!(
            "flower with {cpus} CPUs per client: {:.3} rounds/s",
            ran.rounds_per_s
        );
        if best
            .as_ref()
            .is_none_or(|(fastest, _)| ran.rounds_per_s > *fastest)
        {
            best = Some((ran.rounds_per_s, flower));
        }
    }
    best.map(|(_, flower)| flower)
        .context("Flower runs with no setting")
}

fn compare(
    report: &mut Report,
    cell: Cell,
    quick: bool,
    [karman, flower, plain]: [&Contender; 3],
) -> Result<()> {
    let seeds = if quick { 3 } else { 10 };
    let mut ran: [Vec<Ran>; 3] = [const { Vec::new() }; 3];
    for seed in 0..seeds {
        let mut order = [0, 1, 2];
        fastrand::shuffle(&mut order);
        for at in order {
            ran[at].push([karman, flower, plain][at].run(&cell, seed)?);
        }
    }
    let key = |name: &str| format!("{name}.{}", cell.name);
    let paired = |other: usize, what: fn(&Ran) -> f64| -> Vec<Pair> {
        let pairs = ran[0].iter().zip(&ran[other]);
        pairs
            .map(|(ours, theirs)| Pair {
                ours: what(ours),
                theirs: what(theirs),
            })
            .collect()
    };
    for (at, name) in ["karman", "flower", "plain_loop"].into_iter().enumerate() {
        let middle = |what: fn(&Ran) -> f64| pairs::median(ran[at].iter().map(what).collect());
        let rates = key(&format!("rounds_per_s.{name}"));
        report.figure(&rates, middle(|ran| ran.rounds_per_s), "1/s", Target::Shown);
        let peak = key(&format!("peak_mib.{name}"));
        report.figure(
            &peak,
            middle(|ran| ran.peak_bytes / 1048576.0),
            "MiB",
            Target::Shown,
        );
        let accuracy = key(&format!("accuracy.{name}"));
        report.figure(&accuracy, middle(|ran| ran.accuracy), "", Target::Shown);
    }
    let differences: Vec<f64> = paired(1, |ran| ran.accuracy)
        .iter()
        .map(|pair| pair.ours - pair.theirs)
        .collect();
    let difference = bootstrap_for_equality(&differences, mean);
    report.estimate(&key("accuracy_minus_flower"), difference, "", Target::Shown);
    let vs_flower = key("rounds_per_s_vs_flower");
    match difference.lo.abs().max(difference.hi.abs()) <= EQUAL || quick {
        true => report.ratio(
            &vs_flower,
            paired(1, |ran| ran.rounds_per_s),
            Target::AtLeast(cell.least_vs_flower),
        ),
        false => report.void(&vs_flower, "the accuracies are not equal within a point"),
    }
    let fit_ms = pairs::median(ran[2].iter().map(|ran| 1e3 / ran.rounds_per_s).collect()) / CLIENTS as f64;
    let long_enough = match cell.vs_plain_loop {
        Target::AtLeast(_) => Target::AtLeast(LEAST_FIT_MS),
        other => other,
    };
    report.figure(&key("fit_ms.plain_loop"), fit_ms, "ms", long_enough);
    let vs_loop = key("rounds_per_s_vs_plain_loop");
    report.ratio(&vs_loop, paired(2, |ran| ran.rounds_per_s), cell.vs_plain_loop);
    if cell.name == TINY.name {
        let memory = paired(1, |ran| ran.peak_bytes);
        report.ratio("memory_vs_flower", memory, Target::AtMost(0.2));
    }
    Ok(())
}
