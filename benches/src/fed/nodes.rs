//! Five nodes as processes of their own, each with its share of the digits: what their model comes to over ten seeds, and what it comes
//! to where the driver and two of the others are killed on the way.

use super::ALPHA;
use crate::site::Site;
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use karman_node::{FedEvent, FedStatus};
use karman_study::interval::{bootstrap, mean};
use karman_study::report::{Report, Target};
use std::path::Path;
use std::time::{Duration, Instant};

const NODES: usize = 5;
const ROUNDS: u64 = 24;
/// The version after which nodes are killed.
const KILLED_AFTER: u64 = 3;
/// Within which a run is over, those that were killed back in it.
const OVER: Duration = Duration::from_secs(240);
const LOOK: Duration = Duration::from_millis(50);
/// The share of digits held back that the mean of all seeds is to get right.
const LEAST: f64 = 0.95;

/// Both rows.
pub(super) fn run(report: &mut Report, karman: &Path, folder: &Path, quick: bool) -> Result<()> {
    let seeds = if quick { 2 } else { 10 };
    let runtime = tokio::runtime::Runtime::new()?;
    for (key, kills) in [
        ("accuracy.five_nodes", false),
        ("accuracy.five_nodes.killed", true),
    ] {
        match runtime.block_on(accuracies(karman, &folder.join(key), kills, seeds)) {
            Ok(accuracies) => {
                report.estimate(key, bootstrap(&accuracies, mean), "", Target::AtLeast(LEAST));
                report.keep_raw(key, &accuracies);
            }
            Err(error) => report.void(key, format!("{error:#}")),
        }
    }
    Ok(())
}

/// Of the last version, for each seed: it decides who has which digits, and in which order they are learnt.
async fn accuracies(karman: &Path, folder: &Path, kills: bool, seeds: u64) -> Result<Vec<f64>> {
    let mut mesh = Five::start(karman, folder).await?;
    let mut accuracies = Vec::new();
    for seed in 0..seeds {
        let accuracy = mesh.learn(seed, kills).await;
        let accuracy = accuracy.with_context(|| format!("seed {seed}"))?;
        eprintln!("seed {seed}: accuracy {accuracy:.4}");
        accuracies.push(accuracy);
    }
    Ok(accuracies)
}

/// The first of them drives, and trains like the others.
struct Five(Vec<Site>);

impl Five {
    async fn start(karman: &Path, folder: &Path) -> Result<Self> {
        let mut sites: Vec<Site> = Vec::new();
        for number in 0..NODES {
            let tier = if number == 0 { "cloud" } else { "edge" };
            let config =
                format!("tier = '{tier}'\n[mesh]\nlisten = '127.0.0.1:0'\nfind-neighbours = false\n");
            let mut site = Site::new(karman, folder.join(format!("node-{number}")), &config)?;
            match sites.first() {
                None => {
                    site.run(&["mesh", "init"])?;
                    site.up(&[]).await?;
                }
                Some(first) => {
                    let word = first.run(&["mesh", "invite", "--tier", tier])?;
                    site.up(&["--join", &word]).await?;
                }
            }
            sites.push(site);
        }
        let first = &sites[0];
        Site::soon(async || {
            let offers = first.run(&["mesh", "offers", "--json"])?;
            ensure!(
                offers.lines().count() == NODES,
                "the nodes do not find each other"
            );
            Ok(())
        })
        .await?;
        let plugin = std::path::absolute("target/guests/fed-digits.wasm")?;
        first.run(&["deploy", &plugin.display().to_string(), "--on", "all"])?;
        Ok(Self(sites))
    }

    /// The accuracy after the last round.
    async fn learn(&mut self, seed: u64, kills: bool) -> Result<f64> {
        let file = self.0[0].state().join("five.toml");
        std::fs::write(&file, description(seed))?;
        let file = file.display().to_string();
        self.0[0].run(&["fed", "run", &file, "--again", "--detach"])?;
        if kills {
            self.until(|status| version(status) >= KILLED_AFTER).await?;
            self.kill_some().await?;
        }
        let status = self.until(|status| !status.running).await?;
        ensure!(
            version(&status) == ROUNDS,
            "it ended after {} versions",
            version(&status)
        );
        let judged = status.log.iter().rev().find_map(|event| match event {
            FedEvent::Judged { accuracy, .. } => Some(*accuracy),
            _ => None,
        });
        judged.context("nobody judged it")
    }

    /// The driver and two of the others, all at once; then they are started again.
    async fn kill_some(&mut self) -> Result<()> {
        let mut others: Vec<usize> = (1..NODES).collect();
        fastrand::shuffle(&mut others);
        let victims = [others[0], others[1], 0];
        for victim in victims {
            self.0[victim].kill()?;
        }
        for victim in victims {
            self.0[victim].up(&[]).await?;
        }
        Ok(())
    }

    async fn until(&self, reached: impl Fn(&FedStatus) -> bool) -> Result<FedStatus> {
        let started = Instant::now();
        loop {
            let asked = self.0[0].order(Method::GET, "/fed/five?after=0", Bytes::new());
            match asked.await {
                Ok(status) if reached(&status) => return Ok(status),
                Err(error) if started.elapsed() > OVER => return Err(error),
                Ok(status) if started.elapsed() > OVER => {
                    bail!("the run does not get there: {}", stands(&status))
                }
                _ => tokio::time::sleep(LOOK).await,
            }
        }
    }
}

/// Where a run is, and what it told last.
fn stands(status: &FedStatus) -> String {
    let last = &status.log[status.log.len().saturating_sub(5)..];
    let running = if status.running { "runs" } else { "rests" };
    format!("it {running} at version {}; {last:?}", version(status))
}

fn version(status: &FedStatus) -> u64 {
    status.status.as_ref().map_or(0, |status| status.version)
}

fn description(seed: u64) -> String {
    format!(
        "name = 'five'\nrounds = {ROUNDS}\nstart-with = {NODES}\nseed = {seed}\n\
         [clients]\nplugin = 'fed-digits'\nshares = {NODES}\n\
         [clients.properties]\nmodel = 'convolution'\nalpha = '{ALPHA}'\nsplit = '{seed}'\n\
         [pace]\nmode = 'synchronous'\nclients = {NODES}\n\
         [training]\nepochs = 5\nbatch = 8\nlearning-rate = 0.3\n\
         [evaluation]\nclients = {NODES}\n"
    )
}
