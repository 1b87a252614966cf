//! The files of `kernels/` where there is no GPU: that they compile for the devices they are meant for, where NVRTC is at hand, and that
//! they compute what they should, run by a C++ compiler's program on the processor. What is not here is said. On a CUDA device all of
//! it runs as it does for users.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod nvrtc;
mod on_host;

use karman_gpu::check::{check, inputs, matrix};
use karman_gpu::tune::CANDIDATES;
use karman_gpu::{
    Cuda, Device, Gemm, GpuError, Kernel, Pass, Product, Repeat, Role, Shader, ShaderLimits, Words, Work,
    floats, halves,
};
use std::collections::BTreeSet;
use std::time::Duration;

const MOST: Duration = Duration::from_secs(120);

/// Blocks of threads.
const MANY: u32 = 4096;

/// Every kernel of the matrix; and one of each that is cut into tiles, with every tile.
fn all() -> Vec<(Kernel, Vec<Pass>)> {
    let passes = |kernel: &Kernel, tile| kernel.passes(tile).unwrap();
    let mut all: Vec<_> = matrix()
        .into_iter()
        .map(|kernel| (kernel.clone(), passes(&kernel, CANDIDATES[0])))
        .collect();
    let tiled = [
        r#"{"kernel": "gemm", "m": 70, "n": 75, "k": 45}"#,
        r#"{"kernel": "quantised-gemm", "m": 70, "n": 65, "k": 258, "group": 128, "bits": 4}"#,
        r#"{"kernel": "convolution", "batch": 2, "channels": 3, "height": 17, "width": 19, "filters": 33, "kernel-height": 3,
            "kernel-width": 3, "padding": 1}"#,
    ];
    for text in tiled {
        let kernel: Kernel = serde_json::from_str(text).unwrap();
        all.extend(CANDIDATES.map(|tile| (kernel.clone(), passes(&kernel, tile))));
    }
    all
}

/// The texts of all passes, each once, with a name for messages.
fn texts() -> Vec<(&'static str, String)> {
    let kernels = all();
    let finishes = matrix();
    let finishes = finishes
        .iter()
        .filter_map(|kernel| kernel.product().unwrap()?.finish);
    let passes = kernels.into_iter().flat_map(|(_, passes)| passes).chain(finishes);
    let texts: BTreeSet<_> = passes.map(|pass| (pass.name, pass.cuda())).collect();
    texts.into_iter().collect()
}

#[test]
fn every_kernel_compiles_for_the_devices_it_is_meant_for() {
    let nvrtc = match nvrtc::load() {
        Ok(libraries) => libraries,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    for (name, text) in texts() {
        // What a device is given, and what its driver makes of that on three generations.
        for target in ["compute_75", "sm_75", "sm_80", "sm_90"] {
            nvrtc.compile(name, &text, target);
        }
    }
}

/// A file that no kernel is made of would be checked by nobody.
#[test]
fn every_file_is_part_of_a_kernel() {
    let texts = texts();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels");
    let files = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| file.unwrap().path());
    let files: Vec<_> = files
        .filter(|file| file.extension().is_some_and(|ending| ending == "cu"))
        .collect();
    assert!(files.len() > 30);
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(
            texts.iter().any(|(_, whole)| whole.contains(&text)),
            "{}",
            file.display()
        );
    }
}

#[test]
fn every_kernel_computes_what_it_should() {
    let host = match on_host::Host::build(&texts()) {
        Ok(host) => host,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut wrong = Vec::new();
    for (seed, (kernel, passes)) in all().into_iter().enumerate() {
        let given = inputs(&kernel, seed as u64 + 1).unwrap();
        let forwards = run(&host, &kernel, &passes, &given, false);
        // It is the threads of one block whose order could matter: what has many of them shows no more, and takes its time.
        let blocks = passes.iter().map(|pass| pass.workgroups.iter().product::<u32>());
        if blocks.max() <= Some(MANY) {
            let backwards = run(&host, &kernel, &passes, &given, true);
            assert!(
                forwards == backwards,
                "the order of threads makes a difference: {kernel:?}"
            );
        }
        wrong.extend(error_of(&kernel, &given, &forwards).map(|error| format!("{kernel:?}: {error}")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where cuBLAS multiplies, what comes afterwards is ours.
#[test]
fn what_comes_after_a_product_is_right() {
    let host = match on_host::Host::build(&texts()) {
        Ok(host) => host,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let mut finished = 0;
    for kernel in matrix() {
        let Some(product) = kernel.product().unwrap() else {
            continue;
        };
        let given = inputs(&kernel, 1).unwrap();
        let mut buffers = buffers(&kernel, &given);
        buffers[product.result] = multiplied(&product, &given);
        if let Some(pass) = &product.finish {
            host.run(pass, &mut buffers, false);
            finished += 1;
        }
        let error = error_of(&kernel, &given, &[buffers[product.result].clone()]);
        assert_eq!(error, None, "{kernel:?}");
    }
    assert!(finished > 3);
}

/// Every kernel as users have it, by cuBLAS and by our own products, where a device is at hand.
#[test]
fn cuda_devices_are_right() {
    let mut device = match Cuda::open("cuda-0") {
        Ok(device) => device,
        Err(error) => return eprintln!("skipped on CUDA: {error}"),
    };
    for own in [false, true] {
        device.set_own_products(own);
        for (seed, kernel) in matrix().iter().enumerate() {
            let outcome = check(&mut device, kernel, seed as u64 + 1, MOST);
            assert!(outcome.holds(), "{outcome:?}");
        }
    }
    // Also where it would be valid elsewhere.
    let shader = Work::Shader(Shader {
        wgsl: "@compute @workgroup_size(1) fn main() {}".into(),
        entry: "main".into(),
        workgroups: [1, 1, 1],
        outputs: vec![],
        loops: 1,
        limits: ShaderLimits::default(),
    });
    let refused = device.run(&shader, &[], MOST);
    assert!(matches!(refused, Err(GpuError::Absent(_))), "{refused:?}");
    let kernel = Kernel::Gemm(Gemm {
        m: 64,
        n: 64,
        k: 64,
        ..Gemm::default()
    });
    let given = inputs(&kernel, 1).unwrap();
    let prepared = device.prepare(&kernel, &slices(&given)).unwrap();
    device.repeat(&prepared, 10, MOST).unwrap();
    assert_eq!(error_of(&kernel, &given, &device.read(&prepared).unwrap()), None);
}

fn slices(words: &[Words]) -> Vec<&[u32]> {
    words.iter().map(Vec::as_slice).collect()
}

/// The buffers of a kernel as a device has them before it begins.
fn buffers(kernel: &Kernel, given: &[Words]) -> Vec<Words> {
    let arguments = kernel.arguments().unwrap();
    let rest = arguments.iter().skip(given.len());
    let rest = rest.map(|argument| vec![0; argument.words]);
    given.iter().cloned().chain(rest).collect()
}

/// The outputs of a kernel, run on the processor.
fn run(
    host: &on_host::Host,
    kernel: &Kernel,
    passes: &[Pass],
    given: &[Words],
    backwards: bool,
) -> Vec<Words> {
    let mut buffers = buffers(kernel, given);
    for pass in passes {
        host.run(pass, &mut buffers, backwards);
    }
    let arguments = kernel.arguments().unwrap();
    let outputs = arguments.iter().zip(buffers);
    let outputs = outputs.filter(|(argument, _)| argument.role == Role::Output);
    outputs.map(|(_, words)| words).collect()
}

/// The largest error where it is too large.
fn error_of(kernel: &Kernel, given: &[Words], outputs: &[Words]) -> Option<f64> {
    let expected = kernel.reference(&slices(given)).unwrap();
    let arguments = kernel.arguments().unwrap();
    let arguments = arguments.iter().filter(|argument| argument.role == Role::Output);
    let errors = arguments.zip(outputs).zip(&expected);
    let errors = errors.map(|((argument, words), expected)| expected.error(&argument.element.numbers(words)));
    let most = errors.fold(0.0, f64::max);
    (most > kernel.tolerance() || outputs.len() != expected.len()).then_some(most)
}

/// What BLAS gives for a product: column by column.
fn multiplied(product: &Product, given: &[Words]) -> Words {
    let numbers = |words: &Words| -> Vec<f64> {
        match product.half {
            true => halves(words).iter().map(|half| half.to_f64()).collect(),
            false => floats(words).iter().map(|single| f64::from(*single)).collect(),
        }
    };
    let (first, second) = (numbers(&given[1]), numbers(&given[0]));
    let sizes = [
        product.m,
        product.n,
        product.k,
        product.first_stride,
        product.second_stride,
    ];
    let [m, n, k, first_stride, second_stride] = sizes.map(|size| size as usize);
    let mut result = vec![0; m * n];
    for (column, words) in result.chunks_mut(m).enumerate() {
        for (row, word) in words.iter_mut().enumerate() {
            let sum = (0..k).map(|inner| {
                let at = match product.transposed {
                    true => inner + row * first_stride,
                    false => row + inner * first_stride,
                };
                first[at] * second[inner + column * second_stride]
            });
            *word = (sum.sum::<f64>() as f32).to_bits();
        }
    }
    result
}
