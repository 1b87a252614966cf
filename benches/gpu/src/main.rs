//! Study `gpu`: `cargo xtask bench gpu`.
//!
//! | key | what |
//! |---|---|
//! | `cpu_gemm_vs_onnxruntime.SHAPE.tN` | speed of our product of matrices over that of ONNX Runtime's `MatMul` with constant weights, with N threads |
//! | `cpu_gemm_vs_onnxruntime.mean`, `.least` | their geometric mean and the least of them |
//! | `fedavg_vs_copy.cpu.tN` | bytes of updates that the accumulator takes in a second over bytes that a copy writes, N threads each |
//! | `share_of_two.DEVICE` | of two tenants that always have work, the time of the one that had less over half of all |
//! | `copy`, `gemm`, `w4a16`, `f16` `.DEVICE` | what a GPU copies, computes and reads of weights in a second: context |
//!
//! What needs hardware is void without. None of it is registered: on a machine without a GPU these are no cells.
//!
//! | key | what |
//! |---|---|
//! | `cuda_gemm_vs_cublas.f16.SIDE` | speed of our own product in CUDA C++ over cuBLAS's, which CUDA devices take, f16 with sums in f32 |
//! | `wgsl_gemm_vs_cublas.f32.SIDE` | speed of our product in WGSL over cuBLAS's on the same GPU, without TF32 |
//! | `wgsl_gemm_vs_burn.SIDE` | speed of our product in WGSL over that of Burn's, which is built for it and tunes itself first, f32 on the same GPU |
//! | `w4a16_gemv_vs_roofline` | bytes of 4-bit weights with their scales that a product with a vector reads in a second, over what the faster of a copy and a sum reads and writes |
//! | `w4a16_gemv_vs_f16` | its speed over that of the fastest product with f16 weights, ours and cuBLAS's |
//! | `fedavg_vs_copy.gpu` | bytes of updates that the accumulator takes in a second over bytes that a copying kernel writes |
#![forbid(unsafe_code)]

mod burn;
mod fedavg;
mod hardware;
mod matmul;
mod onnx;
mod tenants;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use karman_gpu::{Api, Cuda, Repeat, Wgpu, bench::of_gpu, find::probe};
use karman_study::report::{Report, Target};

/// Runs the study.
#[derive(Parser)]
struct Args {
    /// Which one: there is this one.
    study: Study,
    /// Fewer and shorter blocks, to see that it runs; its figures mean little.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Study {
    Gpu,
}

fn main() -> Result<()> {
    let Args {
        study: Study::Gpu,
        quick,
    } = Args::parse();
    let mut report = Report::new("gpu");
    report.register(matmul::keys().chain(fedavg::keys()));
    matmul::rows(&mut report, quick)?;
    fedavg::rows(&mut report, quick)?;
    let found = probe();
    for device in &found.devices {
        match device.api {
            Api::Cpu => {}
            Api::Cuda => context(&mut report, Cuda::open(&device.id)?, quick)?,
            _ => context(&mut report, Wgpu::open(&device.id, None)?, quick)?,
        }
    }
    hardware::rows(&mut report, &found, quick);
    report.write_and_print()
}

/// What a GPU does in a second, and how it is shared.
fn context<D: Repeat + 'static>(report: &mut Report, mut device: D, quick: bool) -> Result<()> {
    let (id, name) = (device.info().id.clone(), device.info().name.clone());
    let keys = ["copy", "gemm", "w4a16", "f16"];
    for (figure, key) in of_gpu(&mut device)?.into_iter().zip(keys) {
        eprintln!("{name}: {}", figure.what);
        let unit = if figure.unit == "B/s" { "GB/s" } else { "GFLOP/s" };
        report.figure(&format!("{key}.{id}"), figure.value / 1e9, unit, Target::Shown);
    }
    tenants::row(report, device, quick)
}
