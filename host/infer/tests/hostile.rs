//! Models that mean harm, or were cut off on the way: each must end in a typed error, and the process goes on.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::digits;
use common::onnx::*;
use karman_infer::{Backend, BackendOptions, Backends, InferError, LoadOptions, Model, ModelLimits, Tract};
use karman_tensor::Tensor;
use karman_types::{ByteSize, ErrorKind};
use proptest::prelude::*;
use std::sync::Arc;

fn load(bytes: &[u8]) -> Result<Arc<dyn Model>, InferError> {
    Backends::detect(&BackendOptions::default()).load_foreign(bytes, &LoadOptions::default())
}

#[track_caller]
fn refused(bytes: &[u8], kind: ErrorKind, says: &str) {
    let error = load(bytes).err().expect("it was loaded");
    assert!(error.to_string().contains(says), "{error}");
    assert_eq!(error.kind(), kind, "{error}");
}

#[test]
fn a_good_model_loads_and_runs() {
    let model = load(&good()).unwrap();
    let x = Tensor::from_slice([2], &[-1f32, 2.0]).unwrap();
    let y = model.run(vec![("x".into(), x)]).unwrap();
    assert_eq!(y[0].1.view::<f32>().unwrap(), [0.0, 2.0]);
}

#[test]
fn a_truncated_model_is_refused_wherever_it_ends() {
    let whole = digits("digits-s");
    let step = whole.len() / 97;
    for end in (0..whole.len())
        .step_by(step)
        .chain(whole.len() - 20..whole.len())
    {
        // What only follows the graph may be missing without harm.
        if let Err(error) = load(&whole[..end]) {
            assert!(
                matches!(error, InferError::Malformed { .. }),
                "cut at {end}: {error}"
            );
        } else {
            assert!(end > whole.len() - 20, "cut at {end}");
        }
    }
}

#[test]
fn dimensions_are_not_believed() {
    let with = |dims: &[i64], raw: &[u8]| {
        model(&[
            node("Add", &["x", "w"], &["y"], &[]),
            initializer("w", 1, dims, raw),
            value(11, "x", 1, &[2]),
            value(12, "y", 1, &[2]),
        ])
    };
    refused(
        &with(&[1 << 30, 1 << 30], &[0; 8]),
        ErrorKind::Limit,
        "`models.constants`",
    );
    refused(
        &with(&[1 << 40, 1 << 40], &[0; 8]),
        ErrorKind::Invalid,
        "has dimensions",
    );
    refused(&with(&[-2], &[0; 8]), ErrorKind::Invalid, "dimensions [-2]");
    refused(
        &with(&[-1, -2], &[0; 8]),
        ErrorKind::Invalid,
        "dimensions [-1, -2]",
    );
    refused(
        &with(&[3], &[0; 8]),
        ErrorKind::Invalid,
        "holds 8 where 12 should be",
    );
    refused(&with(&[1; 9], &[0; 4]), ErrorKind::Limit, "`models.rank`");
    assert!(load(&with(&[2], &[0; 8])).is_ok());
}

#[test]
fn a_model_that_would_allocate_too_much_is_refused_before_it_does() {
    // From 16 bytes of shape: a terabyte, folded while the graph is inferred.
    let huge = model(&[
        node("ConstantOfShape", &["s"], &["c"], &[]),
        node("Add", &["x", "c"], &["y"], &[]),
        initializer("s", 7, &[2], &i64s(&[1 << 20, 1 << 18])),
        value(11, "x", 1, &[1]),
        value(12, "y", 1, &[1 << 20, 1 << 18]),
    ]);
    refused(&huge, ErrorKind::Limit, "`models.tensor`");

    // The same with a shape that is itself computed.
    let computed = model(&[
        node("Mul", &["s", "s"], &["t"], &[]),
        node("Mul", &["t", "t"], &["u"], &[]),
        node("ConstantOfShape", &["u"], &["c"], &[]),
        node("Add", &["x", "c"], &["y"], &[]),
        initializer("s", 7, &[1], &i64s(&[3000])),
        value(11, "x", 1, &[1]),
        value(12, "y", 1, &[]),
    ]);
    refused(&computed, ErrorKind::Limit, "`models.tensor`");

    // Sixty times twice as long.
    let names: Vec<String> = (0..=60).map(|i| format!("x{i}")).collect();
    let mut graph: Vec<Vec<u8>> = names
        .windows(2)
        .map(|n| {
            node(
                "Concat",
                &[&n[0], &n[0]],
                &[&n[1]],
                &[[sub(1, "axis"), num(3, 0), num(20, 2)].concat()],
            )
        })
        .collect();
    graph.extend([value(11, "x0", 1, &[4]), value(12, "x60", 1, &[])]);
    refused(&model(&graph), ErrorKind::Limit, "`models.tensor`");

    let wide = model(&[
        node("MatMul", &["a", "b"], &["y"], &[]),
        value(11, "a", 1, &[1 << 20, 1]),
        value(11, "b", 1, &[1, 1 << 20]),
        value(12, "y", 1, &[]),
    ]);
    refused(&wide, ErrorKind::Limit, "`models.tensor`");
}

#[test]
fn what_no_output_needs_is_not_made() {
    let unused = model(&[
        node("ConstantOfShape", &["s"], &["h"], &[]),
        node("Relu", &["x"], &["y"], &[]),
        initializer("s", 7, &[2], &i64s(&[1 << 20, 1 << 18])),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]);
    assert!(load(&unused).is_ok());
}

#[test]
fn cycles_and_loose_ends_are_refused() {
    let cycle = model(&[
        node("Add", &["x", "b"], &["a"], &[]),
        node("Relu", &["a"], &["b"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "b", 1, &[2]),
    ]);
    assert!(load(&cycle).is_err());
    let loose = model(&[
        node("Relu", &["nowhere"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]);
    assert!(load(&loose).is_err());
    // tract panics at this one.
    let unnamed = model(&[
        node("Relu", &["x"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "elsewhere", 1, &[2]),
    ]);
    refused(&unnamed, ErrorKind::Internal, "panicked");
}

#[test]
fn nothing_outside_the_file_is_read() {
    let entry = |key: &str, value: &str| sub(13, [sub(1, key), sub(2, value)].concat());
    for path in [
        "../../etc/passwd",
        "/etc/passwd",
        "weights.bin",
        "*/_ORT_MEM_ADDR_/*",
    ] {
        let external = [
            num(1, 2),
            num(2, 1),
            sub(8, "w"),
            entry("location", path),
            num(14, 1),
        ]
        .concat();
        let plain = [num(1, 2), num(2, 1), sub(8, "w"), entry("location", path)].concat();
        for tensor in [external, plain] {
            let in_graph = model(&[
                node("Add", &["x", "w"], &["y"], &[]),
                sub(5, &tensor),
                value(11, "x", 1, &[2]),
                value(12, "y", 1, &[2]),
            ]);
            refused(&in_graph, ErrorKind::Invalid, "tensor `w` lies in another file");
            let in_node = model(&[
                node(
                    "Constant",
                    &[],
                    &["y"],
                    &[[sub(1, "value"), sub(5, &tensor), num(20, 4)].concat()],
                ),
                value(12, "y", 1, &[2]),
            ]);
            refused(&in_node, ErrorKind::Invalid, "tensor `w` lies in another file");
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let mut graph = [node("Relu", &["x"], &["y"], &[]), value(12, "y", 1, &[2])].concat();
    for _ in 0..500 {
        let branch = [sub(1, "then_branch"), sub(6, &graph), num(20, 5)].concat();
        graph = node("If", &["x"], &["y"], &[branch]);
    }
    refused(&model(&[graph]), ErrorKind::Limit, "`models.depth`");

    // Sequences of sequences: deep enough to end a walk without a bound with the stack.
    let mut type_of = sub(1, num(1, 1));
    for _ in 0..20_000 {
        type_of = sub(4, sub(1, type_of));
    }
    let sequence = model(&[
        node("Relu", &["x"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
        sub(13, [sub(1, "z"), sub(2, type_of)].concat()),
    ]);
    refused(&sequence, ErrorKind::Limit, "`models.depth`");

    // A dimension written as an expression ten thousand brackets deep is a name to us.
    let deep = format!("{}N{}", "(".repeat(10_000), ")".repeat(10_000));
    let shape = sub(1, sub(2, deep));
    let info = |field| {
        sub(
            field,
            [sub(1, "x"), sub(2, sub(1, [num(1, 1), sub(2, &shape)].concat()))].concat(),
        )
    };
    let expression = model(&[
        node("Relu", &["x"], &["y"], &[]),
        info(11),
        value(12, "y", 1, &[]),
    ]);
    assert!(load(&expression).is_ok());
}

#[test]
fn a_long_chain_is_only_long() {
    let names: Vec<String> = (0..=3_000).map(|i| format!("x{i}")).collect();
    let mut graph: Vec<Vec<u8>> = names
        .windows(2)
        .map(|n| node("Relu", &[&n[0]], &[&n[1]], &[]))
        .collect();
    graph.extend([value(11, "x0", 1, &[2]), value(12, "x3000", 1, &[2])]);
    assert!(load(&model(&graph)).is_ok());
}

/// A model that says something of itself so often, in each place where it may.
fn repeated(times: usize) -> Vec<Vec<u8>> {
    let said = |field| sub(field, []).repeat(times);
    let relu = |more: Vec<u8>| sub(1, [sub(1, "x"), sub(2, "y"), sub(4, "Relu"), more].concat());
    let plain = || relu(Vec::new());
    let (x, y) = (value(11, "x", 1, &[2]), value(12, "y", 1, &[2]));
    let with = |node: Vec<u8>, more: Vec<u8>| model(&[node, more, x.clone(), y.clone()]);
    let typed = |body: Vec<u8>| sub(13, [sub(1, "z"), sub(2, body)].concat());
    let shape = || sub(2, said(1));
    let tensor = sub(1, shape());
    vec![
        // Metadata of a tensor, and of a value.
        with(plain(), sub(5, [tensor_of_nothing(), said(16)].concat())),
        with(plain(), sub(13, [sub(1, "z"), said(4)].concat())),
        // Dimensions of a sequence, a map, a sparse tensor, and of what may be there.
        with(plain(), typed(sub(4, sub(1, &tensor)))),
        with(plain(), typed(sub(5, [num(1, 7), sub(2, &tensor)].concat()))),
        with(plain(), typed(sub(8, shape()))),
        with(plain(), typed(sub(9, sub(1, &tensor)))),
        // Devices of a node, with what is split over them, and those of the model.
        with(relu(said(10)), Vec::new()),
        with(relu(sub(10, said(2))), Vec::new()),
        with(relu(sub(10, sub(2, said(3)))), Vec::new()),
        with(relu(sub(10, sub(2, sub(4, said(2))))), Vec::new()),
        [with(plain(), Vec::new()), sub(26, said(3))].concat(),
    ]
}

fn tensor_of_nothing() -> Vec<u8> {
    tensor("w", 1, &[0], &[])
}

#[test]
fn counts_are_bounded_before_anything_is_built() {
    let many: Vec<u8> = sub(1, []).repeat(200_000);
    refused(&model(&[many]), ErrorKind::Limit, "`models.nodes`");
    // Two bytes each in the file, hundreds once decoded.
    let names = sub(1, sub(1, []).repeat(600_000));
    refused(&model(&[names]), ErrorKind::Limit, "`models.entries`");
    for many in repeated(600_000) {
        refused(&many, ErrorKind::Limit, "`models.entries`");
    }
    for few in repeated(2) {
        assert!(load(&few).is_ok());
    }
    let options = LoadOptions {
        limits: ModelLimits {
            model: ByteSize(10),
            ..ModelLimits::default()
        },
        ..LoadOptions::default()
    };
    let error = Tract.load(&good(), &options).err().unwrap();
    assert!(
        matches!(error, InferError::Limit { limit: "model", .. }),
        "{error}"
    );
}

#[test]
fn all_constants_are_counted_before_the_limit_is_told() {
    let file = model(&[
        node("Add", &["x", "v"], &["t"], &[]),
        node("Add", &["t", "w"], &["y"], &[]),
        initializer("v", 1, &[4], &[0; 16]),
        initializer("w", 1, &[4], &[0; 16]),
        value(11, "x", 1, &[4]),
        value(12, "y", 1, &[4]),
    ]);
    let load = |bytes| {
        let options = LoadOptions {
            limits: ModelLimits {
                constants: ByteSize(bytes),
                ..ModelLimits::default()
            },
            ..LoadOptions::default()
        };
        Tract.load(&file, &options).map(drop)
    };
    assert_eq!(load(32), Ok(()));
    let error = load(8).unwrap_err();
    assert!(
        matches!(
            error,
            InferError::Limit {
                value: 32,
                bound: 8,
                ..
            }
        ),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("; raise `models.constants` in node.toml"),
        "{error}"
    );
}

#[test]
fn a_type_that_no_tensor_has_is_named() {
    for (code, says) in [
        (8, "`x` is of type STRING: tensors here are f16, bf16, f32"),
        (4, "UINT16"),
        (99, "99"),
    ] {
        let file = model(&[
            node("Identity", &["x"], &["y"], &[]),
            value(11, "x", code, &[2]),
            value(12, "y", code, &[2]),
        ]);
        refused(&file, ErrorKind::Invalid, says);
    }
}

#[test]
fn files_that_two_readers_would_read_differently_are_refused() {
    let graph = [
        node("Relu", &["x"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]
    .concat();
    refused(
        &[sub(7, &graph), sub(7, &graph)].concat(),
        ErrorKind::Invalid,
        "twice",
    );
    let mut flat = sub(2, "ORTM");
    flat.splice(0..0, num(5, 1));
    assert_eq!(&flat[4..8], b"ORTM");
    refused(&[flat, good()].concat(), ErrorKind::Invalid, "ORT format");
}

#[test]
fn an_unknown_operator_is_rejected_by_name() {
    let model = model(&[
        node("Telepathy", &["x"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]);
    refused(&model, ErrorKind::Unavailable, "Telepathy");
}

#[test]
fn no_shape_brings_an_operator_that_is_not_there() {
    for dims in [&[2][..], &[2, 2]] {
        let model = model(&[
            node("Telepathy", &["x"], &["y"], &[]),
            batched(11, "x", dims),
            batched(12, "y", dims),
        ]);
        refused(&model, ErrorKind::Unavailable, "it has no operator `Telepathy`");
    }
}

#[test]
fn inputs_past_the_limit_are_refused() {
    let options = LoadOptions {
        limits: ModelLimits {
            tensor: ByteSize(4),
            ..ModelLimits::default()
        },
        ..LoadOptions::default()
    };
    assert_eq!(
        Tract.load(&good(), &options).err().unwrap().kind(),
        ErrorKind::Limit
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_are_no_model(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(load(&bytes).is_err());
    }

    /// One byte of a real model changed: a model or an error, and never a size past the limits.
    #[test]
    fn a_flipped_byte_does_no_harm(small in any::<bool>(), at in any::<prop::sample::Index>(), flip in any::<u8>()) {
        // Most of the large file is weights, where any byte is as good as another; the small one is all structure.
        let mut bytes = if small { good() } else { digits("digits-s") };
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        let _ = load(&bytes);
    }
}

/// tract plans by the sizes of its inputs, and a size of 0 is none to plan by.
#[test]
fn a_run_on_nothing_is_refused_by_the_dimension_that_is_empty() {
    let model = Tract.load(&digits("digits-s"), &LoadOptions::default()).unwrap();
    let nothing = Tensor::from_slice([0, 1, 8, 8], &[0f32; 0]).unwrap();
    let error = model.run(vec![("image".into(), nothing)]).unwrap_err();
    let InferError::EmptyDimension { input, least, .. } = &error else {
        panic!("{error}")
    };
    assert_eq!((input.as_str(), *least), ("image", 1));
    assert_eq!(error.kind(), ErrorKind::Invalid);
}
