//! Fragments of a model, run one after the other, give what the model gives. The full-size networks are cut by
//! `examples/cuts.rs`.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod common;

use common::cuts::{Law, chain_cuts, random_cuts, random_stages, roomy};
use common::{backends, digits};
use fastrand::Rng;
use karman_infer::graph::{CutError, Graph};
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{Backend, Joined, Model, Staged, Tract};
use karman_tensor::Tensor;
use karman_types::Digest;

/// Of the greatest element of the answer.
const TOLERANCE: f64 = 1e-5;

fn read(file: &[u8]) -> Graph {
    Graph::read(file.to_vec(), &roomy().limits).unwrap()
}

fn small(architecture: Architecture, quantized: bool) -> Vec<u8> {
    let variant = Variant {
        input: 64,
        // With fewer channels 8 bits are too coarse for anything to be left of the input.
        narrower: if quantized { 4 } else { 16 },
        classes: 10,
        quantized,
        ..Variant::default()
    };
    architecture.generate(&variant).to_vec()
}

/// About this many of them, evenly spread.
fn some(cuts: Vec<Vec<usize>>, number: usize) -> Vec<Vec<usize>> {
    let step = cuts.len().div_ceil(number).max(1);
    cuts.into_iter().step_by(step).collect()
}

#[track_caller]
fn holds(name: &str, file: &[u8], backend: &dyn Backend, each: usize, tolerance: f64) {
    let graph = read(file);
    let law = Law::new(&graph, file, backend, 1);
    let mut rng = Rng::with_seed(4);
    let mut cuts = some(chain_cuts(&graph), each);
    cuts.extend(random_cuts(&graph, each, &mut rng));
    cuts.extend((3..6).map(|fragments| random_stages(&graph, fragments, &mut rng)));
    let worst = cuts.iter().map(|stages| law.error(stages)).fold(0.0, f64::max);
    println!("{name} on {}: {} cuts, {worst:e}", backend.name(), cuts.len());
    assert!(worst <= tolerance, "{name} on {}: {worst}", backend.name());
}

#[test]
fn the_digit_family_may_be_cut_anywhere() {
    for (_, backend) in backends().all() {
        let Ok(backend) = backend else { continue };
        for name in ["digits-s", "digits-m", "digits-l"] {
            holds(name, &digits(name), backend, 40, TOLERANCE);
        }
    }
}

#[test]
fn networks_may_be_cut_anywhere() {
    for (_, backend) in backends().all() {
        let Ok(backend) = backend else { continue };
        for architecture in Architecture::ALL {
            holds(
                architecture.as_str(),
                &small(architecture, false),
                backend,
                4,
                TOLERANCE,
            );
        }
    }
}

#[test]
fn eight_bit_models_are_cut_at_their_layers_without_a_trace() {
    let mobilenet = small(Architecture::MobileNetV2, true);
    for (name, file, each) in [
        ("digits-l-int8", digits("digits-l-int8"), 100),
        ("mobilenetv2", mobilenet, 8),
    ] {
        for (_, backend) in backends().all() {
            let Ok(backend) = backend else { continue };
            let graph = read(&file);
            let law = Law::new(&graph, &file, backend, 1);
            let worst = some(chain_cuts(&graph), each)
                .iter()
                .map(|stages| law.error(stages))
                .fold(0.0, f64::max);
            println!("{name} on {}: {worst:e}", backend.name());
            assert!(worst <= TOLERANCE, "{name} on {}: {worst}", backend.name());
        }
    }
}

#[test]
fn eight_bits_cross_where_an_eight_bit_model_is_cut() {
    let [float, eight] = [false, true].map(|quantized| {
        let variant = Variant {
            input: 64,
            narrower: 16,
            classes: 10,
            quantized,
            ..Variant::default()
        };
        let graph = read(&Architecture::MobileNetV2.generate(&variant));
        let points = graph.layers().cut_points(&graph);
        let sizes = points.iter().map(|point| (point.tensors, point.bytes.at(1)));
        sizes.collect::<Vec<_>>()
    });
    // The first layer of the one quantises the input; from there on a quarter crosses everywhere.
    let quarters: Vec<_> = float
        .iter()
        .map(|(tensors, bytes)| (*tensors, bytes / 4))
        .collect();
    assert_eq!(eight[0], float[0]);
    assert_eq!(eight[1..], quarters);
}

#[test]
fn every_layer_may_run_alone_on_a_batch() {
    let file = digits("digits-l");
    let graph = read(&file);
    let layers = graph.layers();
    let each: Vec<usize> = (0..layers.layers.len()).collect();
    let law = Law::new(&graph, &file, &Tract, 3);
    assert!(law.error(&layers.stages(&each).unwrap()) <= TOLERANCE);
}

#[test]
fn the_same_nodes_give_the_same_file() {
    let graph = read(&small(Architecture::ResNet50, false));
    let nodes = graph.nodes().len();
    let cut = |a: usize, b: usize| -> Vec<usize> {
        (0..nodes)
            .map(|node| usize::from(node >= a) + usize::from(node >= b))
            .collect()
    };
    let twice = [
        graph.split(&cut(20, 40)).unwrap(),
        graph.split(&cut(20, 60)).unwrap(),
    ];
    assert_eq!(twice[0][0].model, twice[1][0].model);
    assert_ne!(twice[0][1].model, twice[1][1].model);
    let again = graph.split(&cut(20, 40)).unwrap();
    assert!(again.iter().zip(&twice[0]).all(|(a, b)| a.model == b.model));

    // Nodes keep fragments by this digest: a build that writes them in another way must not go unnoticed.
    let first = &read(&digits("digits-s")).split(&[0, 0, 1, 1, 1, 1]).unwrap()[0];
    assert_eq!(
        Digest::of(&first.model).to_string(),
        "4f9acb40cf8e7820fa6bc1bf5b8e7c013ddf0b4326ec705627a048c650bdedcd"
    );
}

#[test]
fn a_fragment_holds_what_it_needs_and_no_more() {
    let graph = read(&small(Architecture::Vgg16, false));
    let layers = graph.layers();
    let each: Vec<usize> = (0..layers.layers.len()).collect();
    let fragments = graph.split(&layers.stages(&each).unwrap()).unwrap();
    let weights: u64 = layers.layers.iter().map(|layer| layer.parameter_bytes).sum();
    let files: usize = fragments.iter().map(|fragment| fragment.model.len()).sum();
    assert!((files as u64) < weights + 400 * fragments.len() as u64);
    for pair in fragments.windows(2) {
        assert_eq!(pair[0].outputs, pair[1].inputs);
    }
}

#[test]
fn stages_that_are_no_cut_are_refused() {
    let graph = read(&digits("digits-s"));
    let mut stages = vec![0; graph.nodes().len()];
    assert!(matches!(graph.split(&stages[1..]), Err(CutError::Length { .. })));
    stages[1] = 1;
    let error = graph.split(&stages).unwrap_err();
    assert!(
        matches!(
            error,
            CutError::Backward {
                stage: 0,
                made: 1,
                ..
            }
        ),
        "{error}"
    );
    assert!(matches!(graph.tapped(&[999]), Err(CutError::Edge { .. })));
}

#[test]
fn requests_are_answered_together_as_they_are_alone() {
    let file = digits("digits-l");
    let graph = read(&file);
    let layers = graph.layers();
    let fragments = graph.split(&layers.stages_of_chain(&[2, 4])).unwrap();
    for (_, backend) in backends().all() {
        let Ok(backend) = backend else { continue };
        let model = Staged::load(&graph, &fragments, backend, &roomy()).unwrap();
        let mut rng = Rng::with_seed(3);
        let requests: Vec<_> = [1u32, 3, 2]
            .into_iter()
            .map(|items| {
                let pixels: Vec<f32> = (0..items * 64).map(|_| rng.f32()).collect();
                vec![(
                    "image".to_owned(),
                    Tensor::from_slice([items, 1, 8, 8], &pixels).unwrap(),
                )]
            })
            .collect();
        let joined = Joined::of(model.inputs(), &requests).unwrap();
        let together = joined
            .apart(&model.run(joined.inputs().clone()).unwrap())
            .unwrap();
        for (request, answer) in requests.into_iter().zip(together) {
            let alone = model.run(request).unwrap();
            for ((name, alone), (other, answer)) in alone.iter().zip(&answer) {
                assert_eq!((name, alone.shape()), (other, answer.shape()));
                let pairs = alone
                    .view::<f32>()
                    .unwrap()
                    .iter()
                    .zip(answer.view::<f32>().unwrap());
                assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-6));
            }
        }
    }
}
