//! What only a hardware GPU can show. Data stays on it; a block is as many runs as take some tens of milliseconds.

use crate::burn::Burn;
use anyhow::{Context, Result, anyhow, ensure};
use karman_gpu::check::inputs;
use karman_gpu::find::Found;
use karman_gpu::tune::tune;
use karman_gpu::{
    Accumulate, Api, Cuda, CudaPrepared, Device, Fold, Gemm, Kernel, Map, QuantisedGemm, Reduce, Repeat,
    Role, Wgpu, Words,
};
use karman_study::pairs::{Pair, measure};
use karman_study::report::{Report, Target};
use std::cell::RefCell;
use std::time::Duration;

const BLOCKS: usize = 30;

/// Sides of the matrices.
const SIDES: [u32; 2] = [4096, 8192];

/// Side of the products that `karman gpu bench` chooses our tiles by.
const TUNED: u32 = 1024;

/// Weights of 4 bits: 256 MiB, which no cache holds.
const WEIGHTS: QuantisedGemm = QuantisedGemm {
    m: 1,
    n: 32_768,
    k: 16_384,
    group: 128,
    bits: 4,
};

/// Numbers of an update, updates that are there at once, and how often those are taken: 104 in all.
const LENGTH: u32 = 25_000_000;
const RESIDENT: u32 = 8;
const TIMES: u32 = 13;

/// The longest that a block may take.
const MOST: Duration = Duration::from_secs(120);

/// Measures them on the first CUDA device, and what needs none on another GPU where there is no such device.
pub(crate) fn rows(report: &mut Report, found: &Found, quick: bool) {
    let blocks = if quick { 2 } else { BLOCKS };
    let hardware = |cuda: bool| {
        let mut devices = found.devices.iter().filter(|device| device.is_hardware());
        devices
            .find(move |device| (device.api == Api::Cuda) == cuda)
            .cloned()
    };
    let (cuda, other) = (hardware(true), hardware(false));
    let no_gpu = || anyhow!("no hardware GPU on this machine");
    let no_cuda = || match found.absent.iter().find(|absent| absent.what == "cuda") {
        Some(absent) => anyhow!("{}", absent.why),
        None => no_gpu(),
    };
    let with_cuda = || -> Result<Cuda> { Ok(Cuda::open(&cuda.as_ref().ok_or_else(no_cuda)?.id)?) };
    let with_other = || -> Result<Wgpu> { Ok(Wgpu::open(&other.as_ref().ok_or_else(no_gpu)?.id, None)?) };
    for side in SIDES {
        let pairs = with_cuda().and_then(|mut device| own_product(&mut device, side, blocks));
        row(report, &format!("cuda_gemm_vs_cublas.f16.{side}"), pairs, 0.8);
        let pairs = with_cuda().and_then(|theirs| shader(with_other()?, theirs, side, blocks));
        row(report, &format!("wgsl_gemm_vs_cublas.f32.{side}"), pairs, 0.4);
        let pairs = with_other().and_then(|device| against_burn(device, side, blocks));
        row(report, &format!("wgsl_gemm_vs_burn.{side}"), pairs, 1.0);
    }
    let pairs = with_cuda().and_then(|mut device| against_f16(&mut device, blocks));
    row(report, "w4a16_gemv_vs_f16", pairs, 2.5);
    let (roofline, average) = match cuda {
        Some(_) => (
            with_cuda().and_then(|mut device| roofline(&mut device, blocks)),
            with_cuda().and_then(|mut device| average(&mut device, blocks)),
        ),
        None => (
            with_other().and_then(|mut device| roofline(&mut device, blocks)),
            with_other().and_then(|mut device| average(&mut device, blocks)),
        ),
    };
    row(report, "w4a16_gemv_vs_roofline", roofline, 0.7);
    row(report, "fedavg_vs_copy.gpu", average, 1.4);
}

fn row(report: &mut Report, key: &str, pairs: Result<Vec<Pair>>, least: f64) {
    match pairs {
        Ok(pairs) => report.ratio(key, pairs, Target::AtLeast(least)),
        Err(why) => report.void(key, format!("{why:#}")),
    }
}

fn product(side: u32, half: bool) -> Kernel {
    Kernel::Gemm(Gemm {
        m: side,
        n: side,
        k: side,
        half,
        ..Gemm::default()
    })
}

fn prepared<D: Repeat>(device: &mut D, kernel: &Kernel, inputs: &[Words]) -> Result<D::Prepared> {
    let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
    Ok(device.prepare(kernel, &inputs)?)
}

/// How often in a second.
fn rate<D: Repeat>(device: &mut D, prepared: &D::Prepared) -> Result<f64> {
    let once = device.repeat(prepared, 1, MOST)?;
    let times = (0.05 / once.as_secs_f64().max(1e-6)).clamp(1.0, 1000.0) as u32;
    let took = device.repeat(prepared, times, MOST)?;
    Ok(f64::from(times) / took.as_secs_f64())
}

/// What two kernels on one device do in a second, each with how much it does at a time.
fn rates<D: Repeat>(
    device: &mut D,
    ours: (&D::Prepared, f64),
    theirs: (&D::Prepared, f64),
    blocks: usize,
) -> Result<Vec<Pair>> {
    let device = RefCell::new(device);
    let of = |(prepared, amount): (&D::Prepared, f64)| -> Result<f64> {
        Ok(amount * rate(&mut **device.borrow_mut(), prepared)?)
    };
    measure(blocks, || of(ours), || of(theirs))
}

fn own_product(device: &mut Cuda, side: u32, blocks: usize) -> Result<Vec<Pair>> {
    let kernel = product(side, true);
    let given = inputs(&kernel, 1)?;
    let theirs = prepared(device, &kernel, &given)?;
    device.set_own_products(true);
    let ours = prepared(device, &kernel, &given)?;
    rates(device, (&ours, 1.0), (&theirs, 1.0), blocks)
}

/// The same GPU by two ways.
fn shader(mut ours: Wgpu, mut theirs: Cuda, side: u32, blocks: usize) -> Result<Vec<Pair>> {
    let names = [&ours.info().name, &theirs.info().name];
    ensure!(names[0] == names[1], "{} is not {}", names[0], names[1]);
    let kernel = product(side, false);
    let given = inputs(&kernel, 1)?;
    let (shader, library) = (
        prepared(&mut ours, &kernel, &given)?,
        prepared(&mut theirs, &kernel, &given)?,
    );
    measure(
        blocks,
        || rate(&mut ours, &shader),
        || rate(&mut theirs, &library),
    )
}

/// The same GPU in two processes, which take turns. Ours is tuned as users tune it.
fn against_burn(mut ours: Wgpu, side: u32, blocks: usize) -> Result<Vec<Pair>> {
    let mut theirs = Burn::start(&ours.info().name, side)?;
    tune(&mut ours, TUNED, MOST)?;
    let kernel = product(side, false);
    let given = inputs(&kernel, 1)?;
    let shader = prepared(&mut ours, &kernel, &given)?;
    measure(blocks, || rate(&mut ours, &shader), || theirs.rate())
}

/// Weights whose numbers do not matter: they take the time of any.
fn weights() -> Result<Vec<Words>> {
    let kernel = Kernel::QuantisedGemm(WEIGHTS);
    let arguments = kernel.arguments()?;
    let arguments = arguments.iter().filter(|argument| argument.role == Role::Input);
    // Activations of 1, weights of many kinds, and in each group a scale of 1 and a zero point of 8.
    let fills: [fn(u32) -> u32; 3] = [
        |_| 0x3c00_3c00,
        |place| place.wrapping_mul(0x9e37_79b9),
        |_| 0x0008_3c00,
    ];
    let filled = arguments.zip(fills);
    Ok(filled
        .map(|(argument, fill)| (0..argument.words as u32).map(fill).collect())
        .collect())
}

/// The f16 weights are half as many, which take twice the memory and are no less out of a cache's reach.
fn against_f16(device: &mut Cuda, blocks: usize) -> Result<Vec<Pair>> {
    let ours = prepared(device, &Kernel::QuantisedGemm(WEIGHTS), &weights()?)?;
    let (m, n, k) = (WEIGHTS.m, WEIGHTS.n / 2, WEIGHTS.k);
    let mut fastest: Option<(f64, CudaPrepared)> = None;
    for (own, transposed) in [(false, false), (false, true), (true, false)] {
        let kernel = Kernel::Gemm(Gemm {
            m,
            n,
            k,
            transposed,
            half: true,
            ..Gemm::default()
        });
        let arguments = kernel.arguments()?;
        let given: Vec<Words> = arguments[..2]
            .iter()
            .map(|argument| vec![0x3c00_3c00; argument.words])
            .collect();
        device.set_own_products(own);
        let theirs = prepared(device, &kernel, &given)?;
        let speed = rate(device, &theirs)?;
        if fastest.as_ref().is_none_or(|(least, _)| speed > *least) {
            fastest = Some((speed, theirs));
        }
    }
    let (_, theirs) = fastest.context("there are three")?;
    rates(device, (&ours, 2.0), (&theirs, 1.0), blocks)
}

/// Bytes in a second: those of the weights, and those that a copy or a sum moves.
fn roofline<D: Repeat>(device: &mut D, blocks: usize) -> Result<Vec<Pair>> {
    let given = weights()?;
    let bytes = (given[1].len() + given[2].len()) as f64 * 4.0;
    let ours = prepared(device, &Kernel::QuantisedGemm(WEIGHTS), &given)?;
    let length = 1 << 26;
    let copy = Kernel::Map(Map {
        length,
        steps: vec![],
    });
    let sum = Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 1,
        columns: length,
    });
    let numbers = vec![vec![1.0f32.to_bits(); length as usize]];
    let (copy, sum) = (
        prepared(device, &copy, &numbers)?,
        prepared(device, &sum, &numbers)?,
    );
    let device = RefCell::new(device);
    measure(
        blocks,
        || Ok(bytes * rate(&mut **device.borrow_mut(), &ours)?),
        || {
            let mut device = device.borrow_mut();
            let copied = 8.0 * rate(&mut **device, &copy)?;
            Ok(f64::from(length) * copied.max(4.0 * rate(&mut **device, &sum)?))
        },
    )
}

/// Bytes in a second: those of updates, and those that a copy writes.
fn average<D: Repeat>(device: &mut D, blocks: usize) -> Result<Vec<Pair>> {
    let kernel = Kernel::Accumulate(Accumulate {
        length: LENGTH,
        updates: RESIDENT,
    });
    let arguments = kernel.arguments()?;
    let given: Vec<Words> = arguments[..3]
        .iter()
        .map(|argument| vec![0.01f32.to_bits(); argument.words])
        .collect();
    let ours = prepared(device, &kernel, &given)?;
    let copy = Kernel::Map(Map {
        length: LENGTH,
        steps: vec![],
    });
    let copy = prepared(device, &copy, &given[..1])?;
    let device = RefCell::new(device);
    measure(
        blocks,
        || {
            let took = device.borrow_mut().repeat(&ours, TIMES, MOST)?;
            Ok(4.0 * f64::from(LENGTH) * f64::from(RESIDENT * TIMES) / took.as_secs_f64())
        },
        || Ok(4.0 * f64::from(LENGTH) * rate(&mut **device.borrow_mut(), &copy)?),
    )
}
