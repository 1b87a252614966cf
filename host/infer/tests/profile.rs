//! Profiles: exact sizes, times that were measured, and predictions that say what they are.
#![allow(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

use karman_infer::graph::Graph;
use karman_infer::profile::{Origin, Profile, ProfileOptions, Regression, RegressionError};
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{LoadOptions, ModelLimits, Tract};
use std::time::Duration;

const QUICK: ProfileOptions = ProfileOptions {
    warm_up: 1,
    runs: 3,
    pause: Duration::ZERO,
    batch: 1,
    seed: 1,
};

fn graph(architecture: Architecture, quantized: bool) -> Graph {
    let variant = Variant {
        input: 64,
        narrower: 16,
        classes: 10,
        quantized,
        ..Variant::default()
    };
    Graph::read(architecture.generate(&variant), &ModelLimits::default()).unwrap()
}

fn measure(graph: &Graph) -> Profile {
    Profile::measure(graph, &Tract, &LoadOptions::default(), &QUICK).unwrap()
}

#[test]
fn every_layer_is_timed_and_every_size_exact() {
    let graph = graph(Architecture::AlexNet, false);
    let profile = measure(&graph);
    assert!(profile.is_measured());
    assert!(
        profile
            .layers
            .iter()
            .all(|layer| layer.time.seconds > 0.0 && layer.time.low <= layer.time.high)
    );
    assert_eq!(
        profile.layers.iter().map(|layer| layer.macs).sum::<u64>(),
        graph.macs().at(1)
    );
    assert_eq!(profile.edges[0].bytes, 4 * 3 * 64 * 64);
    assert_eq!(profile.edges.last().unwrap().bytes, 40);
    // Half of what comes out of a ReLU is zero; what the pictures of a camera are like is not known.
    assert_eq!(profile.edges[0].packed_bytes, None);
    let activation = &profile.edges[1];
    assert!(
        activation.packed_bytes.unwrap() < activation.bytes * 3 / 4,
        "{activation:?}"
    );
    assert!((profile.seconds().iter().sum::<f64>() / profile.whole.seconds - 1.0).abs() < 1e-9);
    let text = serde_json::to_string(&profile).unwrap();
    assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
}

#[test]
fn a_model_never_seen_is_predicted_and_says_so() {
    let seen = [Architecture::Vgg16, Architecture::MobileNetV2].map(|one| measure(&graph(one, false)));
    let regression = Regression::fit(&seen.iter().collect::<Vec<_>>()).unwrap();
    let graph = graph(Architecture::ResNet50, false);
    let profile = regression.predict(&graph, 1);
    assert!(!profile.is_measured());
    for layer in &profile.layers {
        assert!(matches!(layer.time.origin, Origin::Predicted { .. }));
        assert!(
            layer.time.seconds.is_finite() && layer.time.seconds > 0.0,
            "{layer:?}"
        );
    }
    assert!(profile.whole.seconds > 0.0);
    // Eight items are more work than one.
    assert!(regression.predict(&graph, 8).whole.seconds > profile.whole.seconds);
}

/// A machine that is exactly linear is found out exactly, whatever its rates.
#[test]
fn a_linear_machine_is_predicted_exactly() {
    let graphs = Architecture::ALL.map(|one| graph(one, false));
    let linear = |graph: &Graph| {
        let mut profile = measure(graph);
        for layer in &mut profile.layers {
            layer.time.seconds =
                2e-6 + 3e-10 * layer.macs as f64 + 5e-11 * (layer.bytes_in + layer.bytes_out) as f64;
        }
        profile.whole.seconds = profile.layers.iter().map(|layer| layer.time.seconds).sum();
        profile
    };
    let [a, b, c, held] = graphs.each_ref().map(linear);
    let regression = Regression::fit(&[&a, &b, &c]).unwrap();
    let predicted = regression.predict(&graphs[3], 1);
    for (predicted, real) in predicted.layers.iter().zip(&held.layers) {
        let off = (predicted.time.seconds / real.time.seconds - 1.0).abs();
        assert!(off < 0.05, "{}: {off}", real.name);
    }
    assert!((predicted.whole.seconds / held.whole.seconds - 1.0).abs() < 0.02);
}

#[test]
fn eight_bit_layers_are_told_apart() {
    let profile = measure(&graph(Architecture::AlexNet, true));
    assert!(profile.is_measured());
    assert!(
        profile
            .layers
            .iter()
            .filter(|layer| layer.macs > 0)
            .all(|layer| layer.eight_bit)
    );
}

#[test]
fn no_regression_is_made_of_nothing_or_of_two_machines() {
    assert_eq!(Regression::fit(&[]), Err(RegressionError::Empty { profiles: 0 }));
    let profile = measure(&graph(Architecture::AlexNet, false));
    let other = Profile {
        threads: 2,
        ..profile.clone()
    };
    assert_eq!(Regression::fit(&[&profile, &other]), Err(RegressionError::Mixed));
}
