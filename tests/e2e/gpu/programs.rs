//! A program on a device that is held by a process of its own.

use super::hostile::{has_vulkan, too_long};
use crate::support::Home;
use karman_gpu::{
    Call, Device, GpuError, Kernel, Map, Plan, Program, Remote, RemoteOptions, Step, Work, f32_words, floats,
};
use std::sync::Arc;
use std::time::Duration;

/// Its constants are kept there, and go there again with a new process.
#[test]
fn a_program_is_given_again_to_a_device_that_was_lost() {
    let home = Home::new();
    if !has_vulkan(&home) {
        return;
    }
    let options = RemoteOptions {
        program: env!("CARGO_BIN_EXE_karman").into(),
        arguments: vec!["serve-gpu".into(), "vulkan-0".into()],
    };
    let mut device = Remote::start(options).unwrap();
    let map = |steps| Kernel::Map(Map { length: 2, steps });
    let plan = Plan {
        constants: vec![2],
        inputs: vec![2],
        calls: vec![
            Call {
                kernel: map(vec![Step::Scale(2.0)]),
                inputs: vec![1],
            },
            Call {
                kernel: map(vec![Step::Add]),
                inputs: vec![2, 0],
            },
        ],
        outputs: vec![3],
    };
    let program = Program::new(plan, vec![f32_words(&[10.0, 20.0])]).unwrap();
    let work = Work::Program(Arc::new(program));
    let run = |device: &mut Remote, input: [f32; 2]| {
        let done = device.run(&work, &[&f32_words(&input)], Duration::from_secs(60));
        floats(&done.unwrap().outputs[0]).to_vec()
    };
    assert_eq!(run(&mut device, [1.0, 2.0]), [12.0, 24.0]);
    assert_eq!(run(&mut device, [3.0, 4.0]), [16.0, 28.0]);
    let lost = device.run(&Work::Shader(too_long()), &[&[3, 5]], Duration::from_millis(500));
    assert!(
        matches!(lost, Err(GpuError::Lost(_) | GpuError::Deadline(_))),
        "{lost:?}"
    );
    assert_eq!(run(&mut device, [5.0, 6.0]), [20.0, 32.0]);
    assert_eq!(device.started(), 2);
}
