//! Dimensions that a model leaves open, closed.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::onnx::*;
use karman_infer::graph::Graph;
use karman_infer::inspect::Inspection;
use karman_infer::{Backend, InferError, InputShape, LoadOptions, Model, ModelLimits, Tract, with_shapes};
use karman_tensor::Tensor;
use proptest::prelude::*;

/// A value whose dimensions are numbers, or names.
fn open(field: u64, name: &str, dims: &[&str]) -> Vec<u8> {
    let dim = |dim: &&str| match dim.parse() {
        Ok(size) => sub(1, num(1, size)),
        Err(_) => sub(1, sub(2, dim)),
    };
    let shape: Vec<u8> = dims.iter().flat_map(dim).collect();
    let tensor = [num(1, 1), sub(2, shape)].concat();
    sub(field, [sub(1, name), sub(2, sub(1, tensor))].concat())
}

/// Pictures of any size, and the same twice as bright.
fn brighten() -> Vec<u8> {
    model(&[
        node("Neg", &["x"], &["less"], &[]),
        node("Sub", &["x", "less"], &["y"], &[]),
        open(11, "x", &["N", "3", "height", "width"]),
        open(13, "less", &["N", "3", "height", "width"]),
        open(12, "y", &["N", "3", "height", "width"]),
    ])
}

fn closed(file: &[u8], input: &str, dims: &[Option<u32>]) -> Result<Vec<u8>, InferError> {
    let shape = InputShape {
        input: input.into(),
        dims: dims.to_vec(),
    };
    with_shapes(file, &[shape], &ModelLimits::default())
}

fn load(file: &[u8]) -> std::sync::Arc<dyn Model> {
    Tract.load(file, &LoadOptions::default()).unwrap()
}

#[test]
fn a_model_with_open_dimensions_is_cut_once_they_are_closed() {
    let file = brighten();
    let limits = ModelLimits::default();
    let refused = Graph::read(file.clone(), &limits).unwrap_err().to_string();
    assert!(refused.contains("`height` of input `x` is open"), "{refused}");

    let file = closed(&file, "x", &[None, None, Some(2), Some(5)]).unwrap();
    let graph = Graph::read(file.clone(), &limits).unwrap();
    let fragments = graph.split(&[0, 1]).unwrap();
    assert_eq!(fragments[0].inputs[0].to_string(), "x f32 [N, 3, 2, 5]");
    assert_eq!(
        graph.edges()[graph.outputs()[0]].info.to_string(),
        "y f32 [N, 3, 2, 5]"
    );
    let picture = Tensor::from_slice([1, 3, 2, 5], &[1.5f32; 30]).unwrap();
    let bright = load(&file).run(vec![("x".into(), picture)]).unwrap();
    assert_eq!(bright[0].1.view::<f32>().unwrap(), [3.0; 30]);
}

/// Pictures, each turned into a row whose length is asked for: as PyTorch writes a model whose batch is open.
fn flatten() -> Vec<u8> {
    let ones = |count: usize| 1.0f32.to_le_bytes().repeat(count);
    model(&[
        node("Shape", &["x"], &["batch"], &[int("start", 0), int("end", -3)]),
        node("MatMul", &["x", "first"], &["mixed"], &[]),
        node("Concat", &["batch", "rest"], &["size"], &[int("axis", 0)]),
        node("Reshape", &["mixed", "size"], &["row"], &[]),
        node("MatMul", &["row", "last"], &["y"], &[]),
        whole("rest", &[12]),
        initializer("first", 1, &[2, 2], &ones(4)),
        initializer("last", 1, &[12, 2], &ones(24)),
        open(11, "x", &["N", "3", "2", "2"]),
        open(12, "y", &["N", "2"]),
    ])
}

#[test]
fn shapes_that_are_asked_for_cross_no_cut_once_they_are_known() {
    let limits = ModelLimits::default();
    let uncut = |file: &[u8]| {
        let graph = Graph::read(file.to_vec(), &limits).unwrap();
        let layers = graph.layers();
        layers.layers.len() - layers.cut_points(&graph).len()
    };
    let known = closed(&flatten(), "x", &[Some(2), None, None, None]).unwrap();
    assert_eq!(
        known,
        closed(&flatten(), "x", &[Some(2), None, None, None]).unwrap()
    );
    assert!(uncut(&flatten()) > 0);
    assert_eq!(uncut(&known), 0);
    let says = |file: &[u8]| {
        let graph = Graph::read(file.to_vec(), &limits).unwrap();
        Inspection::new(&graph, 1).to_string()
    };
    assert!(says(&flatten()).contains("until --shape gives the batch a size"));
    assert!(!says(&known).contains("--shape"));

    let picture = Tensor::from_slice([2, 3, 2, 2], &[2.0f32; 24]).unwrap();
    let given = vec![("x".to_owned(), picture)];
    let whole = load(&flatten()).run(given.clone()).unwrap();
    let graph = Graph::read(known.clone(), &limits).unwrap();
    let last = graph.nodes().len() - 1;
    let stages: Vec<usize> = (0..=last).map(|at| usize::from(at == last)).collect();
    let fragments = graph.split(&stages).unwrap();
    let first = load(&fragments[0].model).run(given.clone()).unwrap();
    let second = load(&fragments[1].model).run(first).unwrap();
    assert_eq!(second, whole);
    assert_eq!(load(&known).run(given).unwrap(), whole);
}

#[test]
fn a_shape_that_the_model_gives_stays_where_it_is() {
    let file = model(&[
        node("Shape", &["x"], &["size"], &[]),
        node("Neg", &["x"], &["y"], &[]),
        open(11, "x", &["N", "3"]),
        open(12, "y", &["N", "3"]),
        value(12, "size", 7, &[2]),
    ]);
    let file = closed(&file, "x", &[Some(4), None]).unwrap();
    let given = vec![("x".into(), Tensor::from_slice([4, 3], &[1.0f32; 12]).unwrap())];
    let size = load(&file).run(given).unwrap().remove(1).1;
    assert_eq!(size.view::<i64>().unwrap(), [4, 3]);
}

#[test]
fn a_name_has_one_size_in_all_inputs_and_outputs() {
    let file = model(&[
        node("Add", &["a", "b"], &["y"], &[]),
        open(11, "a", &["1", "L"]),
        open(11, "b", &["L"]),
        open(12, "y", &["1", "L"]),
    ]);
    let file = closed(&file, "a", &[None, Some(4)]).unwrap();
    let told: Vec<String> = load(&file).inputs().iter().map(ToString::to_string).collect();
    assert_eq!(told, ["a f32 [1, 4]", "b f32 [4]"]);
    assert_eq!(load(&file).outputs()[0].to_string(), "y f32 [1, 4]");
}

#[test]
fn dimensions_that_all_have_the_same_mark_have_sizes_of_their_own() {
    let file = model(&[
        node("Neg", &["x"], &["y"], &[]),
        open(11, "x", &["1", "?", "?"]),
        open(12, "y", &["1", "?", "?"]),
    ]);
    let file = closed(&file, "x", &[None, Some(2), Some(5)]).unwrap();
    assert_eq!(load(&file).inputs()[0].to_string(), "x f32 [1, 2, 5]");
}

#[test]
fn an_input_without_a_shape_gets_one() {
    let bare = sub(11, [sub(1, "x"), sub(2, sub(1, num(1, 1)))].concat());
    let file = model(&[node("Neg", &["x"], &["y"], &[]), bare, value(12, "y", 1, &[2, 3])]);
    let file = closed(&file, "x", &[None, Some(3)]).unwrap();
    assert_eq!(load(&file).inputs()[0].to_string(), "x f32 [?, 3]");
}

#[test]
fn what_is_no_shape_of_the_model_is_refused() {
    let file = brighten();
    let wrong: [(&str, &[Option<u32>], &str); 4] = [
        ("z", &[Some(1)], "the model takes x f32 [N, 3, height, width]"),
        ("x", &[Some(1), None], "the model takes x f32"),
        ("x", &[None, Some(4), None, None], "the model takes x f32"),
        ("x", &[Some(1); 33], "dimensions"),
    ];
    for (input, dims, says) in wrong {
        let error = closed(&file, input, dims).unwrap_err();
        assert!(matches!(error, InferError::Shape { .. }), "{error:?}");
        assert!(error.to_string().contains(says), "{error}");
    }
    let square = model(&[
        node("Neg", &["x"], &["y"], &[]),
        open(11, "x", &["L", "L"]),
        open(12, "y", &["L", "L"]),
    ]);
    let error = closed(&square, "x", &[Some(2), Some(3)]).unwrap_err();
    assert!(error.to_string().contains("`L` has one size"), "{error}");
    let twice = InputShape {
        input: "x".into(),
        dims: vec![None, None],
    };
    let error = with_shapes(&square, &[twice.clone(), twice], &ModelLimits::default()).unwrap_err();
    assert!(error.to_string().contains("given twice"), "{error}");
}

proptest! {
    #[test]
    fn what_is_closed_is_the_shape_that_is_told(sizes in proptest::collection::vec(1u32..5000, 3)) {
        let dims = [Some(sizes[0]), None, Some(sizes[1]), Some(sizes[2])];
        let file = closed(&brighten(), "x", &dims).unwrap();
        let again = closed(&file, "x", &dims).unwrap();
        prop_assert_eq!(&file, &again);
        let says = format!("x f32 [{}, 3, {}, {}]", sizes[0], sizes[1], sizes[2]);
        let larger = closed(&file, "x", &[Some(sizes[0] + 1), None, None, None]).unwrap_err();
        prop_assert!(larger.to_string().contains(&says), "{}", larger);
    }
}
