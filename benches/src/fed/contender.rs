//! One of those who run the rounds: a program that tells when each is over, watched from outside.

use super::{ALPHA, CLIENTS, Cell};
use anyhow::{Context, Result, bail, ensure};
use karman_study::machine::{kill_tree, memory_of_tree};
use serde_json::{Value, json};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// Rounds at the start that are not counted: pools fill, code is compiled.
const WARM_UP: usize = 2;
/// How often memory is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Within which a run says something.
const SILENCE: Duration = Duration::from_secs(180);

pub(crate) struct Contender {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
    kind: Kind,
}

enum Kind {
    Karman { plugin: PathBuf },
    Python,
}

/// What came of one run.
pub(crate) struct Ran {
    /// Without the first rounds.
    pub(crate) rounds_per_s: f64,
    /// Of the last version, on the samples held back.
    pub(crate) accuracy: f64,
    /// Proportional set sizes of all its processes together.
    pub(crate) peak_bytes: f64,
}

impl Contender {
    pub(crate) fn karman(program: &Path, folder: &Path) -> Result<Self> {
        let plugin = std::path::absolute("target/guests/fed-digits.wasm")?;
        ensure!(
            plugin.exists(),
            "{} is missing; run `cargo xtask guests` first",
            plugin.display()
        );
        Ok(Self {
            program: program.into(),
            arguments: Vec::new(),
            folder: folder.into(),
            kind: Kind::Karman { plugin },
        })
    }

    /// A script of `benches/fed` with its arguments.
    pub(crate) fn python(python: &Path, folder: &Path, script: &[&str]) -> Self {
        Self {
            program: python.into(),
            arguments: script.iter().map(|word| (*word).to_owned()).collect(),
            folder: folder.into(),
            kind: Kind::Python,
        }
    }

    pub(crate) fn run(&self, cell: &Cell, seed: usize) -> Result<Ran> {
        let mut child = self.command(cell, seed)?.spawn()?;
        let lines = lines_of(&mut child)?;
        let watched = watch(&child, &lines, cell.rounds);
        if watched.is_err() {
            kill_tree(child.id());
        }
        child.wait()?;
        watched
    }

    fn command(&self, cell: &Cell, seed: usize) -> Result<Command> {
        let mut command = Command::new(&self.program);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        match &self.kind {
            Kind::Karman { plugin } => {
                let file = self.folder.join("run.toml");
                fs::write(&file, description(cell, seed, plugin))?;
                command
                    .args(["fed", "run", "--again", "--json"])
                    .arg(file)
                    .env("KARMAN_STATE", self.folder.join("state"))
                    .env("KARMAN_CACHE", self.folder.join("cache"));
            }
            Kind::Python => {
                let scripts = std::path::absolute("benches/fed")?;
                let task = json!({
                    "folder": self.folder, "model": cell.model, "rounds": cell.rounds, "epochs": cell.epochs, "batch": 8,
                    "rate": cell.rate, "seed": seed,
                });
                command
                    .arg(scripts.join(&self.arguments[0]))
                    .args(&self.arguments[1..])
                    .env("PYTHONPATH", &scripts)
                    .env("FED_TASK", task.to_string())
                    .env("FLWR_TELEMETRY_ENABLED", "0")
                    // One thread for each fit, as a guest has.
                    .env("OMP_NUM_THREADS", "1")
                    .env("OPENBLAS_NUM_THREADS", "1");
            }
        }
        Ok(command)
    }
}

fn description(cell: &Cell, seed: usize, plugin: &Path) -> String {
    format!(
        "name = 'bench'\nrounds = {rounds}\nseed = {seed}\n\
         [clients]\nplugin = '{plugin}'\nsimulated = {CLIENTS}\n\
         [clients.properties]\nmodel = '{model}'\nalpha = '{ALPHA}'\n\
         [pace]\nmode = 'synchronous'\nclients = {CLIENTS}\n\
         [training]\nepochs = {epochs}\nbatch = 8\nlearning-rate = {rate}\n\
         [evaluation]\nevery = {rounds}\nclients = {CLIENTS}\n",
        rounds = cell.rounds,
        plugin = plugin.display(),
        model = cell.model,
        epochs = cell.epochs,
        rate = cell.rate,
    )
}

/// A program's lines as they come, with the moment of each.
fn lines_of(child: &mut Child) -> Result<Receiver<(Instant, String)>> {
    let output = child.stdout.take().context("its output is a pipe")?;
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send((Instant::now(), line)).is_err() {
                return;
            }
        }
    });
    Ok(lines)
}

fn watch(child: &Child, lines: &Receiver<(Instant, String)>, rounds: usize) -> Result<Ran> {
    let (mut over, mut accuracy, mut peak) = (Vec::new(), None, 0);
    let mut heard = Instant::now();
    while accuracy.is_none() {
        peak = peak.max(memory_of_tree(child.id()));
        match lines.recv_timeout(LOOK) {
            Ok((at, line)) => {
                heard = at;
                match said(&line) {
                    Some(Said::Round) => over.push(at),
                    Some(Said::Accuracy(value)) => accuracy = Some(value),
                    None => {}
                }
            }
            Err(RecvTimeoutError::Timeout) if heard.elapsed() < SILENCE => {}
            Err(RecvTimeoutError::Timeout) => bail!("it says nothing any more after {} rounds", over.len()),
            Err(RecvTimeoutError::Disconnected) => bail!("it ended after {} rounds", over.len()),
        }
    }
    ensure!(over.len() == rounds, "{} rounds instead of {rounds}", over.len());
    let steady = over[rounds - 1] - over[WARM_UP - 1];
    Ok(Ran {
        rounds_per_s: (rounds - WARM_UP) as f64 / steady.as_secs_f64(),
        accuracy: accuracy.context("an accuracy")?,
        peak_bytes: peak as f64,
    })
}

enum Said {
    Round,
    Accuracy(f64),
}

fn said(line: &str) -> Option<Said> {
    if let Ok(event) = serde_json::from_str::<Value>(line) {
        return match event["event"].as_str()? {
            "round" => Some(Said::Round),
            "judged" => Some(Said::Accuracy(event["accuracy"].as_f64()?)),
            _ => None,
        };
    }
    match line.split_once(' ')? {
        ("round", _) => Some(Said::Round),
        ("accuracy", value) => Some(Said::Accuracy(value.parse().ok()?)),
        _ => None,
    }
}
