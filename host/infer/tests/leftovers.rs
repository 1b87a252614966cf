//! What runs of a model leave behind in memory. Alone in its process, so that nothing else takes any.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::{backends, digits};
use karman_infer::{LoadOptions, Model};
use karman_tensor::Tensor;

/// Until every pool and cache has grown to what it needs.
const FIRST: usize = 2_000;
const FURTHER: usize = 20_000;
/// A hundred bytes of each run.
const MOST: usize = 100 * FURTHER;

/// Bytes of this process that are in memory.
fn resident() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
}

fn run(model: &dyn Model, times: usize) {
    for _ in 0..times {
        let image = Tensor::from_slice([1, 1, 8, 8], &[0.5_f32; 64]).unwrap();
        model.run(vec![("image".into(), image)]).unwrap();
    }
}

#[test]
fn runs_leave_nothing_behind() {
    let onnx = digits("digits-s");
    for (name, backend) in backends().all() {
        let Ok(backend) = backend.inspect_err(|error| println!("skipped: {error}")) else {
            continue;
        };
        let model = backend.load(&onnx, &LoadOptions::default()).unwrap();
        run(&*model, FIRST);
        let before = resident();
        run(&*model, FURTHER);
        let grown = resident().saturating_sub(before);
        assert!(grown <= MOST, "{name}: {FURTHER} runs have left {grown} bytes");
    }
}
