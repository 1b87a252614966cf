//! The round trip of a small call.

use super::Setting;
use super::contender::{Contender, times};
use super::karman::Karman;
use super::quinn::Quinn;
use super::serve::Serve;
#[cfg(feature = "peers")]
use super::{grpc::Grpc, nats::Nats};
use anyhow::Result;
use bytes::Bytes;
use karman_study::pairs::{Pair, median, percentile};
use karman_study::report::{Report, Target};
use std::sync::Arc;

const CALLS_PER_BLOCK: usize = 500;

/// One that we are compared with.
struct Peer {
    name: &'static str,
    key: &'static str,
    target: Target,
    contender: Result<Arc<dyn Contender>>,
}

/// p50 and p99 of each block, in microseconds.
type Blocks = Vec<(f64, f64)>;

pub(super) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let ours: Arc<dyn Contender> = Arc::new(setting.runtime.block_on(Karman::tiny(setting))?);
    let mut peers = peers(setting);
    for peer in &peers {
        if let Err(reason) = &peer.contender {
            report.void(peer.key, format!("{reason:#}"));
        }
    }
    peers.retain(|peer| peer.contender.is_ok());
    let all: Vec<Arc<dyn Contender>> = std::iter::once(ours)
        .chain(
            peers
                .iter()
                .filter_map(|peer| peer.contender.as_ref().ok().cloned()),
        )
        .collect();
    measure(setting, &all, 2)?;
    let blocks = measure(setting, &all, setting.blocks())?;
    let names = std::iter::once("karman").chain(peers.iter().map(|peer| peer.name));
    for (name, blocks) in names.zip(&blocks) {
        let of = |part: fn(&(f64, f64)) -> f64| median(blocks.iter().map(part).collect());
        report.figure(
            &format!("call_p50_us.{name}"),
            of(|block| block.0),
            "us",
            Target::Shown,
        );
        report.figure(
            &format!("call_p99_us.{name}"),
            of(|block| block.1),
            "us",
            Target::Shown,
        );
    }
    for (peer, theirs) in peers.iter().zip(&blocks[1..]) {
        let both = blocks[0].iter().zip(theirs);
        let pair = |(ours, theirs): (&(f64, f64), &(f64, f64))| Pair {
            ours: ours.0,
            theirs: theirs.0,
        };
        report.ratio(peer.key, both.map(pair).collect(), peer.target);
    }
    Ok(())
}

fn peers(setting: &Setting) -> Vec<Peer> {
    fn shared<C: Contender + 'static>(started: Result<C>) -> Result<Arc<dyn Contender>> {
        started.map(|contender| Arc::new(contender) as Arc<dyn Contender>)
    }
    let runtime = &setting.runtime;
    #[cfg(feature = "peers")]
    let (grpc, nats) = (
        shared(runtime.block_on(Grpc::start(setting))),
        shared(runtime.block_on(Nats::start(setting))),
    );
    #[cfg(not(feature = "peers"))]
    let without = || Err(anyhow::anyhow!("built without the feature `peers`"));
    #[cfg(not(feature = "peers"))]
    let (grpc, nats) = (without(), without());
    vec![
        Peer {
            name: "raw_quinn",
            key: "call_rtt_vs_raw_quinn",
            target: Target::AtMost(1.5),
            contender: shared(runtime.block_on(Quinn::start(setting, Serve::Quinn))),
        },
        Peer {
            name: "grpc",
            key: "call_rtt_vs_grpc",
            target: Target::AtMost(1.0),
            contender: grpc,
        },
        Peer {
            name: "nats",
            key: "call_rtt_vs_nats",
            target: Target::AtMost(1.0),
            contender: nats,
        },
    ]
}

/// Blocks of each contender; in every round the order is drawn anew.
fn measure(setting: &Setting, all: &[Arc<dyn Contender>], rounds: usize) -> Result<Vec<Blocks>> {
    let body = Bytes::from(vec![7; 1024]);
    let mut blocks = vec![Vec::with_capacity(rounds); all.len()];
    let mut order: Vec<usize> = (0..all.len()).collect();
    for _ in 0..rounds {
        fastrand::shuffle(&mut order);
        for &which in &order {
            let block = times(all[which].clone(), body.clone(), CALLS_PER_BLOCK);
            let times: Vec<f64> = setting.runtime.block_on(block)?;
            let at = |share| percentile(&times, share) * 1e6;
            blocks[which].push((at(0.5), at(0.99)));
        }
    }
    Ok(blocks)
}
