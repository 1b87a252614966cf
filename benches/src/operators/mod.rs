//! Who should run one operator: ONNX Runtime, tract, or a plugin that computes with the SIMD of Wasm. The choice that follows from
//! what was measured of this machine beforehand, against what is fastest.
//!
//! One thread each, from a tensor in host memory to an output in host memory, weights loaded beforehand. The profile of the machine
//! is of the probes of `karman_infer::operator`, and is kept in `target/bench/operators.profile.json`: a later run on the same machine,
//! with the same versions, does not measure it again (delete the file to have it measured). No shape of the sweep is a probe. All
//! three give the same within 1e-5 of the largest number, or the study fails. Times are medians over blocks, in each of which the
//! three take turns in random order.
//!
//! A choice agrees when what was chosen takes at most 1.05 times what the fastest takes: closer than that they change places
//! from run to run.
//!
//! | key | what | bound |
//! |---|---|---|
//! | `operator_choice_agreement` | the share of the shapes on which the choice agrees; interval over blocks | 0.9 |
//! | `operator_choice_regret` | time of the chosen over the fastest, geometric mean over the shapes | shown |
//! | `operator_choice_worst` | the same for the worst shape | shown |
//! | `operator_choice_exact` | the share of the shapes on which the chosen is the fastest, however close the others are | shown |
//! | `operator_shapes` | shapes of the sweep | shown |
//! | `operator_best_share.RUNNER` | the share of the shapes on which this runner is the fastest | shown |
//! | `operator_fixed_agreement.RUNNER`, `operator_fixed_regret.RUNNER` | the same as for the choice when everything runs on this one | shown |
//! | `operator_prediction_error.RUNNER` | the predicted time over the measured, its distance from 1, median over the shapes | shown |

mod judge;
mod runners;
mod sweep;
mod timing;

use anyhow::{Context, Result, ensure};
use judge::Judged;
use karman_infer::operator::{MachineProfile, Operator, Runner};
use karman_study::machine;
use karman_study::report::Report;
use runners::Runners;
use std::fs;
use std::path::Path;

/// Where the profile of the machine is kept.
const KEPT: &str = "target/bench/operators.profile.json";

pub(crate) fn run(quick: bool) -> Result<Report> {
    let guest = "target/guests/operators.wasm";
    let guest = fs::read(guest)
        .with_context(|| format!("{guest} is missing; run `cargo xtask guests operators` first"))?;
    let runners = Runners::new(crate::infer::library()?, &guest)?;
    let mut report = Report::new("operators");
    report.register(judge::cells());
    let (probing, sweeping) = if quick { (3, 5) } else { (9, 30) };
    let profile = profile(&runners, probing)?;
    let cases = timing::prepare(&runners, &sweep::operators())?;
    let times = timing::measure(&runners, &cases, sweeping)?;
    let judged = times
        .into_iter()
        .map(|times| Judged::new(times, &profile))
        .collect::<Result<Vec<_>>>()?;
    judge::rows(&judged, sweeping, &mut report);
    Ok(report)
}

/// The profile of this machine: the one that was kept, or measured now.
fn profile(runners: &Runners, blocks: usize) -> Result<MachineProfile> {
    let (versions, probes) = (runners.versions(), Operator::probes_digest().short());
    let machine = format!(
        "{}, {versions}, probes {probes}, {blocks} blocks",
        machine::describe()
    );
    let kept = fs::read(KEPT).ok();
    let kept = kept.and_then(|kept| serde_json::from_slice::<MachineProfile>(&kept).ok());
    if let Some(kept) = kept.filter(|kept| kept.machine == machine) {
        eprintln!("the profile is that of {KEPT}");
        return Ok(kept);
    }
    let cases = timing::prepare(runners, &Operator::probes())?;
    let times = timing::measure(runners, &cases, blocks)?;
    let all = times.iter().flat_map(|times| {
        let of_each = Runner::ALL.into_iter().zip(times.medians());
        of_each.map(move |(runner, seconds)| (runner, times.operator, seconds))
    });
    let profile = MachineProfile::new(machine, all);
    ensure!(
        profile.runners.len() == Runner::ALL.len(),
        "a runner was not timed"
    );
    if let Some(folder) = Path::new(KEPT).parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(KEPT, serde_json::to_vec_pretty(&profile)?)?;
    Ok(profile)
}
