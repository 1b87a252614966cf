//! Whole models as programs, on the processor and on the GPU that is here (in CI: software Vulkan): what tract answers, they answer.
//! Where there is no GPU the test says that it skipped it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::devices::*;
use common::digits;
use common::onnx::*;
use karman_gpu::{Cpu, GpuError, Kernel};
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{DeviceModel, InferError, ModelLimits};
use karman_tensor::Tensor;
use karman_types::ByteSize;

#[test]
fn the_digit_models_answer_as_on_tract() {
    let mut devices = devices();
    let images: Vec<Tensor> = [1, 7, 1, 2, 3, 4, 7]
        .into_iter()
        .zip(0..)
        .map(|(batch, seed)| drawn(&[batch, 1, 8, 8], seed))
        .collect();
    for name in ["digits-s", "digits-m", "digits-l"] {
        // Probabilities: none is above 1.
        agrees(&mut devices, &digits(name), "image", &images, 1e-4);
    }
}

#[test]
fn published_networks_answer_as_on_tract() {
    let mut devices = devices();
    let variant = Variant {
        input: 64,
        narrower: 8,
        classes: 10,
        ..Variant::default()
    };
    for architecture in Architecture::ALL {
        let file = architecture.generate(&variant);
        let images = [drawn(&[1, 3, 64, 64], 1), drawn(&[2, 3, 64, 64], 2)];
        agrees(&mut devices, &file, "image", &images, 1e-3);
    }
}

/// An activation is no kernel of its own where it follows a convolution, a product or an addition.
#[test]
fn what_is_done_to_every_element_goes_into_the_kernel_before() {
    let variant = Variant {
        input: 32,
        narrower: 16,
        ..Variant::default()
    };
    let count = |architecture: Architecture| {
        let model = read(&architecture.generate(&variant)).unwrap();
        let run = model
            .prepare(vec![("image".into(), drawn(&[1, 3, 32, 32], 1))])
            .unwrap();
        let calls = &run.program.plan().calls;
        let maps = calls.iter().filter(|call| matches!(call.kernel, Kernel::Map(_)));
        (calls.len(), maps.count())
    };
    // 13 convolutions, 5 poolings, 3 products.
    assert_eq!(count(Architecture::Vgg16), (21, 0));
    // 53 convolutions, a pooling, 16 additions, a mean with its division, a product.
    assert_eq!(count(Architecture::ResNet50), (73, 17));
}

/// Batch normalisation that goes into a convolution and one that cannot, a sigmoid unit, constants of every shape, differences, means.
#[test]
fn operators_mean_what_they_mean_on_tract() {
    let norm = ["scale", "shift", "mean", "variance"];
    let normalised = |from: &'static str| [&[from][..], &norm].concat();
    let window = [
        ints("kernel_shape", &[3, 3]),
        ints("strides", &[2, 2]),
        ints("pads", &[1; 4]),
    ];
    let counted = [&window[..], &[int("count_include_pad", 1)]].concat();
    let mut graph = vec![
        node("Conv", &["x", "w"], &["c"], &[ints("pads", &[1; 4])]),
        node("BatchNormalization", &normalised("c"), &["b"], &[]),
        node("Sigmoid", &["b"], &["s"], &[]),
        node("Mul", &["b", "s"], &["m"], &[]),
        node("Mul", &["channels", "m"], &["k"], &[]),
        node("Sub", &["half", "k"], &["t"], &[]),
        node("Div", &["t", "two"], &["d"], &[]),
        node("AveragePool", &["d"], &["a"], &counted),
        node("BatchNormalization", &normalised("a"), &["n"], &[]),
        node("Clip", &["n", "least", "most"], &["p"], &[]),
        node("Sub", &["p", "a"], &["e"], &[]),
        node("AveragePool", &["e"], &["f"], &window),
        node("GlobalAveragePool", &["f"], &["g"], &[]),
        node("Flatten", &["g"], &["h"], &[]),
        node("MatMul", &["h", "matrix"], &["q"], &[]),
        node("Add", &["q", "bias"], &["r"], &[]),
        node("Identity", &["r"], &["o"], &[]),
        node("Sub", &["o", "o"], &["zero"], &[]),
        node("Softmax", &["o"], &["y"], &[]),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 2, 6, 6]),
        value(12, "y", 1, &[1, 3]),
        value(12, "e", 1, &[1, 4, 3, 3]),
        value(12, "zero", 1, &[1, 3]),
        weights("w", &[4, 2, 3, 3], 1),
        weights("channels", &[4, 1, 1], 2),
        weights("matrix", &[4, 3], 3),
        weights("bias", &[3], 4),
        number("half", 0.5),
        number("two", 2.0),
        number("least", 0.125),
        number("most", 0.75),
    ]);
    graph.extend(norm.iter().zip(5..).map(|(name, seed)| weights(name, &[4], seed)));
    let images = [drawn(&[1, 2, 6, 6], 10), drawn(&[1, 2, 6, 6], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// Strides, dilations and pads that are other for rows than for columns, and on each side; and those that follow from the size.
#[test]
fn windows_that_are_not_square_mean_what_they_mean_on_tract() {
    let uneven = [ints("pads", &[0, 1, 3, 2]), ints("strides", &[2, 1])];
    let tall = [&uneven[..], &[ints("kernel_shape", &[4, 3])]].concat();
    let counted = [&tall[..], &[int("count_include_pad", 1)]].concat();
    let dilated = [&uneven[..], &[ints("dilations", &[1, 2])]].concat();
    let like = |auto: &str| {
        let sides = [ints("kernel_shape", &[2, 4]), ints("strides", &[1, 2])];
        [&sides[..], &[text("auto_pad", auto)]].concat()
    };
    let mut graph = vec![
        node("Conv", &["x", "w"], &["c"], &dilated),
        node("MaxPool", &["c"], &["m"], &tall),
        node("AveragePool", &["c"], &["a"], &tall),
        node("AveragePool", &["c"], &["k"], &counted),
        node("Conv", &["x", "v"], &["upper"], &like("SAME_UPPER")),
        node("Conv", &["x", "v"], &["lower"], &like("SAME_LOWER")),
        node("MaxPool", &["x"], &["most"], &like("SAME_UPPER")),
        node("AveragePool", &["x"], &["mean"], &like("SAME_LOWER")),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 2, 13, 11]),
        value(12, "m", 1, &[1, 9, 4, 11]),
        value(12, "a", 1, &[1, 9, 4, 11]),
        value(12, "k", 1, &[1, 9, 4, 11]),
        value(12, "upper", 1, &[1, 4, 13, 6]),
        value(12, "lower", 1, &[1, 4, 13, 6]),
        value(12, "most", 1, &[1, 2, 13, 6]),
        value(12, "mean", 1, &[1, 2, 13, 6]),
        // Nine filters are computed as a product of matrices, four each for itself.
        weights("w", &[9, 2, 3, 3], 1),
        weights("v", &[4, 2, 2, 4], 2),
    ]);
    let images = [drawn(&[1, 2, 13, 11], 10), drawn(&[1, 2, 13, 11], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// A number, a factor of each channel and a last axis, on either side and larger than the tensor; products of what goes on along the other.
#[test]
fn tensors_go_on_along_each_other_as_on_tract() {
    let mut graph = vec![
        node("GlobalAveragePool", &["x"], &["g"], &[]),
        node("Sub", &["x", "g"], &["a"], &[]),
        node("Sub", &["g", "x"], &["b"], &[]),
        node("Mul", &["a", "b"], &["squares"], &[]),
        node("Add", &["x", "one"], &["above"], &[]),
        node("Div", &["squares", "above"], &["c"], &[]),
        node("Div", &["g", "above"], &["d"], &[]),
        node("Div", &["row", "above"], &["e"], &[]),
        node("Sub", &["planes", "g"], &["f"], &[]),
        node("Div", &["g", "planes"], &["h"], &[]),
        node("Flatten", &["g"], &["flat"], &[]),
        node("Mul", &["flat", "column"], &["outer"], &[]),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 3, 4, 5]),
        value(12, "c", 1, &[1, 3, 4, 5]),
        value(12, "d", 1, &[1, 3, 4, 5]),
        value(12, "e", 1, &[1, 3, 4, 5]),
        value(12, "f", 1, &[2, 3, 1, 4]),
        value(12, "h", 1, &[2, 3, 1, 4]),
        value(12, "outer", 1, &[6, 3]),
        number("one", 1.0),
        weights("row", &[5], 1),
        weights("planes", &[2, 1, 1, 4], 2),
        weights("column", &[6, 1], 3),
    ]);
    let images = [drawn(&[1, 3, 4, 5], 10), drawn(&[1, 3, 4, 5], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// Along every axis, counted from either end; the same one twice, constants, and more than a kernel takes at once.
#[test]
fn tensors_follow_each_other_as_on_tract() {
    let along = |axis| [int("axis", axis)];
    let mut graph = vec![
        node("Relu", &["x"], &["r"], &[]),
        node("Concat", &["x", "r", "x"], &["channels"], &along(1)),
        node("Concat", &["r", "rows", "r"], &["tall"], &along(2)),
        node("Concat", &["x", "r"], &["wide"], &along(-1)),
        node("GlobalMaxPool", &["x"], &["g"], &[]),
        node(
            "Concat",
            &["g", "r", "g", "x", "r", "g", "x", "g", "x"],
            &["nine"],
            &along(3),
        ),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 2, 1, 4]),
        value(12, "channels", 1, &[1, 6, 1, 4]),
        value(12, "tall", 1, &[1, 2, 5, 4]),
        value(12, "wide", 1, &[1, 2, 1, 8]),
        value(12, "nine", 1, &[1, 2, 1, 24]),
        weights("rows", &[1, 2, 3, 4], 1),
    ]);
    let images = [drawn(&[1, 2, 1, 4], 10), drawn(&[1, 2, 1, 4], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 0.0);
}

#[test]
fn an_operator_without_a_kernel_is_refused_by_its_name() {
    let refused = |file: &[u8], says: &str| {
        let error = read(file).unwrap_err();
        assert!(matches!(error, InferError::NotOnGpu { .. }), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    };
    let image = value(11, "x", 1, &[1, 2, 4, 4]);
    let one = |op: &str, attributes: &[Vec<u8>], gives: &[i64]| {
        model(&[
            node(op, &["x"], &["y"], attributes),
            image.clone(),
            value(12, "y", 1, gives),
        ])
    };
    refused(
        &one("Softplus", &[], &[1, 2, 4, 4]),
        "operator `Softplus` (`y`) does not run on a GPU here",
    );
    let counted = [
        ints("kernel_shape", &[3, 3]),
        ints("strides", &[2, 2]),
        int("ceil_mode", 1),
        int("count_include_pad", 1),
    ];
    refused(
        &one("AveragePool", &counted, &[1, 2, 2, 2]),
        "beyond a padding that it counts",
    );
    refused(
        &one("LRN", &[int("size", 3), float("beta", 0.8)], &[1, 2, 4, 4]),
        "its `beta` is 0.8",
    );
    refused(&digits("digits-l-int8"), "uantizeLinear`");
}

/// A part of the batch has as many rows as it says, or it is refused: none is one of the whole.
#[test]
fn a_part_of_the_batch_is_never_taken_for_the_whole() {
    let rows = |rows: u32| drawn(&[rows, 4], u64::from(rows));
    let part = |end: i64, step: i64, axis: i64, columns: i64| {
        model(&[
            node("Slice", &["x", "begin", "end", "axis", "step"], &["y"], &[]),
            batched(11, "x", &[4]),
            batched(12, "y", &[columns]),
            whole("begin", &[0]),
            whole("end", &[end]),
            whole("axis", &[axis]),
            whole("step", &[step]),
        ])
    };
    let refused = |file: &[u8], x: Tensor| {
        let ran = read(file).and_then(|model| model.run(&mut Cpu::new(1), vec![("x".into(), x)], MOST));
        ran.expect_err("it ran")
    };
    for (end, step) in [(2, 1), (i64::MAX, 2)] {
        let file = part(end, step, 0, 4);
        agrees(&mut devices(), &file, "x", &[rows(1)], 0.0);
        let error = refused(&file, rows(5));
        assert!(error.to_string().contains("takes x f32 [1, 4]"), "{error}");
    }
    // Longer than what any look at it shows.
    let file = part(100, 1, 0, 4);
    agrees(&mut devices(), &file, "x", &[rows(1), rows(5), rows(100)], 0.0);
    let error = refused(&file, rows(101));
    assert!(matches!(error, InferError::NotOnGpu { .. }), "{error}");
    agrees(&mut devices(), &part(3, 2, 1, 2), "x", &[rows(1), rows(5)], 0.0);
    // One row in each part at a batch of one, of two, and of seven.
    let parts = ["y", "b", "c", "d", "e", "f", "g"];
    let file = model(&[
        node("Split", &["x"], &parts, &[]),
        batched(11, "x", &[4]),
        batched(12, "y", &[4]),
    ]);
    let error = refused(&file, rows(14));
    assert!(matches!(error, InferError::NotOnGpu { .. }), "{error}");
}

#[test]
fn inputs_that_do_not_fit_are_named() {
    let model = read(&digits("digits-s")).unwrap();
    let mut device = Cpu::new(1);
    let mut run = |name: &str, dims: &[u32]| {
        model
            .run(&mut device, vec![(name.to_owned(), drawn(dims, 1))], MOST)
            .unwrap_err()
    };
    assert!(matches!(
        run("picture", &[1, 1, 8, 8]),
        InferError::UnknownInput { .. }
    ));
    assert!(matches!(run("image", &[1, 1, 8, 9]), InferError::Input { .. }));
    // A program has no buffers of nothing.
    assert!(matches!(
        run("image", &[0, 1, 8, 8]),
        InferError::EmptyDimension { least: 1, .. }
    ));
}

/// A channel's factor becomes as long as what it multiplies: that counts before it is made.
#[test]
fn a_model_that_takes_more_memory_than_it_may_is_refused() {
    let most = |file: &[u8], bytes: u64| {
        let model = DeviceModel::read(file.to_vec(), &ModelLimits::default(), ByteSize(bytes));
        model.map(|_| ())
    };
    let too_much =
        |read: Result<(), InferError>| matches!(read, Err(InferError::Gpu(GpuError::Memory { .. })));
    let file = digits("digits-s");
    assert!(too_much(most(&file, 1024)));
    assert_eq!(most(&file, 1 << 20), Ok(()));
    let wide = model(&[
        node("Mul", &["x", "channels"], &["y"], &[]),
        value(11, "x", 1, &[1, 2, 64, 64]),
        value(12, "y", 1, &[1, 2, 64, 64]),
        weights("channels", &[2, 1, 1], 1),
    ]);
    // An input, an output and a constant of 32 KiB each.
    assert!(too_much(most(&wide, 30_000)));
    assert!(too_much(most(&wide, 3 * 32_768 - 4)));
    assert_eq!(most(&wide, 3 * 32_768), Ok(()));
}
