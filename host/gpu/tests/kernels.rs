//! Every kernel in every shape of the matrix, on the processor and on every GPU that is here (in CI: software Vulkan), against the
//! reference in double precision. Where there is no GPU the test says that it skipped it.

use karman_gpu::check::{check, matrix};
use karman_gpu::tune::CANDIDATES;
use karman_gpu::{
    Attention, Cpu, Device, Fold, Gemm, GpuError, IntegerGemm, Kernel, Padding, Pool, Reduce, Repeat, Role,
    Shader, ShaderLimits, Sides, TopK, Wgpu, Window, Work, f32_words,
};
use std::path::Path;
use std::time::Duration;

const MOST: Duration = Duration::from_secs(120);

fn gemm(m: u32, n: u32, k: u32) -> Kernel {
    Kernel::Gemm(Gemm {
        m,
        n,
        k,
        ..Gemm::default()
    })
}

fn holds(device: &mut dyn Device, kernels: &[Kernel]) {
    let wrong: Vec<String> = kernels
        .iter()
        .enumerate()
        .map(|(seed, kernel)| check(device, kernel, seed as u64 + 1, MOST))
        .filter(|outcome| !outcome.holds())
        .map(|outcome| format!("{:?}: {:?}", outcome.kernel, outcome.error))
        .collect();
    assert!(
        wrong.is_empty(),
        "on {}:\n{}",
        device.info().name,
        wrong.join("\n")
    );
}

/// The first Vulkan device, or none with a word about it.
fn gpu() -> Option<Wgpu> {
    match Wgpu::open("vulkan-0", None) {
        Ok(device) => Some(device),
        Err(error) => {
            eprintln!("skipped on GPUs: {error}");
            None
        }
    }
}

/// Without it the tests of GPUs would pass over a driver that is broken.
#[test]
fn a_driver_that_is_installed_opens() {
    let installed = Path::new("/usr/share/vulkan/icd.d").read_dir();
    if installed.is_ok_and(|mut drivers| drivers.next().is_some()) {
        Wgpu::open("vulkan-0", None).unwrap();
    }
}

#[test]
fn the_processor_is_right_with_one_thread_and_with_three() {
    holds(&mut Cpu::new(1), &matrix());
    holds(&mut Cpu::new(3), &matrix());
}

#[test]
fn gpus_are_right() {
    if let Some(mut device) = gpu() {
        holds(&mut device, &matrix());
    }
}

#[test]
fn every_shape_of_tile_is_right() {
    let Some(mut device) = gpu() else { return };
    let shape = gemm(70, 75, 45);
    let info = device.info().clone();
    for tile in CANDIDATES.into_iter().filter(|tile| tile.fits(&info)) {
        device.set_tile(tile);
        holds(&mut device, std::slice::from_ref(&shape));
    }
}

/// What has more tiles than one dimension of workgroups holds is counted over two.
#[test]
fn long_matrices_are_right() {
    let Some(mut device) = gpu() else { return };
    let most = 1 << 20;
    let small = CANDIDATES.into_iter().min_by_key(|tile| tile.rows).unwrap();
    assert!(most / small.rows > 65_535);
    device.set_tile(small);
    let integer = Kernel::IntegerGemm(IntegerGemm { m: 1, n: most, k: 4 });
    holds(&mut device, &[gemm(most, 1, 3), integer]);
}

/// A pooled buffer still holds what was in it: neither scratch nor an output that is written in part may show that.
#[test]
fn work_leaves_nothing_behind_for_the_next() {
    let Some(mut device) = gpu() else { return };
    // Each row is folded in four parts, so that eight words pass between the two passes.
    let sums = Kernel::Reduce(Reduce {
        fold: Fold::Sum,
        rows: 2,
        columns: 50_001,
    });
    for seed in [1, 2] {
        let outcome = check(&mut device, &sums, seed, MOST);
        assert!(outcome.holds(), "{outcome:?}");
        // Eight words of which the shader writes none.
        let done = device.run(&own(1000, vec![4, 8]), &[&[1, 7]], MOST);
        assert_eq!(done.map(|done| done.outputs), Ok(vec![vec![7; 4], vec![0; 8]]));
    }
}

/// More equals than are kept, in more parts than a workgroup has threads: the first of them are taken, after all that are greater,
/// and running the passes again on the same buffers changes nothing.
#[test]
fn the_first_of_many_equals_are_kept_however_often_it_runs() {
    let Some(mut device) = gpu() else { return };
    let length = 4_200_001u32;
    let numbers = |step: u32| {
        let number = |i: u32| ((i % 1009) * step % 23) as f32 - 11.0;
        f32_words(&(0..length).map(number).collect::<Vec<_>>())
    };
    let (update, lost) = (numbers(7), numbers(5));
    // Some 183,000 sums have the largest magnitude.
    for keep in [180_000, 200_000] {
        let kernel = Kernel::TopK(TopK { length, keep });
        let expected = kernel.reference(&[&update, &lost]).unwrap();
        let arguments = kernel.arguments().unwrap();
        let outputs = arguments.iter().filter(|argument| argument.role == Role::Output);
        let prepared = device.prepare(&kernel, &[&update, &lost]).unwrap();
        for times in [1, 2] {
            device.repeat(&prepared, times, MOST).unwrap();
            let words = device.read(&prepared, MOST).unwrap();
            for ((argument, words), expected) in outputs.clone().zip(&words).zip(&expected) {
                let error = expected.error(&argument.element.numbers(words));
                assert_eq!(error, 0.0, "{} of {keep} after {times}", argument.name);
            }
        }
    }
}

/// The second would take 16 GB if all pixels under all taps were written out at once; of the third and the fourth one row takes minutes, of the
/// last a thousand queries are one task.
#[test]
fn work_on_the_processor_ends_in_time() {
    let product = gemm(4096, 4096, 4096);
    let text = r#"{"kernel": "convolution", "channels": 1, "height": 2048, "width": 2048, "filters": 8,
        "kernel-height": 31, "kernel-width": 31, "padding": 15}"#;
    let convolution: Kernel = serde_json::from_str(text).unwrap();
    let pool = |height, width, kernel_height, kernel_width| {
        Kernel::Pool(Pool {
            window: Window::Max,
            planes: 1,
            height,
            width,
            kernel_height,
            kernel_width,
            stride: Sides::both(1),
            padding: Padding::all(0),
            dilation: Sides::both(1),
            counts_padding: false,
        })
    };
    let attention = Kernel::Attention(Attention {
        heads: 1,
        key_heads: 0,
        queries: 1024,
        keys: 1 << 20,
        width: 1,
        causal: false,
    });
    let pools = [pool(1, 1 << 20, 1, 1 << 19), pool(2048, 4096, 2048, 2048)];
    for kernel in [product, convolution].into_iter().chain(pools).chain([attention]) {
        let arguments = kernel.arguments().unwrap();
        let inputs: Vec<Vec<u32>> = arguments
            .iter()
            .filter(|argument| argument.role == Role::Input)
            .map(|argument| vec![0; argument.words])
            .collect();
        let inputs: Vec<&[u32]> = inputs.iter().map(Vec::as_slice).collect();
        let within = Duration::from_millis(20);
        let done = Cpu::new(2).run(&Work::Kernel(kernel), &inputs, within);
        assert_eq!(done, Err(GpuError::Deadline(within)));
    }
}

const OWN: &str = "@group(0) @binding(0) var<storage, read> a: array<u32>;
@group(0) @binding(1) var<storage, read_write> b: array<u32>;
@compute @workgroup_size(4) fn main(@builtin(local_invocation_index) i: u32) {
    for (var n = 0u; n < a[0]; n++) { b[i] += a[1]; }
}";

fn own(loops: u32, outputs: Vec<u64>) -> Work {
    Work::Shader(Shader {
        wgsl: OWN.into(),
        entry: "main".into(),
        workgroups: [1, 1, 1],
        outputs,
        loops,
        limits: ShaderLimits::default(),
    })
}

/// The budget counts exactly, for each invocation: iterations, and the look at the condition that ends the loop.
#[test]
fn a_shader_of_ones_own_runs_within_its_loops() {
    let Some(mut device) = gpu() else { return };
    let mut run = |iterations: u32| {
        let done = device.run(&own(1000, vec![5]), &[&[iterations, 2]], MOST);
        done.map(|done| done.outputs)
    };
    assert_eq!(run(999), Ok(vec![vec![1998, 1998, 1998, 1998, 0]]));
    assert_eq!(run(1000), Err(GpuError::Endless(1000)));
    assert_eq!(run(0), Ok(vec![vec![0; 5]]));
}

/// A text need not name all of its outputs: the same one with more of them, or more inputs, is another shader.
#[test]
fn the_same_text_runs_with_any_number_of_buffers() {
    let Some(mut device) = gpu() else { return };
    let sums = vec![6, 6, 6, 6];
    for outputs in [vec![4], vec![4, 3], vec![4], vec![4, 3, 2]] {
        let rest = outputs[1..].iter().map(|words| vec![0; *words as usize]);
        let expected: Vec<Vec<u32>> = std::iter::once(sums.clone()).chain(rest).collect();
        let done = device.run(&own(1000, outputs), &[&[3, 2]], MOST);
        assert_eq!(done.map(|done| done.outputs), Ok(expected));
    }
}
