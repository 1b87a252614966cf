//! The operators of published networks as programs, on the processor and on the GPU that is here (in CI: software Vulkan), held against
//! tract. Where there is no GPU the test says that it skipped it.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::devices::*;
use common::onnx::*;
use karman_gpu::Cpu;
use karman_infer::{InferError, Named};
use karman_tensor::{Shape, Tensor};

/// Windows that end beyond the image, as SqueezeNet has them, and windows with gaps.
#[test]
fn windows_that_are_ceiled_or_dilated_mean_what_they_mean_on_tract() {
    let ceiled = [
        ints("kernel_shape", &[3, 3]),
        ints("strides", &[2, 2]),
        int("ceil_mode", 1),
    ];
    let padded = [&ceiled[..], &[ints("pads", &[1, 0, 1, 1])]].concat();
    let dilated = [
        ints("kernel_shape", &[2, 3]),
        ints("dilations", &[3, 2]),
        ints("pads", &[1, 2, 1, 2]),
    ];
    let mut graph = vec![
        node("MaxPool", &["x"], &["most"], &ceiled),
        node("AveragePool", &["x"], &["mean"], &ceiled),
        node("MaxPool", &["x"], &["padded"], &padded),
        node("MaxPool", &["x"], &["gaps"], &dilated),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 2, 6, 9]),
        value(12, "most", 1, &[1, 2, 3, 4]),
        value(12, "mean", 1, &[1, 2, 3, 4]),
        value(12, "padded", 1, &[1, 2, 4, 5]),
        value(12, "gaps", 1, &[1, 2, 5, 9]),
    ]);
    let images = [drawn(&[1, 2, 6, 9], 10), drawn(&[1, 2, 6, 9], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-5);
}

/// Transposed, cut out, repeated, looked up and shuffled, along dimensions counted from either end.
#[test]
fn elements_lie_where_they_lie_on_tract() {
    let nearest = [text("mode", "nearest")];
    let floored = [
        &nearest[..],
        &[
            text("coordinate_transformation_mode", "asymmetric"),
            text("nearest_mode", "floor"),
        ],
    ]
    .concat();
    let mut graph = vec![
        node("Transpose", &["x"], &["last"], &[ints("perm", &[0, 2, 3, 1])]),
        node("Transpose", &["last"], &["turned"], &[]),
        node(
            "Slice",
            &["x", "starts", "ends", "places", "steps"],
            &["part"],
            &[],
        ),
        node("Split", &["x", "widths"], &["left", "right"], &[int("axis", -1)]),
        node("Split", &["x"], &["upper", "lower"], &[int("axis", 2)]),
        node("Concat", &["lower", "upper"], &["swapped"], &[int("axis", 2)]),
        node("Expand", &["left", "wide"], &["repeated"], &[]),
        node("Resize", &["x", "", "uneven"], &["floored"], &floored),
        node("Resize", &["x", "", "twice"], &["nearer"], &nearest),
        node("Gather", &["x", "rows"], &["rows_of"], &[int("axis", 2)]),
        node("Gather", &["x", "last_of"], &["channel"], &[int("axis", 1)]),
        // Channels of two groups beside each other, as ShuffleNet has them.
        node("Reshape", &["last", "groups"], &["grouped"], &[]),
        node(
            "Transpose",
            &["grouped"],
            &["mixed"],
            &[ints("perm", &[0, 1, 3, 2])],
        ),
        node("Reshape", &["mixed", "flat"], &["shuffled"], &[]),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 2, 6, 4]),
        value(12, "turned", 1, &[2, 4, 6, 1]),
        value(12, "part", 1, &[1, 2, 3, 3]),
        value(12, "right", 1, &[1, 2, 6, 3]),
        value(12, "swapped", 1, &[1, 2, 6, 4]),
        value(12, "repeated", 1, &[1, 2, 6, 5]),
        value(12, "floored", 1, &[1, 2, 12, 12]),
        value(12, "nearer", 1, &[1, 2, 12, 8]),
        value(12, "rows_of", 1, &[1, 2, 3, 4]),
        value(12, "channel", 1, &[1, 6, 4]),
        value(12, "shuffled", 1, &[1, 48]),
        whole("starts", &[1, 3]),
        whole("ends", &[6, 0]),
        whole("places", &[2, 3]),
        whole("steps", &[2, -1]),
        whole("widths", &[1, 3]),
        whole("wide", &[1, 2, 6, 5]),
        whole("rows", &[5, 0, -1]),
        whole("groups", &[1, 6, 4, 2]),
        whole("flat", &[1, 48]),
        initializer("last_of", 7, &[], &i64s(&[-1])),
    ]);
    let scales = |name: &str, scales: [f32; 4]| {
        let raw: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
        initializer(name, 1, &[4], &raw)
    };
    graph.extend([
        scales("uneven", [1.0, 1.0, 2.0, 3.0]),
        scales("twice", [1.0, 1.0, 2.0, 2.0]),
    ]);
    let images = [drawn(&[1, 2, 6, 4], 10), drawn(&[1, 2, 6, 4], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 0.0);
}

/// Along any dimensions, also those that lie between others.
#[test]
fn what_folds_dimensions_means_what_it_means_on_tract() {
    let mut graph = vec![
        node("Softmax", &["x"], &["shares"], &[int("axis", 1)]),
        node(
            "ReduceMean",
            &["x"],
            &["mean"],
            &[ints("axes", &[1]), int("keepdims", 0)],
        ),
        node("ReduceMean", &["x"], &["pooled"], &[ints("axes", &[-1, -2])]),
        node("ReduceSum", &["x", "axes"], &["sum"], &[]),
        node("ReduceMax", &["x"], &["most"], &[ints("axes", &[0, 2])]),
        node("ReduceMin", &["x"], &["least"], &[int("keepdims", 0)]),
        node(
            "LRN",
            &["x"],
            &["local"],
            &[int("size", 3), float("alpha", 0.5), float("bias", 2.0)],
        ),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 5, 6, 4]),
        value(12, "shares", 1, &[1, 5, 6, 4]),
        value(12, "mean", 1, &[1, 6, 4]),
        value(12, "pooled", 1, &[1, 5, 1, 1]),
        value(12, "sum", 1, &[1, 1, 6, 1]),
        value(12, "most", 1, &[1, 5, 1, 4]),
        value(12, "least", 1, &[]),
        value(12, "local", 1, &[1, 5, 6, 4]),
        whole("axes", &[1, 3]),
    ]);
    let images = [drawn(&[1, 5, 6, 4], 10), drawn(&[1, 5, 6, 4], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// Of numbers of either sign; and tensors that are read more than once, which nothing changes in between.
#[test]
fn functions_of_an_element_mean_what_they_mean_on_tract() {
    let mut graph = vec![
        node("Sub", &["x", "half"], &["c"], &[]),
        node("Mul", &["c", "eight"], &["z"], &[]),
        node("LeakyRelu", &["z"], &["leaky"], &[float("alpha", 0.1)]),
        node("PRelu", &["z", "slopes"], &["sloped"], &[]),
        node("Elu", &["z"], &["elu"], &[]),
        node("HardSigmoid", &["z"], &["gate"], &[]),
        node("HardSwish", &["z"], &["swish"], &[]),
        node("Gelu", &["z"], &["gelu"], &[]),
        node("Erf", &["z"], &["erf"], &[]),
        node("Pow", &["z", "two"], &["square"], &[]),
        node("Pow", &["z", "three"], &["cube"], &[]),
        node("Sqrt", &["x"], &["root"], &[]),
        node("Add", &["x", "half"], &["above"], &[]),
        node("Reciprocal", &["above"], &["below"], &[]),
        node("Sum", &["leaky", "sloped", "leaky", "elu"], &["sum"], &[]),
        node("Relu", &["sum"], &["y"], &[]),
    ];
    let all = [
        "gate", "swish", "gelu", "erf", "square", "cube", "root", "below", "y",
    ];
    graph.extend(all.map(|name| value(12, name, 1, &[1, 3, 7, 5])));
    graph.extend([
        value(11, "x", 1, &[1, 3, 7, 5]),
        number("half", 0.5),
        number("eight", 8.0),
        number("two", 2.0),
        number("three", 3.0),
        weights("slopes", &[3, 1, 1], 1),
    ]);
    let images = [drawn(&[1, 3, 7, 5], 10), drawn(&[1, 3, 7, 5], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// A block of BERT: words and a mask come in as whole numbers.
fn block() -> Vec<u8> {
    let heads = |from: &'static str, to: [&'static str; 2], order: &[i64]| {
        [
            node("Reshape", &[from, "by_head"], &[to[0]], &[]),
            node("Transpose", &[to[0]], &[to[1]], &[ints("perm", order)]),
        ]
    };
    let mut graph = vec![
        node("Gather", &["words", "ids"], &["embedded"], &[]),
        node("Add", &["embedded", "places"], &["p"], &[]),
        node("LayerNormalization", &["p", "g", "s"], &["n"], &[int("axis", -1)]),
        node("MatMul", &["n", "wq"], &["product"], &[]),
        node("Add", &["product", "bq"], &["all"], &[]),
        node("Split", &["all", "thirds"], &["q", "k", "v"], &[int("axis", 2)]),
    ];
    graph.extend(heads("q", ["q1", "q2"], &[0, 2, 1, 3]));
    graph.extend(heads("k", ["k1", "k2"], &[0, 2, 3, 1]));
    graph.extend(heads("v", ["v1", "v2"], &[0, 2, 1, 3]));
    graph.extend([
        node("MatMul", &["q2", "k2"], &["scores"], &[]),
        node("Div", &["scores", "two"], &["scaled"], &[]),
        node("Unsqueeze", &["mask", "inner"], &["mask4"], &[]),
        node("Cast", &["mask4"], &["seen"], &[int("to", 1)]),
        node("Sub", &["one", "seen"], &["unseen"], &[]),
        node("Mul", &["unseen", "far"], &["penalty"], &[]),
        node("Add", &["scaled", "penalty"], &["masked"], &[]),
        node("Softmax", &["masked"], &["attention"], &[int("axis", -1)]),
        node("MatMul", &["attention", "v2"], &["mixed"], &[]),
        node(
            "Transpose",
            &["mixed"],
            &["mixed1"],
            &[ints("perm", &[0, 2, 1, 3])],
        ),
        node("Reshape", &["mixed1", "joined"], &["mixed2"], &[]),
        node("MatMul", &["mixed2", "wo"], &["o"], &[]),
        node("Add", &["o", "p"], &["r"], &[]),
        node(
            "LayerNormalization",
            &["r", "g", "s"],
            &["n2"],
            &[int("axis", -1), float("epsilon", 1e-12)],
        ),
        node("MatMul", &["n2", "w1"], &["h"], &[]),
        node("Div", &["h", "root"], &["h1"], &[]),
        node("Erf", &["h1"], &["h2"], &[]),
        node("Add", &["h2", "one"], &["h3"], &[]),
        node("Mul", &["h", "h3"], &["h4"], &[]),
        node("Mul", &["h4", "half"], &["h5"], &[]),
        node("MatMul", &["h5", "w2"], &["f"], &[]),
        node("Add", &["f", "n2"], &["last"], &[]),
        node("Gather", &["last", "first"], &["token"], &[int("axis", 1)]),
        node(
            "Gemm",
            &["token", "wp", "bp"],
            &["pooled"],
            &[float("alpha", 0.5), float("beta", 2.0), int("transB", 1)],
        ),
        node("Tanh", &["pooled"], &["y"], &[]),
        value(11, "ids", 7, &[1, 4]),
        value(11, "mask", 7, &[1, 4]),
        value(12, "y", 1, &[1, 3]),
        value(12, "last", 1, &[1, 4, 8]),
        trained("words", &[10, 8], 1),
        trained("places", &[4, 8], 2),
        weights("g", &[8], 3),
        weights("s", &[8], 4),
        trained("wq", &[8, 24], 5),
        trained("bq", &[24], 6),
        trained("wo", &[8, 8], 7),
        trained("w1", &[8, 16], 8),
        trained("w2", &[16, 8], 9),
        trained("wp", &[3, 8], 10),
        trained("bp", &[3], 11),
        whole("thirds", &[8, 8, 8]),
        whole("by_head", &[1, 4, 2, 4]),
        whole("joined", &[1, 4, 8]),
        whole("inner", &[1, 2]),
        initializer("first", 7, &[], &i64s(&[0])),
        number("one", 1.0),
        number("two", 2.0),
        number("half", 0.5),
        number("far", -10_000.0),
        number("root", std::f32::consts::SQRT_2),
    ]);
    model(&graph)
}

fn tokens(ids: [i64; 4], mask: [i64; 4]) -> Named {
    let tensor = |numbers: [i64; 4]| Tensor::from_slice(Shape::new(&[1, 4]).unwrap(), &numbers).unwrap();
    vec![("ids".into(), tensor(ids)), ("mask".into(), tensor(mask))]
}

#[test]
fn a_transformer_answers_as_on_tract() {
    let inputs = [tokens([0, 9, 3, 3], [1; 4]), tokens([7, 1, -1, 0], [1, 1, 1, 0])];
    agrees_on(&mut devices(), &block(), &inputs, 1e-4);
}

#[test]
fn a_word_that_the_table_does_not_have_is_named() {
    let model = read(&block()).unwrap();
    let given = tokens([0, 10, 3, 3], [1; 4]);
    let error = model.run(&mut Cpu::new(1), given, MOST).unwrap_err();
    let InferError::NoSuchRow { input, number, rows } = &error else {
        panic!("{error}")
    };
    assert_eq!((input.as_str(), *number, *rows), ("ids", 10, 10));
}

/// Matrices of which one goes on along the other's, and constants among them.
#[test]
fn matrices_are_multiplied_as_on_tract() {
    let mut graph = vec![
        node("Transpose", &["x"], &["t"], &[ints("perm", &[0, 1, 3, 2])]),
        node("MatMul", &["x", "t"], &["each"], &[]),
        node("MatMul", &["many", "t"], &["by_many"], &[]),
        node("MatMul", &["one", "t"], &["by_one"], &[]),
        node("MatMul", &["x", "one"], &["rows"], &[]),
    ];
    graph.extend([
        value(11, "x", 1, &[1, 3, 5, 4]),
        value(12, "each", 1, &[1, 3, 5, 5]),
        value(12, "by_many", 1, &[2, 3, 6, 5]),
        value(12, "by_one", 1, &[1, 3, 4, 5]),
        value(12, "rows", 1, &[1, 3, 5, 4]),
        trained("many", &[2, 1, 6, 4], 1),
        trained("one", &[4, 4], 2),
    ]);
    let images = [drawn(&[1, 3, 5, 4], 10), drawn(&[1, 3, 5, 4], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}

/// Exporters ask a tensor for its sizes to give another one its own; no device computes that.
#[test]
fn sizes_that_follow_from_others_are_known() {
    let graph = [
        node("Shape", &["x"], &["sizes"], &[]),
        node("Gather", &["sizes", "none"], &["batch"], &[]),
        node("Unsqueeze", &["batch", "front"], &["batch1"], &[]),
        node("Concat", &["batch1", "rest"], &["wanted"], &[int("axis", 0)]),
        node("Relu", &["x"], &["r"], &[]),
        node("Reshape", &["r", "wanted"], &["flat"], &[]),
        node("MatMul", &["flat", "w"], &["y"], &[]),
        value(11, "x", 1, &[-1, 3, 4]),
        value(12, "y", 1, &[-1, 2]),
        initializer("none", 7, &[], &i64s(&[0])),
        whole("front", &[0]),
        whole("rest", &[-1]),
        trained("w", &[12, 2], 1),
    ];
    let images = [drawn(&[1, 3, 4], 10), drawn(&[3, 3, 4], 11)];
    agrees(&mut devices(), &model(&graph), "x", &images, 1e-4);
}
