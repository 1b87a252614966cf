//! `fed-tables`: what the federated strategies, selections, paces and adapters come to on the UCI digits.
//!
//! All of it is simulated: clients train for real (plain gradient descent on their share of the digits), time is virtual, and every
//! round goes through the coordinator that ships. Each cell has 30 seeds, those of selections 120; a seed decides which digits are held back, how the others are
//! dealt out, the first model, speeds and chance. Contenders of one seed share all of that.
//!
//! | key | what |
//! |---|---|
//! | `accuracy.NET.dirichlet-A.STRATEGY` | held-out accuracy in percent after the same number of rounds; server steps tuned on other seeds |
//! | `attacked_accuracy.ATTACK.P-percent.RULE` | the same when P percent of the clients lie; void where the rule is not defined for so many |
//! | `time_to_target_vs_OTHER.SKEW` | virtual seconds to 85 % with the bandit over those with the other selection: ratio of sums over seeds |
//! | `time_to_target_vs_synchronous.dirichlet-A.PACE` | the same to 90 % for the other paces over the synchronous one |
//! | `lora_accuracy.METHOD` | held-out accuracy in percent of a net adapted by eight clients of unequal ranks |
//! | `lora_p_florist_vs.METHOD` | p-value of the signed-rank test between the two, after Holm's correction |
//! | `lora_bytes_vs_factor_mean.METHOD` | bytes to and from clients over those of averaging factors |
//! | `florist_exactness` | largest relative error of the pair with everything kept |
//! | `parablock_round_vs_longer.CASE` | a round in ParaBlock's form over the longer of training and transfer |
//! | `parablock_accuracy_gap_points` | accuracy of block rounds one after the other minus that of overlapped ones |

mod asynchrony;
mod attack;
mod convergence;
mod digits;
mod draws;
mod lora;
mod net;
pub(crate) mod privacy;
mod selection;
mod statistics;
mod world;

use anyhow::{Result, anyhow};
use karman_study::report::{Kind, Report};
use std::ops::Range;

/// How much is run.
struct Scale {
    seeds: Range<u64>,
    /// Of selections, which want more: how long the first rounds take is much by chance.
    selections: Range<u64>,
    rounds: u64,
}

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<()> {
    let scale = match quick {
        true => Scale {
            seeds: 0..2,
            selections: 5000..5002,
            rounds: 5,
        },
        false => Scale {
            seeds: 0..30,
            selections: 5000..5120,
            rounds: 30,
        },
    };
    let mut report = Report::new("fed-tables");
    report.kind(Kind::Simulated);
    let cells = [
        convergence::cells(),
        attack::cells(),
        selection::cells(),
        asynchrony::cells(),
        lora::cells(),
    ];
    report.register(cells.into_iter().flatten());
    convergence::study(&mut report, &scale)?;
    attack::study(&mut report, &scale)?;
    selection::study(&mut report, &scale)?;
    asynchrony::study(&mut report, &scale)?;
    lora::study(&mut report, &scale)?;
    report.write_and_print()
}

/// One value for each seed, in their order. Nothing is timed, so they are computed side by side.
pub(crate) fn per_seed<T: Send>(
    seeds: Range<u64>,
    value: impl Fn(u64) -> Result<T> + Sync,
) -> Result<Vec<T>> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let seeds: Vec<u64> = seeds.collect();
    let work = |seeds: &[u64]| seeds.iter().map(|seed| value(*seed)).collect::<Result<Vec<T>>>();
    std::thread::scope(|scope| {
        let parts = seeds.chunks(seeds.len().div_ceil(threads).max(1));
        let running: Vec<_> = parts.map(|part| scope.spawn(|| work(part))).collect();
        let mut values = Vec::new();
        for part in running {
            values.extend(
                part.join()
                    .map_err(|_| anyhow!("a thread of the study panicked"))??,
            );
        }
        Ok(values)
    })
}

fn ratio_of_sums(pairs: &[(f64, f64)]) -> f64 {
    pairs.iter().map(|pair| pair.0).sum::<f64>() / pairs.iter().map(|pair| pair.1).sum::<f64>()
}
