//! Burn's product of two square matrices of f32 on one GPU, for the study `gpu`: `burn-product ADAPTER SIDE`.
//!
//! Once it is tuned and right it says the adapter's name, and then for each line that it reads how many products it makes in a second.
#![forbid(unsafe_code)]

use burn_tensor::{DType, Device, DeviceType, Distribution, Tensor};
use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("burn-product: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [adapter, side] = arguments.as_slice() else {
        return Err("usage: burn-product ADAPTER SIDE".into());
    };
    let side: usize = side.parse().map_err(|why| format!("SIDE is {side}: {why}"))?;
    let (device, name) = open(adapter)?;
    let matrix = || {
        Tensor::<2>::random(
            [side, side],
            Distribution::Uniform(-1.0, 1.0),
            (&device, DType::F32),
        )
    };
    let (a, b) = (matrix(), matrix());
    // The first of them tries all kernels, and the fastest is taken from then on.
    rate(&device, &a, &b, 1)?;
    check(&a, &b)?;
    println!("{name}");
    for line in std::io::stdin().lines() {
        line?;
        let once = 1.0 / rate(&device, &a, &b, 1)?;
        let times = (0.05 / once.max(1e-6)).clamp(1.0, 1000.0) as u32;
        println!("{}", rate(&device, &a, &b, times)?);
    }
    Ok(())
}

/// The adapter of this name.
fn open(name: &str) -> Result<(Device, String), Box<dyn Error>> {
    let mut others = Vec::new();
    for device in Device::enumerate(DeviceType::Wgpu) {
        match device.identity() {
            Some(identity) if identity.name == name => return Ok((device, identity.name)),
            other => others.extend(other.map(|identity| identity.name)),
        }
    }
    Err(format!("no adapter {name}; there are: {}", others.join(", ")).into())
}

/// Products in a second, over this many.
fn rate(device: &Device, a: &Tensor<2>, b: &Tensor<2>, times: u32) -> Result<f64, Box<dyn Error>> {
    device.sync()?;
    let start = Instant::now();
    for _ in 0..times {
        drop(a.clone().matmul(b.clone()));
    }
    device.sync()?;
    Ok(f64::from(times) / start.elapsed().as_secs_f64())
}

/// That the last rows times the first columns are what the processor makes of them in f64. TF32 and f16 are further off than this.
fn check(a: &Tensor<2>, b: &Tensor<2>) -> Result<(), Box<dyn Error>> {
    let [side, _] = a.dims();
    let few = side.min(8);
    let values = |tensor: Tensor<2>| tensor.try_into_vec_as::<f32>();
    let rows = values(a.clone().slice([side - few..side, 0..side]))?;
    let columns = values(b.clone().slice([0..side, 0..few]))?;
    let product = a.clone().matmul(b.clone());
    let product = values(product.slice([side - few..side, 0..few]))?;
    let most = 1e-5 * (side as f64).sqrt();
    for (place, is) in product.into_iter().enumerate() {
        let (row, column) = (place / few, place % few);
        let terms = (0..side).map(|k| f64::from(rows[row * side + k]) * f64::from(columns[k * few + column]));
        let expected: f64 = terms.sum();
        let near = (f64::from(is) - expected).abs() <= most;
        if !near {
            return Err(format!("a product of side {side} has {is} where {expected} is right").into());
        }
    }
    Ok(())
}
