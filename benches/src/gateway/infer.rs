//! The same model behind ours and theirs.

use super::peers::{Peer, Running, question};
use super::{Blocks, CONNECTIONS, Setting, median_of};
use crate::wrk;
use anyhow::{Context, Result, ensure};
use karman_study::report::{Report, Target};
use std::path::{Path, PathBuf};

const MIB: f64 = (1 << 20) as f64;
/// Seconds of one block.
const BLOCK: u32 = 1;
/// By how much two answers may differ: the same library, the same graph.
const SAME: f64 = 1e-5;

/// One that we are compared with.
pub(super) struct Compared {
    name: &'static str,
    pub(super) key: &'static str,
    least: f64,
    /// Its sensible settings on a machine with this many cores, of which the fastest counts.
    settings: fn(cores: u32) -> Vec<Peer>,
}

pub(super) const PEERS: [Compared; 3] = [
    Compared {
        name: "kserve",
        key: "infer_rps_vs_kserve",
        least: 3.0,
        settings: |cores| {
            let one = (1, [1, cores]);
            let each = (cores, [1, 1]);
            let of = |(workers, threads): (u32, [u32; 2])| threads.map(|threads| (workers, threads));
            distinct([of(one), of(each)].concat(), |(workers, threads)| Peer::Kserve {
                workers,
                threads,
            })
        },
    },
    Compared {
        name: "ray_serve",
        key: "infer_rps_vs_ray_serve",
        least: 5.0,
        settings: |cores| {
            distinct(vec![(1, 1), (1, cores), (cores, 1)], |(replicas, threads)| {
                Peer::Ray { replicas, threads }
            })
        },
    },
    Compared {
        name: "plain_axum",
        key: "infer_rps_vs_plain_axum",
        least: 0.8,
        settings: |_| [false, true].map(|inline| Peer::Axum { inline }).to_vec(),
    },
];

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let script = script(setting.folder.path())?;
    let ours = Running::start(setting, &Peer::Karman)?;
    let mut blocks_of_ours: [Vec<f64>; 3] = Default::default();
    for peer in &PEERS {
        match compare(setting, &script, &ours, peer, report) {
            Ok(rates) => {
                for (all, rates) in blocks_of_ours.iter_mut().zip(rates) {
                    all.extend(rates);
                }
            }
            Err(reason) => {
                for connections in CONNECTIONS {
                    report.void(&format!("{}.c{connections}", peer.key), format!("{reason:#}"));
                }
            }
        }
    }
    for (connections, rates) in CONNECTIONS.into_iter().zip(blocks_of_ours) {
        let rate = karman_study::pairs::median(rates);
        report.figure(
            &format!("infer_rps.karman.c{connections}"),
            rate,
            "1/s",
            Target::Shown,
        );
    }
    report.figure(
        "memory_mib.karman",
        ours.memory() as f64 / MIB,
        "MiB",
        Target::Shown,
    );
    Ok(())
}

/// Measures one peer at every number of connections; our rates at each.
fn compare(
    setting: &Setting,
    script: &Path,
    ours: &Running,
    peer: &Compared,
    report: &mut Report,
) -> Result<[Vec<f64>; 3]> {
    let best = best_settings(setting, script, ours, peer)?;
    let mut rates_of_ours: [Vec<f64>; 3] = Default::default();
    let mut memory = 0;
    for (at, connections) in CONNECTIONS.into_iter().enumerate() {
        let theirs = Running::start(setting, &best[at])?;
        let load = |url: String| wrk::load(&url, connections, BLOCK, Some(script));
        load(ours.url())?;
        load(theirs.url())?;
        let Blocks { rates, p99s } =
            Blocks::measure(setting.blocks(), || load(ours.url()), || load(theirs.url()))?;
        memory = memory.max(theirs.memory());
        let name = peer.name;
        let mut show = |key: String, value, unit| report.figure(&key, value, unit, Target::Shown);
        show(
            format!("infer_rps.{name}.c{connections}"),
            median_of(&rates, |pair| pair.theirs),
            "1/s",
        );
        show(
            format!("infer_p99_us.{name}.c{connections}"),
            median_of(&p99s, |pair| pair.theirs),
            "us",
        );
        show(
            format!("infer_p99_us.karman_beside_{name}.c{connections}"),
            median_of(&p99s, |pair| pair.ours),
            "us",
        );
        rates_of_ours[at].extend(rates.iter().map(|pair| pair.ours));
        report.ratio(
            &format!("{}.c{connections}", peer.key),
            rates,
            Target::AtLeast(peer.least),
        );
    }
    let key = format!("memory_mib.{}", peer.name);
    report.figure(&key, memory as f64 / MIB, "MiB", Target::Shown);
    Ok(rates_of_ours)
}

/// The fastest setting for each number of connections.
fn best_settings(setting: &Setting, script: &Path, ours: &Running, peer: &Compared) -> Result<[Peer; 3]> {
    let expected = ours.answer()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let mut best: [Option<(f64, Peer)>; 3] = Default::default();
    let mut failed = None;
    for candidate in (peer.settings)(cores) {
        let running = match Running::start(setting, &candidate) {
            Ok(running) => running,
            Err(error) => {
                eprintln!("{candidate:?}: {error:#}");
                failed = Some(error);
                continue;
            }
        };
        same(&expected, &running.answer()?).with_context(|| format!("{candidate:?}"))?;
        for (best, connections) in best.iter_mut().zip(CONNECTIONS) {
            // The first second warms it up.
            wrk::load(&running.url(), connections, 1, Some(script))?;
            let rate = wrk::load(&running.url(), connections, 2, Some(script))?.rate;
            eprintln!("{candidate:?} at {connections}: {rate:.0}/s");
            if best.as_ref().is_none_or(|(fastest, _)| rate > *fastest) {
                *best = Some((rate, candidate.clone()));
            }
        }
    }
    let mut chosen = Vec::new();
    for best in best {
        match (best, &mut failed) {
            (Some((_, peer)), _) => chosen.push(peer),
            (None, failed) => return Err(failed.take().context("it runs with no setting")?),
        }
    }
    chosen
        .try_into()
        .ok()
        .context("one for each number of connections")
}

/// Whether both gave the same answer.
fn same(ours: &[f64], theirs: &[f64]) -> Result<()> {
    let near = ours
        .iter()
        .zip(theirs)
        .all(|(ours, theirs)| (ours - theirs).abs() <= SAME);
    ensure!(
        near && ours.len() == theirs.len(),
        "it answers {theirs:?} instead of {ours:?}"
    );
    Ok(())
}

/// What `wrk` is to send.
fn script(folder: &Path) -> Result<PathBuf> {
    let file = folder.join("infer.lua");
    let body = question().to_string();
    let text = format!(
        "wrk.method = \"POST\"\nwrk.headers[\"content-type\"] = \"application/json\"\nwrk.body = [[{body}]]\n"
    );
    std::fs::write(&file, text)?;
    Ok(file)
}

fn distinct<T: Copy + PartialEq>(mut all: Vec<T>, of: impl Fn(T) -> Peer) -> Vec<Peer> {
    all.dedup();
    all.into_iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_compared_by_their_numbers() {
        assert!(same(&[0.1, 0.9], &[0.100_001, 0.9]).is_ok());
        assert!(same(&[0.1, 0.9], &[0.2, 0.8]).is_err());
        assert!(same(&[0.1], &[0.1, 0.9]).is_err());
    }

    #[test]
    fn a_machine_with_one_core_has_fewer_settings() {
        let of = |cores| (PEERS[0].settings)(cores).len();
        assert_eq!((of(1), of(2)), (1, 3));
    }
}
