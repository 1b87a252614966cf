//! Any bytes as an ONNX model: a typed error or a model, never a crash, a hang or memory past the limits.
#![cfg_attr(fuzzing, no_main)]

use karman_infer::{Backend, LoadOptions, Tract, weights, with_weights};

fn check(bytes: &[u8]) {
    karman_fuzz::let_models_panic();
    let options = LoadOptions {
        limits: karman_fuzz::small_models(),
        ..LoadOptions::default()
    };
    let _ = weights(bytes, &options.limits).and_then(|own| with_weights(bytes, &own, &options.limits));
    let _ = Tract.load(bytes, &options);
}

karman_fuzz::target!(check);
