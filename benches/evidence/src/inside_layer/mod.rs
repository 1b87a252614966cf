//! `inside-layer`: one network on boards too small for its layers; ours against the published split and plain bands.
//!
//! MobileNetV2 for pictures of 224 by 224, with weights drawn per seed, on 1 to 8 equal microcontrollers, really computed in 8 bits:
//! each board is a state machine of its own and every buffer of activations, sums, halos and packets is counted in the board's
//! account while it lives. The contenders:
//!
//! - `flat`: the published split in flat order (Lu et al., arXiv 2605.09357), with what its own protocol holds and sends;
//! - `bands`: plain row bands with halos, each layer a stage of its own, on our executor, so with rows dropped after their use;
//! - `ours`: the plan of least memory; `ours-fast`: the plan of least modelled time within 512 KiB.
//!
//! # Keys
//!
//! - `peak_ram_vs_flat.N{4,8}` (at most 0.80, 0.45): the most live bytes on the worst board, `ours` over `flat`; median over 30
//!   seeds of weights, picture and order of packets.
//! - `peak_ram_vs_flat_table.N{4,8}`: the same over the bytes of input and output that the published table counts, which leave out
//!   what a waiting board still holds: the harder comparison.
//! - `traffic_vs_flat.N{4,8}` (at most 1): all bytes between boards and coordinator, heads and grants included.
//! - `flat_table_differences.{112,224}` (0): figures of the recorded tables that the flat split does not reproduce exactly: peaks,
//!   their layer, input, output and the sum of inputs for N = 1 to 8, and input and output of the first board layer by layer. The
//!   tables' column of weights is left out: it counts a kernel twice where a border falls between two.
//! - `bits_differ` (0): runs of any contender whose answer is not that of the unsplit network, bit for bit.
//! - `unforeseen` (0): runs of `ours`, `ours-fast` and `bands` that took more memory on a board than was foreseen, or other traffic.
//! - `peak_ram_bytes.CONTENDER.N`, `traffic_bytes.CONTENDER.N`, `modelled_s.CONTENDER.N`: context; the last with 10^8 multiplications each
//!   second (an assumption: 600 MHz at a sixth) and 100 Mbit/s.
//! - `plan_ms.N8`: time to plan for 8 boards, median.

mod contenders;
mod table;

use anyhow::{Context, Result};
use contenders::{Contender, Outcome, Subject};
use karman_sched::partition::inside_layer::{Board, Link};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::median;
use karman_study::report::{Kind, Report, Target};
use serde::Serialize;
use std::path::Path;

/// A Teensy 4.1: the heap and the flash of the published boards.
const BOARD: Board = Board {
    free_memory: 512 << 10,
    free_flash: 8 << 20,
    operations_per_second: 1e8,
};
const LINK: Link = Link::ETHERNET_100;
const SIDE: usize = 224;
const SEEDS: u64 = 30;
const MOST_BOARDS: usize = 8;
/// Numbers of boards with a target for the memory.
const JUDGED: [(usize, f64); 2] = [(4, 0.80), (8, 0.45)];

#[derive(Serialize)]
struct Raw {
    seed: u64,
    boards: usize,
    contender: Contender,
    peak: u64,
    bytes: u64,
    equal: bool,
    foreseen: bool,
}

/// Runs the study.
///
/// # Errors
///
/// The recorded tables are missing, or a contender fails.
pub(crate) fn run(data: &Path, quick: bool) -> Result<Report> {
    let mut report = Report::new("inside-layer");
    let keys = ["peak_ram_vs_flat", "peak_ram_vs_flat_table", "traffic_vs_flat"];
    let cells = keys
        .iter()
        .flat_map(|key| JUDGED.map(|(boards, _)| format!("{key}.N{boards}")));
    let single = [
        "flat_table_differences.112",
        "flat_table_differences.224",
        "bits_differ",
        "unforeseen",
    ];
    report.register(cells.chain(single.map(String::from)));

    let folder = data.join("split-mcu");
    for side in [112, 224] {
        let differences = table::differences(&folder, side).with_context(|| {
            format!(
                "the recorded tables of {} (--data names another folder)",
                folder.display()
            )
        })?;
        let key = format!("flat_table_differences.{side}");
        report.figure(&key, differences.len() as f64, "figures", Target::AtMost(0.0));
        report.keep_raw(&key, &differences);
    }

    let mut raw = Vec::new();
    let seeds = if quick { 2 } else { SEEDS };
    for seed in 0..seeds {
        let subject = Subject::generate(SIDE, seed)?;
        // Every number of boards once; those with a target again and again.
        for boards in 1..=MOST_BOARDS {
            if seed > 0 && JUDGED.iter().all(|(judged, _)| *judged != boards) {
                continue;
            }
            for contender in Contender::ALL {
                let outcome = subject.run(contender, boards)?;
                if seed == 0 {
                    context(&mut report, contender, boards, &outcome);
                }
                raw.push(Raw {
                    seed,
                    boards,
                    contender,
                    peak: outcome.peak,
                    bytes: outcome.bytes,
                    equal: outcome.equal,
                    foreseen: outcome.foreseen,
                });
            }
        }
    }
    for (boards, target) in JUDGED {
        judge(&mut report, &raw, boards, target)?;
    }
    let differing = raw.iter().filter(|run| !run.equal).count();
    report.figure("bits_differ", differing as f64, "runs", Target::AtMost(0.0));
    let unforeseen = raw.iter().filter(|run| !run.foreseen).count();
    report.figure("unforeseen", unforeseen as f64, "runs", Target::AtMost(0.0));
    report.figure(
        "plan_ms.N8",
        contenders::plan_ms(SIDE, MOST_BOARDS)?,
        "ms",
        Target::Shown,
    );
    report.keep_raw("runs", &raw);
    Ok(report)
}

fn context(report: &mut Report, contender: Contender, boards: usize, outcome: &Outcome) {
    report.kind(Kind::Measured);
    let cell = |key: &str| format!("{key}.{contender}.N{boards}");
    report.figure(
        &cell("peak_ram_bytes"),
        outcome.peak as f64,
        "bytes",
        Target::Shown,
    );
    report.figure(
        &cell("traffic_bytes"),
        outcome.bytes as f64,
        "bytes",
        Target::Shown,
    );
    report.kind(Kind::Simulated);
    report.figure(&cell("modelled_s"), outcome.seconds, "s", Target::Shown);
    report.kind(Kind::Measured);
}

/// The ratios of ours and of plain bands to the published split, seed by seed.
fn judge(report: &mut Report, raw: &[Raw], boards: usize, target: f64) -> Result<()> {
    let of = |contender: Contender| {
        raw.iter()
            .filter(move |run| run.boards == boards && run.contender == contender)
    };
    let ratios = |contender: Contender, value: fn(&Raw) -> f64| -> Estimate {
        let ours = of(contender).zip(of(Contender::Flat));
        let ratios: Vec<f64> = ours.map(|(ours, flat)| value(ours) / value(flat)).collect();
        bootstrap(&ratios, |ratios| median(ratios.to_vec()))
    };
    let peak: fn(&Raw) -> f64 = |run| run.peak as f64;
    let bytes: fn(&Raw) -> f64 = |run| run.bytes as f64;
    let cell = |key: &str| format!("{key}.N{boards}");
    report.estimate(
        &cell("peak_ram_vs_flat"),
        ratios(Contender::Ours, peak),
        "ratio",
        Target::AtMost(target),
    );
    report.estimate(
        &cell("traffic_vs_flat"),
        ratios(Contender::Ours, bytes),
        "ratio",
        Target::AtMost(1.0),
    );
    let table = table::peak(SIDE, boards)? as f64;
    let of_table: Vec<f64> = of(Contender::Ours).map(|run| run.peak as f64 / table).collect();
    let of_table = bootstrap(&of_table, |ratios| median(ratios.to_vec()));
    report.estimate(
        &cell("peak_ram_vs_flat_table"),
        of_table,
        "ratio",
        Target::AtMost(target),
    );
    for (key, contender) in [("bands", Contender::Bands), ("ours_fast", Contender::OursFast)] {
        report.estimate(
            &cell(&format!("{key}_peak_ram_vs_flat")),
            ratios(contender, peak),
            "ratio",
            Target::Shown,
        );
        report.estimate(
            &cell(&format!("{key}_traffic_vs_flat")),
            ratios(contender, bytes),
            "ratio",
            Target::Shown,
        );
    }
    let materialised = contenders::bands_materialised(SIDE, boards)?;
    report.figure(
        &cell("bands_materialised_bytes"),
        materialised as f64,
        "bytes",
        Target::Shown,
    );
    Ok(())
}
