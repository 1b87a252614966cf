//! How fast a device is, measured: what it reads and writes in a second, and what it computes.

use crate::check::inputs;
use crate::device::{Cpu, Device, Repeat, Work};
use crate::error::GpuError;
use crate::kernel::{Gemm, Kernel, Map, QuantisedGemm};
use serde::Serialize;
use std::time::Duration;

/// One measured figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was done, as in `gemm 1024x1024x1024 f32`.
    pub what: String,
    /// How much of it in a second.
    pub value: f64,
    /// Of what: `B/s`, `FLOP/s`.
    pub unit: &'static str,
    /// The middle time of one run in seconds.
    pub seconds: f64,
}

/// How long one kernel may take at most.
const MOST: Duration = Duration::from_secs(60);

/// Each figure is the middle one of this many.
const RUNS: usize = 7;

struct Task {
    what: String,
    kernel: Kernel,
    /// What one run does.
    amount: f64,
    unit: &'static str,
}

fn tasks(side: u32, copied: u32) -> Vec<Task> {
    let (rows, columns) = (4 * side, 4 * side);
    let gemv = QuantisedGemm {
        m: 1,
        n: rows,
        k: columns,
        group: 128,
        bits: 4,
    };
    let all = f64::from(rows) * f64::from(columns);
    vec![
        Task {
            what: format!("copy of {}", karman_types::format_bytes(4 * u64::from(copied))),
            kernel: Kernel::Map(Map {
                length: copied,
                steps: vec![],
            }),
            // It reads and writes.
            amount: 8.0 * f64::from(copied),
            unit: "B/s",
        },
        Task {
            what: format!("product {side}x{side}x{side}, f32"),
            kernel: Kernel::Gemm(Gemm {
                m: side,
                n: side,
                k: side,
                ..Gemm::default()
            }),
            amount: 2.0 * f64::from(side).powi(3),
            unit: "FLOP/s",
        },
        Task {
            what: format!("vector by {rows}x{columns}, 4-bit weights"),
            kernel: Kernel::QuantisedGemm(gemv),
            amount: all * 4.25 / 8.0,
            unit: "B/s",
        },
        Task {
            what: format!("vector by {rows}x{columns}, f16 weights"),
            kernel: Kernel::Gemm(Gemm {
                m: 1,
                n: rows,
                k: columns,
                half: true,
                ..Gemm::default()
            }),
            amount: 2.0 * all,
            unit: "B/s",
        },
    ]
}

/// The figures of a GPU: data stays on it.
///
/// # Errors
/// When it fails.
pub fn of_gpu(device: &mut impl Repeat) -> Result<Vec<Figure>, GpuError> {
    let (side, copied) = if device.info().is_hardware() {
        (1024, 1 << 24)
    } else {
        (512, 1 << 22)
    };
    let figures = tasks(side, copied).into_iter().map(|task| {
        let inputs = inputs(&task.kernel, 1)?;
        let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        let prepared = device.prepare(&task.kernel, &inputs)?;
        // The first run compiles. Several in one submission hide what a submission costs.
        let first = device.repeat(&prepared, 1, MOST)?;
        let times = (Duration::from_millis(50).as_secs_f64() / first.as_secs_f64().max(1e-6))
            .clamp(1.0, 100.0) as u32;
        let mut run = || Ok(device.repeat(&prepared, times, MOST)?.as_secs_f64() / f64::from(times));
        let seconds = (0..RUNS).map(|_| run()).collect::<Result<_, GpuError>>()?;
        Ok(figure(task, seconds))
    });
    figures.collect()
}

/// The figures of the processor.
///
/// # Errors
/// None that its kernels have.
pub fn of_cpu(cpu: &mut Cpu) -> Result<Vec<Figure>, GpuError> {
    let figures = tasks(1024, 1 << 24).into_iter().map(|task| {
        let inputs = inputs(&task.kernel, 1)?;
        let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        let work = Work::Kernel(task.kernel.clone());
        cpu.run(&work, &inputs, MOST)?;
        let mut run = || Ok(cpu.run(&work, &inputs, MOST)?.took.as_secs_f64());
        let seconds = (0..RUNS).map(|_| run()).collect::<Result<_, GpuError>>()?;
        Ok(figure(task, seconds))
    });
    figures.collect()
}

fn figure(task: Task, mut seconds: Vec<f64>) -> Figure {
    seconds.sort_by(f64::total_cmp);
    let middle = seconds[seconds.len() / 2];
    Figure {
        what: task.what,
        value: task.amount / middle,
        unit: task.unit,
        seconds: middle,
    }
}
