//! What several of these tests need.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "each test file uses a part of it, and helpers of tests fail like tests"
)]

pub mod cuts;
pub mod devices;
pub mod onnx;

use karman_infer::{BackendOptions, Backends, SearchPlaces, UseOnnxRuntime};

/// ONNX Runtime from `KARMAN_ONNXRUNTIME` or wherever it lies.
pub fn backends() -> Backends {
    let at = std::env::var_os("KARMAN_ONNXRUNTIME").map(|path| UseOnnxRuntime::At(path.into()));
    Backends::detect(&BackendOptions {
        onnxruntime: at.unwrap_or_else(|| UseOnnxRuntime::Find(SearchPlaces::from_env())),
        ..BackendOptions::default()
    })
}

/// A model of the digit family, by name.
pub fn digits(name: &str) -> Vec<u8> {
    let path = format!("{}/../../tests/models/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(path).unwrap()
}
