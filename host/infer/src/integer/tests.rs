use super::*;
use crate::zoo::{Architecture, Variant};
use crate::{Backend, LoadOptions, ModelLimits, Tract};
use karman_tensor::quantised::{Operator, RowView};

fn graph(architecture: Architecture, quantized: bool) -> Graph {
    let variant = Variant {
        input: side(architecture),
        narrower: 4,
        classes: 10,
        quantized,
        ..Variant::default()
    };
    Graph::read(architecture.generate(&variant), &ModelLimits::default()).unwrap()
}

/// Of the smallest picture that leaves something to its last layers, or a little more.
const fn side(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::AlexNet => 64,
        _ => 32,
    }
}

fn image(architecture: Architecture) -> Vec<(String, Tensor)> {
    let side = side(architecture);
    let pixel = |at: u32| ((at * 7) % 17) as f32 / 8.0 - 1.0;
    let pixels: Vec<f32> = (0..3 * side * side).map(pixel).collect();
    let image = Tensor::from_slice([1, 3, side, side], &pixels).unwrap();
    vec![("image".to_owned(), image)]
}

fn run(model: &[u8], inputs: Vec<(String, Tensor)>) -> Vec<(String, Tensor)> {
    Tract
        .load(model, &LoadOptions::default())
        .unwrap()
        .run(inputs)
        .unwrap()
}

/// A stored activation as a network has it.
fn activation(extent: Extent, tensor: &Tensor) -> Vec<i8> {
    by_rows(extent, tensor.view::<u8>().unwrap(), |value| (value ^ 0x80) as i8)
}

/// What the rest of a model takes, from one item.
fn given(integer: &Integer, item: &[i8]) -> Vec<Vec<i8>> {
    let activations = integer.network().activations(item).unwrap();
    let gives = integer.gives().into_iter();
    gives.map(|at| activations[at].clone()).collect()
}

/// Each layer is given what a back-end made of the layers before it, so that steps do not add up.
#[track_caller]
fn agrees_to_one_step(graph: &Graph, integer: &Integer, inputs: Vec<(String, Tensor)>) {
    let network = integer.network();
    let stored = walk::walk(graph).unwrap().stored;
    let tapped = graph.tapped(&stored).unwrap();
    let quantised = integer.quantise(&inputs).unwrap();
    let told = run(&tapped.model, inputs);
    let given: Vec<Vec<i8>> = stored
        .iter()
        .take(network.layers().len() + 1)
        .enumerate()
        .map(|(at, edge)| {
            let name = &graph.edges()[*edge].info.name;
            let (_, tensor) = told.iter().find(|(told, _)| told == name).unwrap();
            activation(network.activation(at), tensor)
        })
        .collect();
    assert_eq!(quantised.len(), 1);
    for (got, wanted) in quantised[0].iter().zip(&given[0]) {
        assert!(got.abs_diff(*wanted) <= 1, "input: {got} is not {wanted}");
    }
    for (index, layer) in network.layers().iter().enumerate() {
        let (input, output) = (layer.input(), layer.output());
        let row_of = |values: usize, row: isize| {
            let (row, length) = (usize::try_from(row).ok()?, input.width * input.channels);
            let values = given[values].chunks_exact(length).nth(row)?;
            RowView::new(values, &(0..input.channels)).ok()
        };
        let mut scratch = vec![0; network.scratch(index)];
        for (row, wanted) in given[index + 1]
            .chunks_exact(output.width * output.channels)
            .enumerate()
        {
            let taken = network.takes()[index];
            let taps: Vec<_> = layer.window(row).map(|row| row_of(taken, row)).collect();
            let other = match *layer.operator() {
                Operator::Add { other } => row_of(other, row as isize),
                _ => None,
            };
            let mut out = vec![0; wanted.len()];
            let channels = 0..output.channels;
            network
                .row(index, &taps, other, &channels, &mut scratch, &mut out)
                .unwrap();
            for (got, wanted) in out.iter().zip(wanted) {
                assert!(got.abs_diff(*wanted) <= 1, "layer {index}: {got} is not {wanted}");
            }
        }
    }
}

#[test]
fn each_layer_gives_what_a_back_end_does_to_one_step() {
    for (architecture, layers) in [
        // Every convolution and addition, and the mean.
        (Architecture::MobileNetV2, 63),
        // Every convolution and maximum, and two that are fully connected.
        (Architecture::AlexNet, 10),
        (Architecture::Vgg16, 20),
        // 53 convolutions, four of them beside others, 16 additions, a maximum and the mean.
        (Architecture::ResNet50, 71),
    ] {
        let graph = graph(architecture, true);
        let integer = Integer::read(&graph).unwrap();
        assert_eq!(integer.network().layers().len(), layers, "{architecture}");
        // The scores are real numbers.
        assert!(integer.operators_of_rest().contains(&"Gemm".to_owned()));
        agrees_to_one_step(&graph, &integer, image(architecture));
    }
}

#[test]
fn a_model_by_the_quantiser_of_onnx_runtime_is_read() {
    let file = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/models/digits-l-int8.onnx"
    );
    let file = std::fs::read(file).unwrap();
    let graph = Graph::read(file, &ModelLimits::default()).unwrap();
    let integer = Integer::read(&graph).unwrap();
    // Its early exits among them, which lie beside the layers after them.
    assert_eq!(integer.network().layers().len(), 10);
    assert!(!integer.network().is_chain());
    assert_eq!(integer.results(), ["exit_1", "exit_2", "probabilities"]);
    let pixels: Vec<f32> = (0..64).map(|at| ((at * 7) % 17) as f32 / 16.0).collect();
    let image = Tensor::from_slice([1, 1, 8, 8], &pixels).unwrap();
    agrees_to_one_step(&graph, &integer, vec![("image".to_owned(), image)]);
}

#[test]
fn bounds_are_those_of_onnx_also_the_wrong_way_round() {
    let all = [f64::NEG_INFINITY, f64::INFINITY];
    let relu = walk::clipped(all, [0.0, f64::INFINITY]);
    assert_eq!(walk::clipped(relu, [-1.0, 6.0]), [0.0, 6.0]);
    assert_eq!(walk::clipped([0.0, 6.0], [7.0, 9.0]), [7.0, 7.0]);
    assert_eq!(walk::clipped(relu, [5.0, 3.0]), [3.0, 3.0]);
}

#[test]
fn the_rest_goes_on_from_what_the_network_gives() {
    let integer = Integer::read(&graph(Architecture::MobileNetV2, true)).unwrap();
    let items = integer.quantise(&image(Architecture::MobileNetV2)).unwrap();
    let given = given(&integer, &items[0]);
    let handed = integer.hand_over(&[given.clone(), given]).unwrap();
    let results = run(&integer.rest().model, handed);
    assert_eq!(integer.results(), ["scores"]);
    let scores = results[0].1.view::<f32>().unwrap();
    assert_eq!(scores.len(), 20);
    assert_eq!(scores[..10], scores[10..]);
    assert!(scores.iter().any(|score| *score != scores[0]));
}

#[test]
fn a_model_without_whole_numbers_is_refused_by_the_node_that_lacks_them() {
    let error = Integer::read(&graph(Architecture::MobileNetV2, false)).unwrap_err();
    assert!(matches!(error, IntegerError::None { .. }), "{error}");
    assert!(error.to_string().contains("conv_1"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_what_does() {
    let integer = Integer::read(&graph(Architecture::MobileNetV2, true)).unwrap();
    let small = Tensor::from_slice([1, 3, 8, 8], &[0f32; 192]).unwrap();
    for inputs in [Vec::new(), vec![("image".to_owned(), small)]] {
        let error = integer.quantise(&inputs).unwrap_err();
        assert!(error.to_string().contains("image f32"), "{error}");
    }
}
