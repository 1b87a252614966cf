//! A model from outside is tried in a child process first. The child is this test binary.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::onnx::*;
use karman_infer::{LoadOptions, ModelLimits, ProbeError, feed_child, probe_model};
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
    // So loose that nothing but the bound on the child's memory stops what it makes.
    let limits = ModelLimits {
        tensor: ByteSize::gib(1 << 20),
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

fn rehearse(model: &[u8]) -> Result<String, ProbeError> {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["child", "--exact", "--ignored", "--nocapture"]);
    feed_child(command, model, Duration::from_secs(60))
}

#[test]
fn a_good_model_survives() {
    rehearse(&good()).unwrap();
}

#[test]
fn one_that_takes_too_much_memory_does_not() {
    // 4 GiB out of the body of an `If`, where sizes are not worked out beforehand.
    let branch = [
        node("ConstantOfShape", &["s"], &["c"], &[]),
        node("ReduceMax", &["c"], &["m"], &[]),
        initializer("s", 7, &[1], &i64s(&[1 << 30])),
        value(12, "m", 1, &[1]),
    ]
    .concat();
    let attribute = |name| [sub(1, name), sub(6, &branch), num(20, 5)].concat();
    let model = model(&[
        node(
            "If",
            &["x"],
            &["y"],
            &[attribute("then_branch"), attribute("else_branch")],
        ),
        value(11, "x", 9, &[1]),
        value(12, "y", 1, &[1]),
    ]);
    let error = rehearse(&model).unwrap_err();
    println!("{error}");
    assert!(matches!(error, ProbeError::Failed { .. }), "{error}");
}
