//! What a graph says of a model: sizes and costs against the published ones, and files that are wrong.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::digits;
use common::onnx::*;
use karman_infer::graph::{Graph, OpClass};
use karman_infer::inspect::Inspection;
use karman_infer::integer::Integer;
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{Backend, DeviceModel, InferError, LoadOptions, Model, ModelLimits, Staged, Tract};
use karman_tensor::Tensor;
use karman_types::ByteSize;
use proptest::prelude::*;

fn read(file: &[u8]) -> Result<Graph, InferError> {
    Graph::read(file.to_vec(), &ModelLimits::default())
}

#[track_caller]
fn refused(file: &[u8], says: &str) {
    let error = read(file).expect_err("it was read");
    assert!(error.to_string().contains(says), "{error}");
}

#[test]
fn mobilenet_costs_what_is_published() {
    let graph = read(&Architecture::MobileNetV2.generate(&Variant::default())).unwrap();
    // torchvision's 3,504,872 without the 17,056 weights that folding the batch normalisation saves.
    assert_eq!(graph.parameters(), 3_487_816);
    assert_eq!(graph.macs().at(1), 300_774_272);
    assert_eq!(graph.macs().at(8), 8 * 300_774_272);
    let depthwise = graph
        .nodes()
        .iter()
        .filter(|node| node.class == OpClass::DepthwiseConvolution);
    assert_eq!(depthwise.count(), 17);
    let layers = graph.layers();
    let first = &layers.layers[0];
    assert_eq!(
        (first.op.as_str(), first.macs.at(1), first.parameters),
        ("Conv+Clip", 10_838_016, 896)
    );
    let points = layers.cut_points(&graph);
    assert_eq!(points.len(), layers.layers.len());
    assert_eq!(
        (points[0].bytes.at(1), points[1].bytes.at(1)),
        (602_112, 1_605_632)
    );
    // The shortcuts: where a block is open, two tensors cross.
    assert_eq!(points.iter().map(|point| point.tensors).max(), Some(2));
    let single = points.iter().filter(|point| point.tensors == 1).count();
    assert!(single > 30 && single < points.len(), "{single}");
}

#[test]
fn the_digits_cost_what_is_recorded() {
    for (name, parameters, macs) in [
        ("digits-s", 4_810, 4_736),
        ("digits-m", 13_706, 91_776),
        ("digits-l", 64_318, 393_472),
    ] {
        let graph = read(&digits(name)).unwrap();
        assert_eq!(
            (graph.parameters(), graph.macs().at(1)),
            (parameters, macs),
            "{name}"
        );
        assert_eq!(graph.batch(), Some("N"));
    }
    let eight = read(&digits("digits-l-int8")).unwrap();
    assert_eq!(eight.macs().at(1), 393_472);
    assert!(
        eight
            .layers()
            .layers
            .iter()
            .any(|layer| layer.op.starts_with("DQ+Conv"))
    );
}

#[test]
fn every_node_lies_in_one_layer_after_all_that_it_needs() {
    let small = |architecture: Architecture, quantized| {
        architecture.generate(&Variant {
            input: 64,
            narrower: 16,
            classes: 10,
            quantized,
            ..Variant::default()
        })
    };
    let mut files: Vec<Vec<u8>> = vec![digits("digits-l"), digits("digits-l-int8")];
    for architecture in Architecture::ALL {
        files.extend([false, true].map(|quantized| small(architecture, quantized).to_vec()));
    }
    for file in files {
        let graph = read(&file).unwrap();
        let layers = graph.layers();
        let mut nodes: Vec<usize> = layers
            .layers
            .iter()
            .flat_map(|layer| layer.nodes.clone())
            .collect();
        nodes.sort_unstable();
        assert_eq!(nodes, (0..graph.nodes().len()).collect::<Vec<_>>());
        for edge in &layers.edges {
            assert!(
                edge.to.iter().all(|to| edge.from.is_none_or(|from| from < *to)),
                "{edge:?}"
            );
        }
    }
}

#[test]
fn what_crosses_each_place_is_counted_along_the_way() {
    // All of 200 branches are open before the first two are added up.
    const BRANCHES: usize = 200;
    let names = |of: &str| -> Vec<String> { (0..BRANCHES).map(|at| format!("{of}{at}")).collect() };
    let (branches, sums) = (names("b"), names("s"));
    let mut file: Vec<Vec<u8>> = branches
        .iter()
        .map(|branch| node("Relu", &["x"], &[branch], &[]))
        .collect();
    file.push(node("Add", &["b0", "b1"], &["s1"], &[]));
    file.extend((2..BRANCHES).map(|at| {
        let (before, branch) = (&sums[at - 1], &branches[at]);
        node("Add", &[before, branch], &[&sums[at]], &[])
    }));
    file.extend([value(11, "x", 1, &[2]), value(12, &sums[BRANCHES - 1], 1, &[2])]);
    let graph = read(&model(&file)).unwrap();
    let layers = graph.layers();
    let points = layers.cut_points(&graph);
    assert_eq!(points.len(), 2 * BRANCHES - 1);
    for point in &points {
        let tensors = match point.after {
            // The input, too, as long as a branch takes it.
            after if after < BRANCHES => after + 1,
            after => 2 * BRANCHES - after,
        };
        assert_eq!(
            (point.tensors, point.bytes.at(1)),
            (tensors, 8 * tensors as u64),
            "{point:?}"
        );
        if point.after > 0 {
            let stages = layers.stages_of_chain(&[point.after]);
            assert_eq!(graph.crossing(&stages).unwrap()[0].len(), tensors);
        }
    }
}

#[test]
fn nodes_may_stand_in_any_order_and_dead_ones_are_left_out() {
    let file = model(&[
        node("Sigmoid", &["b"], &["y"], &[]),
        node("Neg", &["x"], &["unused"], &[]),
        node("Relu", &["a"], &["b"], &[]),
        node("Neg", &["x"], &["a"], &[]),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]);
    let graph = read(&file).unwrap();
    let ops: Vec<&str> = graph.nodes().iter().map(|node| node.op.as_str()).collect();
    assert_eq!(ops, ["Neg", "Relu", "Sigmoid"]);
    assert!(!graph.edges().iter().any(|edge| edge.info.name == "unused"));
}

#[test]
fn what_depends_on_no_input_goes_with_those_that_use_it() {
    // w = -v is used on both sides of the cut.
    let file = model(&[
        node("Neg", &["v"], &["w"], &[]),
        node("Add", &["x", "w"], &["a"], &[]),
        node("Mul", &["a", "w"], &["y"], &[]),
        initializer("v", 1, &[2], &[1f32, 2.0].map(f32::to_le_bytes).concat()),
        value(11, "x", 1, &[2]),
        value(12, "y", 1, &[2]),
    ]);
    let graph = read(&file).unwrap();
    assert_eq!(
        (
            graph.nodes().len(),
            graph.parameters(),
            graph.nodes()[1].parameters
        ),
        (2, 2, 2)
    );
    let fragments = graph.split(&[0, 1]).unwrap();
    assert!(
        fragments
            .iter()
            .all(|fragment| fragment.takes.len() == 1 && fragment.gives.len() == 1)
    );
    let staged = Staged::load(&graph, &fragments, &Tract, &LoadOptions::default()).unwrap();
    let x = Tensor::from_slice([2], &[5f32, 5.0]).unwrap();
    let y = staged.run(vec![("x".into(), x)]).unwrap();
    assert_eq!(y[0].1.view::<f32>().unwrap(), [-4.0, -6.0]);
}

#[test]
fn a_subgraph_takes_what_lies_around_it() {
    // y = if c { a } else { -a }, where a = relu(x) and the branches take it from outside.
    let then = [node("Identity", &["a"], &["t"], &[]), value(12, "t", 1, &[2])].concat();
    let other = [node("Neg", &["a"], &["e"], &[]), value(12, "e", 1, &[2])].concat();
    let attribute = |name, body: &[u8]| [sub(1, name), sub(6, body), num(20, 5)].concat();
    let file = model(&[
        node("Relu", &["x"], &["a"], &[]),
        node(
            "If",
            &["c"],
            &["y"],
            &[attribute("then_branch", &then), attribute("else_branch", &other)],
        ),
        value(11, "x", 1, &[2]),
        value(11, "c", 9, &[]),
        value(12, "y", 1, &[2]),
    ]);
    let graph = read(&file).unwrap();
    assert_eq!(graph.nodes()[1].inputs.len(), 2);
    let fragments = graph.split(&[0, 1]).unwrap();
    assert_eq!(fragments[1].inputs.len(), 2);
    let staged = Staged::load(&graph, &fragments, &Tract, &LoadOptions::default()).unwrap();
    for (c, expected) in [(1u8, [0f32, 2.0]), (0, [0.0, -2.0])] {
        let x = Tensor::from_slice([2], &[-1f32, 2.0]).unwrap();
        let c = Tensor::new(karman_tensor::ElementType::Bool, [], &[c]).unwrap();
        let y = staged.run(vec![("x".into(), x), ("c".into(), c)]).unwrap();
        assert_eq!(y[0].1.view::<f32>().unwrap(), expected);
    }
}

#[test]
fn files_that_are_wrong_are_refused_by_name() {
    let (x, y) = (value(11, "x", 1, &[2]), value(12, "y", 1, &[2]));
    let with = |nodes: &[Vec<u8>]| model(&[nodes.concat(), x.clone(), y.clone()]);
    refused(
        &with(&[
            node("Add", &["x", "b"], &["a"], &[]),
            node("Neg", &["a"], &["b"], &[]),
            node("Neg", &["b"], &["y"], &[]),
        ]),
        "cycle",
    );
    refused(
        &with(&[node("Add", &["x", "nowhere"], &["y"], &[])]),
        "takes `nowhere`, which nothing makes",
    );
    refused(
        &with(&[
            node("Neg", &["x"], &["y"], &[]),
            node("Relu", &["x"], &["y"], &[]),
        ]),
        "`y` is made twice",
    );
    refused(&with(&[node("Neg", &["x"], &["x"], &[])]), "`x` is made twice");
    refused(
        &with(&[node("Neg", &["x"], &["z"], &[])]),
        "`the model` takes `y`",
    );
    refused(
        &with(&[
            node("Neg", &["v"], &["y"], &[]),
            initializer("v", 1, &[2], &[0; 8]),
        ]),
        "depends on no input",
    );
    refused(
        &with(&[
            node("Telepathy", &["x"], &["z"], &[]),
            node("Neg", &["z"], &["y"], &[]),
        ]),
        "(Telepathy): the type or size of `z` cannot be told",
    );
    let old = [
        num(1, 8),
        sub(
            7,
            [node("Neg", &["x"], &["y"], &[]), x.clone(), y.clone()].concat(),
        ),
        sub(8, num(2, 8)),
    ];
    refused(&old.concat(), "operator set 8");
    let sizes = [sub(1, num(1, 1)), sub(1, sub(2, "L"))].concat();
    let open = sub(
        11,
        [sub(1, "x"), sub(2, sub(1, [num(1, 1), sub(2, sizes)].concat()))].concat(),
    );
    let file = model(&[node("Neg", &["x"], &["y"], &[]), open, value(12, "y", 1, &[])]);
    refused(&file, "dimension `L` of input `x` is open");
}

#[test]
fn where_an_operator_is_unknown_the_file_is_believed() {
    // ONNX Runtime has operators that tract lacks; files with them carry the shapes.
    let file = model(&[
        node("Telepathy", &["x"], &["z"], &[]),
        node("Neg", &["z"], &["y"], &[]),
        value(11, "x", 1, &[2]),
        value(13, "z", 1, &[5]),
        value(12, "y", 1, &[5]),
    ]);
    let fragments = read(&file).unwrap().split(&[0, 1]).unwrap();
    assert_eq!(fragments[1].inputs[0].to_string(), "z f32 [5]");
}

/// A part of the batch: `x[begin:end:step]`.
fn part(begin: i64, end: i64, step: i64) -> Vec<u8> {
    model(&[
        node("Slice", &["x", "begin", "end", "axis", "step"], &["y"], &[]),
        batched(11, "x", &[4]),
        batched(12, "y", &[4]),
        whole("begin", &[begin]),
        whole("end", &[end]),
        whole("axis", &[0]),
        whole("step", &[step]),
    ])
}

#[test]
fn a_batch_with_which_a_size_does_not_grow_evenly_is_one() {
    for (begin, end, step) in [(0, 2, 1), (0, i64::MAX, 2), (0, -1, 1), (0, 6, 1)] {
        let graph = read(&part(begin, end, step)).unwrap();
        let infos: Vec<String> = graph.edges().iter().map(|edge| edge.info.to_string()).collect();
        let rows = usize::from(end != -1);
        assert_eq!(graph.batch(), None, "{begin} {end} {step}");
        assert_eq!(infos, ["x f32 [1, 4]".to_owned(), format!("y f32 [{rows}, 4]")]);
    }
    let graph = read(&part(0, 1, 1)).unwrap();
    assert_eq!(graph.batch(), Some("N"));
    assert_eq!(graph.edges()[1].info.to_string(), "y f32 [1, 4]");
    // Both dimensions of `x xᵀ` are the batch.
    let square = model(&[
        node("Transpose", &["x"], &["t"], &[]),
        node("MatMul", &["x", "t"], &["y"], &[]),
        batched(11, "x", &[4]),
        batched(12, "y", &[4]),
    ]);
    let graph = read(&square).unwrap();
    assert_eq!(graph.batch(), Some("N"));
    assert_eq!(graph.edges()[2].info.to_string(), "y f32 [N, N]");
}

/// Each of 300 nodes needs all of a chain of 300 constants.
#[test]
fn constants_that_many_nodes_need_are_counted_within_a_bound() {
    let names = |of: &str| -> Vec<String> { (0..=300).map(|at| format!("{of}{at}")).collect() };
    let (constants, sums) = (names("c"), names("x"));
    let mut graph: Vec<Vec<u8>> = constants
        .windows(2)
        .map(|pair| node("Neg", &[&pair[0]], &[&pair[1]], &[]))
        .collect();
    graph.extend(
        sums.windows(2)
            .map(|pair| node("Add", &[&pair[0], "c300"], &[&pair[1]], &[])),
    );
    graph.extend([
        number("c0", 1.0),
        value(11, "x0", 1, &[2]),
        value(12, "x300", 1, &[2]),
    ]);
    let read = |entries| {
        let limits = ModelLimits {
            entries,
            ..ModelLimits::default()
        };
        Graph::read(model(&graph), &limits)
    };
    assert!(read(5000).is_ok());
    let refused = read(4000).unwrap_err().to_string();
    assert!(refused.contains("counted at every node"), "{refused}");
}

/// Sizes that no memory holds, which nobody but the file knows: of constants, recurrent weights and what is made of an input.
#[test]
fn sizes_that_a_file_only_claims_overflow_nothing() {
    let most = [i64::from(u32::MAX); 8];
    let claim = |field, name| value(field, name, 1, &most);
    let file = model(&[
        node("Telepathy", &[], &["c"], &[]),
        node("Telepathy", &[], &["d"], &[]),
        node("Telepathy", &["x", "c"], &["w"], &[]),
        node("Telepathy", &["x", "d"], &["r"], &[]),
        node("LSTM", &["w", "w", "r"], &["s"], &[]),
        node("Telepathy", &["s", "c", "d"], &["y", "z"], &[]),
        value(11, "x", 1, &[2]),
        claim(13, "c"),
        claim(13, "d"),
        claim(13, "w"),
        claim(13, "r"),
        claim(13, "s"),
        claim(12, "y"),
        claim(12, "z"),
    ]);
    let graph = read(&file).unwrap();
    assert_eq!((graph.parameters(), graph.macs().at(7)), (u64::MAX, u64::MAX));
    let shown = Inspection::new(&graph, 7);
    assert_eq!(shown.rows.last().unwrap().bytes, u64::MAX);
    assert!(!shown.to_svg().is_empty());
}

#[test]
fn a_model_is_shown_as_a_table_and_a_drawing() {
    let graph = read(&digits("digits-l")).unwrap();
    let shown = Inspection::new(&graph, 1);
    let table = shown.to_string();
    assert!(
        table.contains("Conv+Relu") && table.contains("393,472 multiply-accumulates"),
        "{table}"
    );
    assert_eq!(table.lines().count(), shown.rows.len() + 2);
    let svg = shown.to_svg();
    assert_eq!(svg.matches("<g>").count(), shown.rows.len());
    assert!(svg.contains(r#"class="skip""#) && svg.contains(r#"class="candidate""#));

    let named = |name: &str| {
        model(&[
            node("Relu", &["x"], &[name], &[]),
            value(11, "x", 1, &[2]),
            value(12, name, 1, &[2]),
        ])
    };
    let svg = Inspection::new(&read(&named("<script>&\"\u{1b}")).unwrap(), 1).to_svg();
    assert!(
        !svg.contains("<script") && !svg.contains('\u{1b}') && svg.contains("&lt;script&gt;"),
        "{svg}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// One byte of a model changed: a graph whose every cut is written, or an error.
    #[test]
    fn a_flipped_byte_does_no_harm(at in any::<prop::sample::Index>(), flip in 1u8..) {
        let mut bytes = digits("digits-s");
        // The front is structure, the rest weights.
        let at = at.index(700.min(bytes.len()));
        bytes[at] ^= flip;
        if let Ok(graph) = read(&bytes) {
            for at in 0..graph.nodes().len() {
                let stages: Vec<usize> = (0..graph.nodes().len()).map(|node| usize::from(node >= at)).collect();
                prop_assert!(graph.split(&stages).is_ok());
            }
            let _ = Inspection::new(&graph, 1).to_svg();
        }
    }

    /// Weights never change what a fragment costs to name: reading a fragment gives the nodes it was made of.
    #[test]
    fn a_fragment_is_a_model_again(cut in 1usize..5) {
        let graph = read(&digits("digits-s")).unwrap();
        let stages: Vec<usize> = (0..graph.nodes().len()).map(|node| usize::from(node >= cut)).collect();
        for fragment in graph.split(&stages).unwrap() {
            let again = read(&fragment.model).unwrap();
            prop_assert_eq!(again.nodes().len(), fragment.nodes.len());
            prop_assert_eq!(again.edges()[0].info.clone(), fragment.inputs[0].clone());
            prop_assert_eq!(again.whole().model, fragment.model);
            Tract.load(&again.whole().model, &LoadOptions::default()).unwrap();
        }
    }
}

#[test]
fn an_unnamed_batch_is_where_a_batch_stands() {
    let any = |field, name: &str, dims: usize| {
        let shape = [sub(1, ""), sub(1, num(1, 4))].concat();
        let shape = [shape, sub(1, "").repeat(dims)].concat();
        let tensor = [num(1, 1), sub(2, shape)].concat();
        sub(field, [sub(1, name), sub(2, sub(1, tensor))].concat())
    };
    let file = model(&[
        node("Telepathy", &["x"], &["z"], &[]),
        node("Neg", &["z"], &["y"], &[]),
        any(11, "x", 0),
        any(13, "z", 1),
        any(12, "y", 1),
    ]);
    refused(&file, "the type or size of `z` cannot be told");
}

/// Operators as they were written before the set 13: what is an input since is an attribute, and `Softmax` goes over all that follows.
fn of_set(set: i64) -> Vec<u8> {
    let axis = [sub(1, "axis"), num(3, 1), num(20, 2)].concat();
    model_of_set(
        set,
        &[
            node("Unsqueeze", &["x"], &["a"], &[ints("axes", &[0])]),
            node("ReduceSum", &["a"], &["b"], &[ints("axes", &[3])]),
            node("Softmax", &["b"], &["y"], &[axis]),
            value(11, "x", 1, &[2, 3, 4]),
            value(12, "y", 1, &[1, 2, 3, 1]),
        ],
    )
}

#[test]
fn models_of_older_operators_are_cut_and_not_translated() {
    for set in [9, 12] {
        let file = of_set(set);
        let graph = read(&file).unwrap();
        let x = Tensor::from_slice([2, 3, 4], &(0..24u8).map(f32::from).collect::<Vec<_>>()).unwrap();
        let run = |model: &dyn Model| model.run(vec![("x".into(), x.clone())]).unwrap();
        let options = LoadOptions::default();
        for (name, backend) in common::backends().all() {
            let Ok(backend) = backend else { continue };
            let whole = run(&*backend.load(&file, &options).unwrap());
            let sum: f32 = whole[0].1.view::<f32>().unwrap().iter().sum();
            assert!((sum - 1.0).abs() < 1e-5, "{name:?}: {sum}");
            for stages in [[0, 1, 1], [0, 0, 1]] {
                let fragments = graph.split(&stages).unwrap();
                let staged = Staged::load(&graph, &fragments, backend, &options).unwrap();
                assert_eq!(run(&staged), whole, "{name:?} {stages:?}");
            }
        }
        let old = |error| matches!(error, InferError::OperatorSet { least: 13, .. });
        let most = ByteSize::gib(1);
        assert!(old(DeviceModel::read(file, &options.limits, most).unwrap_err()));
        assert!(Integer::read(&graph).is_err());
    }
}

#[test]
fn a_resize_that_back_ends_round_differently_is_not_cut() {
    let resize = |set| {
        model_of_set(
            set,
            &[
                node("Resize", &["x", "scales"], &["y"], &[]),
                initializer("scales", 1, &[1], &4f32.to_le_bytes()),
                value(11, "x", 1, &[2]),
                value(12, "y", 1, &[8]),
            ],
        )
    };
    refused(&resize(10), "operator set 10, and 11 is the oldest");
}
