//! The rows of the study.

use super::outcome::{Both, Figures};
use super::registered::Cell;
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::median;
use karman_study::report::{Kind, Report, Target};

/// What is judged.
const KEY: &str = "median_relative_error";
const MOST: f64 = 0.15;

/// All cells of one block, in their order.
pub(super) type Block = Vec<Both>;

/// What is written down before anything is run.
pub(super) fn keys(cells: &[Cell]) -> Vec<String> {
    let of_cells = cells.iter().map(|cell| format!("relative_error.{}", cell.name()));
    [KEY.to_owned(), "cpu_demand".to_owned()]
        .into_iter()
        .chain(of_cells)
        .collect()
}

/// Puts everything that is told of the blocks.
pub(super) fn put(report: &mut Report, cells: &[Cell], blocks: &[Block]) {
    let places = || 0..cells.len();
    let all = bootstrap(blocks, |blocks| {
        median(places().flat_map(|place| errors(blocks, place)).collect())
    });
    report.estimate(KEY, all, "ratio", Target::AtMost(MOST));
    for (figure, name) in Figures::NAMES.into_iter().enumerate() {
        let of = bootstrap(blocks, |blocks| {
            median(places().map(|place| errors(blocks, place)[figure]).collect())
        });
        report.estimate(&format!("{KEY}.{name}"), of, "ratio", Target::Shown);
    }
    for (place, cell) in cells.iter().enumerate() {
        let of = bootstrap(blocks, |blocks| median(errors(blocks, place).to_vec()));
        report.estimate(
            &format!("relative_error.{}", cell.name()),
            of,
            "ratio",
            Target::Shown,
        );
    }
    show(report, cells, blocks, "live", |both| both.live);
    report.kind(Kind::Simulated);
    show(report, cells, blocks, "simulated", |both| both.simulated);
    report.kind(Kind::Measured);
    same_winner(report, cells, blocks);
}

/// |simulated - live| / live of each figure of a cell, both as means over the blocks.
fn errors(blocks: &[Block], place: usize) -> [f64; 4] {
    let (live, simulated) = (
        means(blocks, place, |both| both.live),
        means(blocks, place, |both| both.simulated),
    );
    std::array::from_fn(|figure| ((simulated[figure] - live[figure]) / live[figure]).abs())
}

fn means(blocks: &[Block], place: usize, of: fn(&Both) -> Figures) -> [f64; 4] {
    std::array::from_fn(|figure| {
        let values = blocks.iter().map(|block| of(&block[place]).all()[figure]);
        values.sum::<f64>() / blocks.len() as f64
    })
}

/// What the errors are of.
fn show(report: &mut Report, cells: &[Cell], blocks: &[Block], side: &str, of: fn(&Both) -> Figures) {
    for (place, cell) in cells.iter().enumerate() {
        for (figure, (name, unit)) in Figures::NAMES
            .into_iter()
            .zip(["1/s", "ms", "ms", "share"])
            .enumerate()
        {
            let value = bootstrap(blocks, |blocks| means(blocks, place, of)[figure]);
            let key = format!("{name}.{side}.{}", cell.name());
            report.estimate(&key, value, unit, Target::Shown);
        }
    }
}

/// Under which share of loads the simulator has the same route with the lowest p95, of those under which it is certain live.
fn same_winner(report: &mut Report, cells: &[Cell], blocks: &[Block]) {
    const P95: usize = 2;
    let (mut certain, mut same, mut first) = (0_u32, 0_u32, 0);
    for routes in cells.chunk_by(|a, b| a.load == b.load) {
        let places = first..first + routes.len();
        first = places.end;
        let live: Vec<(usize, Estimate)> = places
            .clone()
            .map(|place| {
                let p95 = |blocks: &[Block]| means(blocks, place, |both| both.live)[P95];
                (place, bootstrap(blocks, p95))
            })
            .collect();
        let simulated = |place: &usize| means(blocks, *place, |both| both.simulated)[P95];
        let best_live = live.iter().min_by(|a, b| a.1.value.total_cmp(&b.1.value));
        let best_simulated = places.min_by(|a, b| simulated(a).total_cmp(&simulated(b)));
        let (Some((best, p95)), Some(found)) = (best_live, best_simulated) else {
            continue;
        };
        let mut others = live.iter().filter(|(place, _)| place != best);
        if others.all(|(_, other)| other.lo > p95.hi) {
            certain += 1;
            same += u32::from(found == *best);
        }
    }
    match certain {
        0 => report.void("same_winner", "the live intervals of all routes overlap"),
        _ => report.figure(
            "same_winner",
            f64::from(same) / f64::from(certain),
            "share",
            Target::AtLeast(1.0),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn figures(of: f64) -> Figures {
        Figures {
            throughput: of,
            p50_ms: of,
            p95_ms: of,
            busy: of,
        }
    }

    #[test]
    fn errors_are_of_means_over_blocks() {
        let both = |live, simulated| {
            vec![Both {
                live: figures(live),
                simulated: figures(simulated),
            }]
        };
        // 10 and 9 in the mean: errors of single blocks would be larger.
        let blocks = [both(5.0, 12.0), both(15.0, 6.0)];
        for error in errors(&blocks, 0) {
            assert!((error - 0.1).abs() < 1e-9, "{error}");
        }
    }
}
