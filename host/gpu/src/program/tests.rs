use super::*;
use crate::device::{Device, Work};
use crate::kernel::{Fold, Gemm, Map, Reduce, Step, f32_words, floats};
use std::sync::Arc;
use std::time::Duration;

fn map(length: u32, steps: Vec<Step>) -> Kernel {
    Kernel::Map(Map { length, steps })
}

fn call(kernel: Kernel, inputs: &[usize]) -> Call {
    Call {
        kernel,
        inputs: inputs.to_vec(),
    }
}

/// `relu(2 x) + c`, and the sum of that: slot 0 is `c`, 1 `x`, 2 twice `x`, 3 the first and 4 the second of the outputs.
fn plan() -> Plan {
    let sum = Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 1,
        columns: 4,
    });
    Plan {
        constants: vec![4],
        inputs: vec![4],
        calls: vec![
            call(map(4, vec![Step::Scale(2.0), Step::Relu]), &[1]),
            call(map(4, vec![Step::Add]), &[2, 0]),
            call(sum, &[3]),
        ],
        outputs: vec![3, 4],
    }
}

fn run(program: &Arc<Program>, input: &[f32]) -> Result<Vec<Vec<f32>>, GpuError> {
    let work = Work::Program(program.clone());
    let done = Cpu::new(1).run(&work, &[&f32_words(input)], Duration::from_secs(60))?;
    Ok(done.outputs.iter().map(|words| floats(words).to_vec()).collect())
}

#[test]
fn what_one_kernel_makes_the_next_reads() {
    let constants = vec![f32_words(&[10.0, 20.0, 30.0, 40.0])];
    let program = Arc::new(Program::new(plan(), constants).unwrap());
    assert_eq!(
        run(&program, &[1.0, -1.0, 2.0, -2.0]),
        Ok(vec![vec![12.0, 20.0, 34.0, 40.0], vec![106.0]])
    );
    assert_eq!(
        run(&program, &[0.0; 4]),
        Ok(vec![vec![10.0, 20.0, 30.0, 40.0], vec![100.0]])
    );
    assert!(matches!(run(&program, &[0.0; 3]), Err(GpuError::Kernel { .. })));
}

/// Whatever its first runs had not enough time for, they leave no weights behind that are laid out in part.
#[test]
fn a_run_that_was_cut_off_changes_nothing_for_the_next() {
    let side = 1024u32;
    let square = (side * side) as usize;
    let gemm = |rows| {
        Kernel::Gemm(Gemm {
            m: rows,
            n: side,
            k: side,
            ..Gemm::default()
        })
    };
    let plan = Plan {
        constants: vec![square],
        inputs: vec![9 * side as usize],
        calls: vec![call(gemm(9), &[1, 0]), call(gemm(9), &[2, 0])],
        outputs: vec![3],
    };
    // Small whole numbers: their sums are exact in any order.
    let numbers =
        |count: usize, below| f32_words(&(0..count).map(|i| (i % below) as f32).collect::<Vec<_>>());
    let program = || Arc::new(Program::new(plan.clone(), vec![numbers(square, 2)]).unwrap());
    let input = numbers(9 * side as usize, 7);
    let run = |cpu: &mut Cpu, program: &Arc<Program>, within: Duration| {
        let done = cpu.run(&Work::Program(program.clone()), &[&input], within)?;
        Ok::<_, GpuError>(done.outputs)
    };
    let long = Duration::from_secs(60);
    let expected = run(&mut Cpu::new(1), &program(), long).unwrap();
    let (cut_off, mut cpu) = (program(), Cpu::new(2));
    for micros in [0, 50, 200, 500, 1000, 2000] {
        // It may be done all the same.
        let _ = run(&mut cpu, &cut_off, Duration::from_micros(micros));
        assert!(!cpu.is_late());
    }
    assert_eq!(run(&mut cpu, &cut_off, long).unwrap(), expected);
}

#[test]
fn programs_are_told_apart_by_what_they_do_and_by_their_constants() {
    let program = |plan: Plan, number: f32| Program::new(plan, vec![f32_words(&[number; 4])]).unwrap();
    let mut other = plan();
    other.calls[0].kernel = map(4, vec![Step::Scale(3.0), Step::Relu]);
    assert_eq!(program(plan(), 1.0), program(plan(), 1.0));
    assert_ne!(program(plan(), 1.0), program(plan(), 2.0));
    assert_ne!(program(plan(), 1.0), program(other, 1.0));
}

#[test]
fn a_program_that_means_nothing_is_refused_and_what_is_wrong_is_named() {
    let refused = |change: &dyn Fn(&mut Plan), says: &str| {
        let mut wrong = plan();
        change(&mut wrong);
        let constants = wrong.constants.iter().map(|words| vec![0; *words]).collect();
        let error = Program::new(wrong, constants).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused(
        &|plan| plan.calls[0].inputs = vec![2],
        "call 0 of the program, map: values is 2, but only slots below 2",
    );
    refused(
        &|plan| plan.calls[1].inputs = vec![2],
        "map: inputs is 1, but it takes 2",
    );
    refused(
        &|plan| plan.constants = vec![3],
        "map: other is 12, but it has 16 bytes",
    );
    refused(&|plan| plan.inputs = vec![0], "words is 0");
    refused(&|plan| plan.outputs = vec![], "outputs is 0");
    refused(
        &|plan| plan.outputs = vec![1],
        "outputs is 1, but calls make the slots from 2 to below 5",
    );
    refused(&|plan| plan.outputs = vec![5], "outputs is 5");
    refused(&|plan| plan.calls[0].kernel = map(0, vec![]), "length");
    refused(
        &|plan| plan.calls = vec![plan.calls[0].clone(); MOST_CALLS + 1],
        "1025 kernels of a program",
    );
    let error = Program::new(plan(), vec![]).unwrap_err().to_string();
    assert!(error.contains("constants is 0, but it takes 1"), "{error}");
    let error = Program::new(plan(), vec![vec![0; 5]]).unwrap_err().to_string();
    assert!(error.contains("number 0, is 20, but it has 16 bytes"), "{error}");
}

#[test]
fn more_memory_than_there_may_be_is_refused_before_any_is_taken() {
    let mut large = plan();
    large.inputs = vec![MOST_WORDS; 5];
    large.calls = vec![call(map(MOST_WORDS as u32, vec![]), &[1])];
    large.outputs = vec![6];
    assert!(matches!(large.layout(), Err(GpuError::Memory { .. })));
}

/// Buffers of a long chain are used again, and none while somebody still reads it.
#[test]
fn buffers_are_shared_by_what_is_not_needed_at_the_same_time() {
    let gemm = Kernel::Gemm(Gemm {
        m: 1,
        n: 4,
        k: 4,
        ..Gemm::default()
    });
    let sum = Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 2,
        columns: 50_000,
    });
    // Slot 0 is the matrix, 1 the vector, 2 the rows; 3 is read again at the very end.
    let mut calls = vec![call(map(4, vec![Step::Relu]), &[1])];
    calls.extend((3..21).map(|slot| call(map(4, vec![Step::Abs]), &[slot])));
    calls.push(call(gemm, &[21, 0]));
    calls.push(call(sum, &[2]));
    calls.push(call(map(4, vec![Step::Add]), &[22, 3]));
    let plan = Plan {
        constants: vec![16],
        inputs: vec![4, 100_000],
        calls,
        outputs: vec![24, 23],
    };
    let layout = plan.layout().unwrap();
    // The constant, two inputs, three of four words, the sum and its parts.
    assert_eq!(layout.buffers, [16, 4, 100_000, 4, 4, 4, 2, 8]);
    for (call, bound) in plan.calls.iter().zip(&layout.calls) {
        let (read, written) = bound.split_at(call.inputs.len());
        assert!(written.iter().all(|buffer| !read.contains(buffer)), "{call:?}");
    }
    // The first result keeps its own until the last call has read it.
    let first = layout.slots[3];
    assert!(!layout.slots[4..24].contains(&first), "{:?}", layout.slots);
}

#[test]
fn the_longest_description_fits_into_a_line() {
    let steps = vec![Step::Scale(-f32::MIN_POSITIVE * 1.234_567); 16];
    let one = call(map(268_435_456, steps), &[3000]);
    let plan = Plan {
        constants: vec![MOST_WORDS; MOST_CONSTANTS],
        inputs: vec![MOST_WORDS; MOST_ENDS],
        calls: vec![one; MOST_CALLS],
        outputs: vec![3000; MOST_ENDS],
    };
    assert!(serde_json::to_vec(&plan).unwrap().len() < 1 << 20);
}
