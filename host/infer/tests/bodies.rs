//! Graphs within graphs that mean harm: what they make is bounded like all else that a model makes.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::onnx::*;
use karman_infer::{Backend, InferError, LoadOptions, Model, Tract};
use karman_tensor::{ElementType, Tensor};
use std::sync::Arc;

fn load(model: &[u8]) -> Result<Arc<dyn Model>, InferError> {
    Tract.load(model, &LoadOptions::default())
}

#[track_caller]
fn too_large(error: Option<InferError>) {
    let error = error.expect("it was not refused");
    assert!(
        matches!(error, InferError::Limit { limit: "tensor", .. }),
        "{error}"
    );
}

/// `y = If(c, body, body)`, where the bodies take what lies around them.
fn branches(around: &[Vec<u8>], body: &[Vec<u8>]) -> Vec<u8> {
    let attribute = |name| [sub(1, name), sub(6, body.concat()), num(20, 5)].concat();
    let bodies = [attribute("then_branch"), attribute("else_branch")];
    let mut graph = around.to_vec();
    graph.extend([
        node("If", &["c"], &["y"], &bodies),
        value(11, "c", 9, &[1]),
        value(12, "y", 1, &[1, 1]),
    ]);
    model(&graph)
}

#[test]
fn a_branch_that_would_allocate_too_much_is_refused_before_it_does() {
    let huge = [
        node("ConstantOfShape", &["s"], &["h"], &[]),
        node("ReduceMax", &["h"], &["m"], &[]),
        initializer("s", 7, &[2], &i64s(&[1 << 20, 1 << 18])),
        value(12, "m", 1, &[1, 1]),
    ];
    too_large(load(&branches(&[], &huge)).err());
    // The same where both run while the graph is inferred.
    let known = [initializer("c", 9, &[1], &[1])];
    too_large(load(&branches(&known, &huge)).err());
    let unknown = [
        node("ConstantOfShape", &["s"], &["h"], &[]),
        node("NonZero", &["h"], &["m"], &[]),
        initializer("s", 7, &[1], &i64s(&[1 << 21])),
        value(12, "m", 7, &[1, 1]),
    ];
    let error = load(&branches(&known, &unknown)).err().unwrap();
    assert!(error.to_string().contains("depends on the data"), "{error}");

    // As large as what is around it makes it: a few bytes for one item.
    let open = value(11, "x", 1, &[0]);
    let squared = [
        node("Concat", &["s", "s"], &["t"], &[int("axis", 0)]),
        node("ConstantOfShape", &["t"], &["h"], &[]),
        node("ReduceMax", &["h"], &["m"], &[]),
        value(12, "m", 1, &[1, 1]),
    ];
    let shape = node("Shape", &["x"], &["s"], &[]);
    let model = load(&branches(&[shape, open], &squared)).unwrap();
    let run = |items: u32| {
        let x = Tensor::from_slice([items], &vec![0f32; items as usize]).unwrap();
        let c = Tensor::new(ElementType::Bool, [1], &[1]).unwrap();
        model.run(vec![("x".into(), x), ("c".into(), c)])
    };
    assert_eq!(run(3).unwrap()[0].1.view::<f32>().unwrap(), [0.0]);
    too_large(run(1_000_000).err());
}

#[test]
fn a_loop_that_would_allocate_too_much_is_refused_before_it_does() {
    // Adds up the rows of x, and to each the maximum of so many zeros.
    let sums = |zeros: i64| {
        let body = [
            node("ConstantOfShape", &["s"], &["h"], &[]),
            node("Cast", &["h"], &["f"], &[int("to", 1)]),
            node("ReduceMax", &["f"], &["m"], &[]),
            node("Add", &["sum_in", "row"], &["a"], &[]),
            node("Add", &["a", "m"], &["sum_out"], &[]),
            node("Identity", &["sum_out"], &["each"], &[]),
            initializer("s", 7, &[1], &i64s(&[zeros])),
            value(11, "sum_in", 1, &[2]),
            value(11, "row", 1, &[2]),
            value(12, "sum_out", 1, &[2]),
            value(12, "each", 1, &[2]),
        ];
        let body = [sub(1, "body"), sub(6, body.concat()), num(20, 5)].concat();
        let attributes = [body, int("num_scan_inputs", 1)];
        model(&[
            node("Scan", &["start", "x"], &["end", "all"], &attributes),
            value(11, "start", 1, &[2]),
            value(11, "x", 1, &[3, 2]),
            value(12, "end", 1, &[2]),
            value(12, "all", 1, &[3, 2]),
        ])
    };
    let model = load(&sums(4)).unwrap();
    let start = Tensor::from_slice([2], &[0f32; 2]).unwrap();
    let x = Tensor::from_slice([3, 2], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
    let outputs = model.run(vec![("start".into(), start), ("x".into(), x)]).unwrap();
    assert_eq!(outputs[0].1.view::<f32>().unwrap(), [9.0, 12.0]);
    too_large(load(&sums(1 << 30)).err());
}
