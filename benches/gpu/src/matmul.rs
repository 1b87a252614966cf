//! Products of matrices on the processor: ours (the crate `gemm`, and loops of our own for vectors) against ONNX Runtime (MLAS), in the same
//! run. The weights are constants to both, and laid out before anything is timed.

use crate::onnx;
use anyhow::{Context, Error, Result, anyhow, ensure};
use karman_gpu::check::inputs;
use karman_gpu::{Call, Cpu, Device, Gemm, Kernel, Plan, Program, Work, floats};
use karman_study::interval::bootstrap;
use karman_study::pairs::{Pair, measure, median};
use karman_study::report::{Report, Target};
use ort::environment::Environment;
use ort::session::Session;
use ort::value::TensorRef;
use std::fmt::Display;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Rows, inner dimension, columns.
const SHAPES: [(u32, u32, u32); 5] = [
    (256, 256, 256),
    (1024, 1024, 1024),
    (1, 4096, 4096),
    (64, 1024, 4096),
    (777, 333, 555),
];

const THREADS: [usize; 2] = [1, 2];

const BLOCKS: usize = 30;

/// Time that one block spends with each.
const BLOCK: Duration = Duration::from_millis(60);

/// Time before each block that does not count: idle threads of ONNX Runtime spin for some 50 ms after its last run, on cores that ours
/// need.
const LEAD: Duration = Duration::from_millis(120);

fn key((m, k, n): (u32, u32, u32), threads: usize) -> String {
    format!("cpu_gemm_vs_onnxruntime.{m}x{k}x{n}.t{threads}")
}

/// The cells of this part.
pub(crate) fn keys() -> impl Iterator<Item = String> {
    let cells = THREADS
        .into_iter()
        .flat_map(|threads| SHAPES.map(|shape| key(shape, threads)));
    cells.chain([
        "cpu_gemm_vs_onnxruntime.mean".into(),
        "cpu_gemm_vs_onnxruntime.least".into(),
    ])
}

/// Measures them.
pub(crate) fn rows(report: &mut Report, quick: bool) -> Result<()> {
    let library = std::env::var("KARMAN_ONNXRUNTIME").context("KARMAN_ONNXRUNTIME names no library")?;
    let environment = ort::init_from(&library).map_err(failed)?;
    let environment = environment.with_name("study").with_telemetry(false);
    let environment = environment.build().map_err(failed)?;
    eprintln!("ONNX Runtime: {library}; ours: gemm 0.19");
    let mut all: Vec<Vec<Pair>> = Vec::new();
    for threads in THREADS {
        for shape in SHAPES {
            let pairs = pairs(&environment, shape, threads, if quick { 3 } else { BLOCKS })?;
            report.ratio(&key(shape, threads), pairs.clone(), Target::AtLeast(0.7));
            all.push(pairs);
        }
    }
    // Block by block over all cells, so that the interval is one of blocks.
    let blocks: Vec<Vec<f64>> = (0..all[0].len())
        .map(|block| {
            all.iter()
                .map(|pairs| pairs[block].ours / pairs[block].theirs)
                .collect()
        })
        .collect();
    let medians = |blocks: &[Vec<f64>]| -> Vec<f64> {
        (0..all.len())
            .map(|cell| median(blocks.iter().map(|block| block[cell]).collect()))
            .collect()
    };
    let mean = bootstrap(&blocks, |blocks| {
        let medians = medians(blocks);
        (medians.iter().map(|ratio| ratio.ln()).sum::<f64>() / medians.len() as f64).exp()
    });
    let least = bootstrap(&blocks, |blocks| {
        medians(blocks).into_iter().fold(f64::MAX, f64::min)
    });
    report.estimate(
        "cpu_gemm_vs_onnxruntime.mean",
        mean,
        "ratio",
        Target::AtLeast(0.9),
    );
    report.estimate(
        "cpu_gemm_vs_onnxruntime.least",
        least,
        "ratio",
        Target::AtLeast(0.7),
    );
    Ok(())
}

/// Products in a second, ours and theirs.
fn pairs(
    environment: &Environment,
    (m, k, n): (u32, u32, u32),
    threads: usize,
    blocks: usize,
) -> Result<Vec<Pair>> {
    let kernel = Kernel::Gemm(Gemm {
        m,
        n,
        k,
        ..Gemm::default()
    });
    let data = inputs(&kernel, 1)?;
    let data: Vec<&[u32]> = data.iter().map(Vec::as_slice).collect();
    let (a, b) = (floats(data[0]), floats(data[1]));
    let model = onnx::matmul(m as usize, n as usize, k as usize, b);
    let mut session = Session::builder(environment)
        .and_then(|builder| Ok(builder.with_intra_threads(threads)?))
        .and_then(|mut builder| builder.commit_from_memory(&model))
        .map_err(failed)?;
    let dims = [i64::from(m), i64::from(k)];
    let plan = Plan {
        constants: vec![data[1].len()],
        inputs: vec![data[0].len()],
        calls: vec![Call {
            kernel,
            inputs: vec![1, 0],
        }],
        outputs: vec![2],
    };
    let program = Program::new(plan, vec![data[1].to_vec()])?;
    let (work, mut cpu) = (Work::Program(Arc::new(program)), Cpu::new(threads));

    let mut ours = || cpu.run(&work, &data[..1], Duration::MAX);
    let answered = ours()?;
    let given = || TensorRef::from_array_view((dims, a)).map_err(failed);
    let answer = session.run(ort::inputs!["a" => given()?]).map_err(failed)?;
    let (_, theirs) = answer["c"].try_extract_tensor::<f32>().map_err(failed)?;
    let apart = floats(&answered.outputs[0])
        .iter()
        .zip(theirs)
        .map(|(ours, theirs)| (ours - theirs).abs());
    ensure!(apart.fold(0.0, f32::max) < 1e-2, "the two products differ");

    drop(answer);
    measure(
        blocks,
        || rate(|| ours().map(drop).map_err(Into::into)),
        || {
            rate(|| {
                session
                    .run(ort::inputs!["a" => given()?])
                    .map(drop)
                    .map_err(failed)
            })
        },
    )
}

fn failed(error: impl Display) -> Error {
    anyhow!("{error}")
}

/// How often in a second.
fn rate(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    let lead = Instant::now();
    while lead.elapsed() < LEAD {
        run()?;
    }
    let start = Instant::now();
    let mut runs = 0;
    while start.elapsed() < BLOCK || runs == 0 {
        run()?;
        runs += 1;
    }
    Ok(f64::from(runs) / start.elapsed().as_secs_f64())
}
