//! A federated average of 100 updates of 25 million numbers against a copy of as many: both are bound by memory.

use anyhow::Result;
use karman_gpu::{Accumulate, Cpu};
use karman_study::pairs::measure;
use karman_study::report::{Report, Target};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

const LENGTH: usize = 25_000_000;
const UPDATES: usize = 100;
/// Updates that are there at once.
const RESIDENT: usize = 8;
const THREADS: [usize; 2] = [1, 2];
const BLOCKS: usize = 30;

/// The cells of this part.
pub(crate) fn keys() -> impl Iterator<Item = String> {
    THREADS
        .into_iter()
        .map(|threads| format!("fedavg_vs_copy.cpu.t{threads}"))
}

/// Measures them: bytes in a second.
pub(crate) fn rows(report: &mut Report, quick: bool) -> Result<()> {
    let resident: Vec<Vec<f32>> = (0..RESIDENT)
        .map(|update| vec![update as f32 * 0.25 - 1.0; LENGTH])
        .collect();
    let mut sum = vec![0.0f32; LENGTH];
    let mut copy = vec![0.0f32; LENGTH];
    for threads in THREADS {
        let cpu = Cpu::new(threads);
        let blocks = if quick { 2 } else { BLOCKS };
        let pairs = measure(
            blocks,
            || Ok(average(&cpu, &mut sum, &resident)),
            || Ok(copied(threads, &mut copy, &resident)),
        )?;
        report.ratio(
            &format!("fedavg_vs_copy.cpu.t{threads}"),
            pairs,
            Target::AtLeast(0.7),
        );
    }
    Ok(())
}

/// All updates, as they arrive: a few at a time.
fn average(cpu: &Cpu, sum: &mut [f32], resident: &[Vec<f32>]) -> f64 {
    let weights: Vec<f32> = (0..UPDATES).map(|update| (update + 1) as f32 / 5050.0).collect();
    let start = Instant::now();
    sum.fill(0.0);
    for weights in weights.chunks(RESIDENT) {
        let updates: Vec<(&[f32], f32)> = resident
            .iter()
            .map(Vec::as_slice)
            .zip(weights.iter().copied())
            .collect();
        Accumulate::add(cpu, sum, &updates);
    }
    black_box(&sum);
    (4 * LENGTH * UPDATES) as f64 / start.elapsed().as_secs_f64()
}

/// A copy of one update after the other, cut between threads.
fn copied(threads: usize, to: &mut [f32], resident: &[Vec<f32>]) -> f64 {
    const TIMES: usize = 16;
    let part = LENGTH.div_ceil(threads);
    let start = Instant::now();
    for time in 0..TIMES {
        let from = &resident[time % RESIDENT];
        thread::scope(|scope| {
            for (to, from) in to.chunks_mut(part).zip(from.chunks(part)) {
                scope.spawn(|| black_box(to).copy_from_slice(from));
            }
        });
    }
    (4 * LENGTH * TIMES) as f64 / start.elapsed().as_secs_f64()
}
