//! A model from outside is tried in a child process first. The child is this test binary.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::onnx::*;
use karman_gpu::child::{ChildError, ask};
use karman_infer::{LoadOptions, ModelLimits, probe_model};
use karman_types::ByteSize;
use std::io::Read;
use std::process::Command;
use std::time::Duration;

/// What `karman probe-model` does.
#[test]
#[ignore = "runs in the child"]
fn child() {
    let mut model = Vec::new();
    std::io::stdin().read_to_end(&mut model).unwrap();
    // So loose that nothing but the bound on the child's memory stops what is decoded.
    let limits = ModelLimits {
        model: ByteSize::mib(8),
        entries: u64::MAX,
        constants: ByteSize::mib(8),
        run: ByteSize::mib(256),
        ..ModelLimits::default()
    };
    let options = LoadOptions {
        limits,
        ..LoadOptions::default()
    };
    if let Err(error) = probe_model(&model, &options) {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn rehearse(model: &[u8]) -> Result<String, ChildError> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    ask(command, model, Duration::from_secs(60))
}

#[test]
fn a_good_model_survives() {
    rehearse(&good()).unwrap();
}

#[test]
fn one_that_takes_too_much_memory_does_not() {
    // Gigabytes out of two bytes for each attribute.
    let attributes = sub(5, []).repeat(4_000_000);
    let model = model(&[sub(1, attributes), value(12, "y", 1, &[1])]);
    let error = rehearse(&model).unwrap_err();
    println!("{error}");
    assert!(matches!(error, ChildError::Failed { .. }), "{error}");
}
