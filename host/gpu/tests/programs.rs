//! Programs on the processor and on the GPU that is here (in CI: software Vulkan), against the same kernels run one by one with copies
//! between. Where there is no GPU the test says that it skipped it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_gpu::check::inputs;
use karman_gpu::{
    Activation, Call, Convolution, Cpu, Cuda, Decode, Device, Encode, Fold, Format, Gemm, GpuError, Kernel,
    Map, Norm, Normalise, Padding, Plan, Program, Reduce, Sides, Step, Wgpu, Words, Work, floats,
};
use std::sync::Arc;
use std::time::Duration;

const MOST: Duration = Duration::from_secs(120);

fn call(kernel: Kernel, inputs: &[usize]) -> Call {
    Call {
        kernel,
        inputs: inputs.to_vec(),
    }
}

/// A convolution, a way around it, a way to 8 bits and back, the largest of each channel, and a classifier: branches, kernels with
/// several outputs, and kernels that do not write every word.
fn plan() -> Plan {
    let convolution = Convolution {
        batch: 1,
        channels: 3,
        height: 8,
        width: 8,
        filters: 16,
        kernel_height: 3,
        kernel_width: 3,
        stride: Sides::both(1),
        padding: Padding::all(1),
        dilation: Sides::both(1),
        groups: 1,
        bias: true,
        activation: Activation::Silu,
    };
    let map = |steps| Kernel::Map(Map { length: 1024, steps });
    let (format, rows, columns) = (Format::Int8, 16, 64);
    let classes = Gemm {
        m: 1,
        n: 16,
        k: 1024,
        bias: true,
        ..Gemm::default()
    };
    let softmax = Norm {
        normalise: Normalise::Softmax,
        rows: 1,
        columns: 16,
        epsilon_millionths: 10,
    };
    let fold = Fold::Max;
    Plan {
        // The filters, the classifier's matrix, and a bias for both; slot 3 is the image.
        constants: vec![16 * 27, 1024 * 16, 16],
        inputs: vec![3 * 64],
        calls: vec![
            call(Kernel::Convolution(convolution), &[3, 0, 2]),
            call(map(vec![Step::Relu]), &[4]),
            call(map(vec![Step::Add, Step::Scale(0.5)]), &[5, 4]),
            call(
                Kernel::Encode(Encode {
                    format,
                    rows,
                    columns,
                }),
                &[6],
            ),
            call(
                Kernel::Decode(Decode {
                    format,
                    rows,
                    columns,
                }),
                &[7, 8],
            ),
            call(Kernel::Reduce(Reduce { fold, rows, columns }), &[9]),
            call(Kernel::Gemm(classes), &[9, 1, 2]),
            call(Kernel::Norm(softmax), &[11]),
        ],
        outputs: vec![12, 10, 5],
    }
}

/// Numbers for buffers of this many words.
fn drawn(words: &[usize], seed: u64) -> Vec<Words> {
    let draw = |(number, words): (usize, &usize)| {
        let all = Kernel::Map(Map {
            length: *words as u32,
            steps: vec![],
        });
        inputs(&all, seed + number as u64).unwrap().remove(0)
    };
    words.iter().enumerate().map(draw).collect()
}

fn borrowed(words: &[Words]) -> Vec<&[u32]> {
    words.iter().map(Vec::as_slice).collect()
}

fn one_by_one(device: &mut dyn Device, plan: &Plan, constants: &[Words], given: &[Words]) -> Vec<Words> {
    let mut slots: Vec<Words> = constants.iter().chain(given).cloned().collect();
    for call in &plan.calls {
        let inputs: Vec<&[u32]> = call.inputs.iter().map(|slot| slots[*slot].as_slice()).collect();
        let work = Work::Kernel(call.kernel.clone());
        let done = device.run(&work, &inputs, MOST).unwrap();
        slots.extend(done.outputs);
    }
    plan.outputs.iter().map(|slot| slots[*slot].clone()).collect()
}

/// The same kernels on the same device: the same numbers within this, and the same bits however often it runs and whatever ran before.
fn agrees(device: &mut dyn Device, within: f32) -> Arc<Program> {
    let plan = plan();
    let mut last = None;
    for seed in [1, 50] {
        let constants = drawn(&plan.constants, seed);
        let program = Arc::new(Program::new(plan.clone(), constants.clone()).unwrap());
        let mut answers = Vec::new();
        for seed in [100, 200, 100] {
            let given = drawn(&plan.inputs, seed);
            let expected = one_by_one(device, &plan, &constants, &given);
            let done = device.run(&Work::Program(program.clone()), &borrowed(&given), MOST);
            let outputs = done.unwrap().outputs;
            let apart = apart(&outputs, &expected);
            assert!(apart <= within, "seed {seed} on {}: {apart}", device.info().name);
            answers.push(outputs);
        }
        assert!(answers[0] == answers[2], "other bits on {}", device.info().name);
        last = Some(program);
    }
    last.unwrap()
}

/// The largest difference.
fn apart(some: &[Words], others: &[Words]) -> f32 {
    let numbers = |all: &[Words]| {
        all.iter()
            .flat_map(|words| floats(words).to_vec())
            .collect::<Vec<_>>()
    };
    let pairs = numbers(some).into_iter().zip(numbers(others));
    let apart = pairs.map(|(one, other)| (one - other).abs());
    // What is no number is apart from everything.
    apart.fold(0.0, |most, apart| if apart <= most { most } else { apart })
}

#[test]
fn a_program_is_its_kernels_one_by_one() {
    // Its weights are laid out for the processor, which adds up in another order then.
    agrees(&mut Cpu::new(1), 1e-5);
    agrees(&mut Cpu::new(3), 1e-5);
}

#[test]
fn a_gpu_runs_programs_in_one_go_and_keeps_them() {
    match Wgpu::open("vulkan-0", None) {
        Ok(mut device) => keeps_them(&mut device),
        Err(error) => eprintln!("skipped on GPUs: {error}"),
    }
}

#[test]
fn so_does_a_cuda_device() {
    match Cuda::open("cuda-0") {
        Ok(mut device) => keeps_them(&mut device),
        Err(error) => eprintln!("skipped on CUDA: {error}"),
    }
}

fn keeps_them(device: &mut dyn Device) {
    let program = agrees(device, 0.0);
    let given = drawn(&program.plan().inputs, 300);
    let again = device.run(&Work::Program(program.clone()), &borrowed(&given), MOST);
    let kept = device.run_kept(program.id(), &borrowed(&given), MOST);
    assert_eq!(kept.unwrap().unwrap().outputs, again.unwrap().outputs);
    let none = Program::new(plan(), drawn(&plan().constants, 7)).unwrap();
    assert!(device.run_kept(none.id(), &borrowed(&given), MOST).is_none());
    // What does not fit is refused, and it works on.
    let short = vec![0; 5];
    let refused = device.run(&Work::Program(program.clone()), &[&short], MOST);
    assert!(matches!(refused, Err(GpuError::Kernel { .. })), "{refused:?}");
    agrees(device, 0.0);
}

#[test]
fn a_program_on_the_processor_ends_in_time() {
    let product = Gemm {
        m: 2048,
        n: 2048,
        k: 2048,
        ..Gemm::default()
    };
    let square = 2048 * 2048;
    let plan = Plan {
        constants: vec![square],
        inputs: vec![square],
        calls: (1..9)
            .map(|slot| call(Kernel::Gemm(product.clone()), &[slot, 0]))
            .collect(),
        outputs: vec![9],
    };
    let program = Program::new(plan, vec![vec![0; square]]).unwrap();
    assert_eq!(program.operations(), 8 * 2 * 2048 * 2048 * 2048);
    // The constant, the input, and two that take turns.
    assert_eq!(program.bytes(), 4 * 4 * square as u64);
    let within = Duration::from_millis(20);
    let done = Cpu::new(2).run(&Work::Program(Arc::new(program)), &[&vec![0; square]], within);
    assert_eq!(done, Err(GpuError::Deadline(within)));
}
