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
//! What needs hardware is void without: `wgsl_gemm_vs_burn`, `cuda_gemm_vs_cublas.f16`, `wgsl_gemm_vs_cublas.f32`,
//! `w4a16_gemv_vs_roofline`, `w4a16_gemv_vs_f16`, `fedavg_vs_copy.gpu`. They are not registered: on a machine without a GPU they are no
//! cells.
#![forbid(unsafe_code)]

mod fedavg;
mod matmul;
mod onnx;
mod tenants;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use karman_gpu::{Device, Wgpu, bench::of_gpu, find::probe};
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
    for device in found
        .devices
        .iter()
        .filter(|device| device.api != karman_gpu::Api::Cpu)
    {
        let mut opened = Wgpu::open(&device.id, None)?;
        let name = opened.info().name.clone();
        let keys = ["copy", "gemm", "w4a16", "f16"];
        for (figure, key) in of_gpu(&mut opened)?.into_iter().zip(keys) {
            eprintln!("{name}: {}", figure.what);
            let unit = if figure.unit == "B/s" { "GB/s" } else { "GFLOP/s" };
            report.figure(
                &format!("{key}.{}", device.id),
                figure.value / 1e9,
                unit,
                Target::Shown,
            );
        }
        tenants::row(&mut report, opened, quick)?;
    }
    hardware(
        &mut report,
        found.devices.iter().any(karman_gpu::DeviceInfo::is_hardware),
    );
    report.write_and_print()
}

/// What this study does not measure yet, and why.
fn hardware(report: &mut Report, here: bool) {
    let reason = match here {
        false => "no hardware GPU on this machine",
        true => "not measured by this study yet",
    };
    for key in [
        "wgsl_gemm_vs_burn",
        "wgsl_gemm_vs_cublas.f32",
        "w4a16_gemv_vs_roofline",
        "w4a16_gemv_vs_f16",
        "fedavg_vs_copy.gpu",
    ] {
        report.void(key, reason);
    }
    report.void("cuda_gemm_vs_cublas.f16", "this build has no CUDA kernels");
}
