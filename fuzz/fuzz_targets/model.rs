//! Any bytes as an ONNX model: a typed error or a model, never a crash, a hang or memory past the limits.
#![cfg_attr(fuzzing, no_main)]

use karman_infer::{Backend, LoadOptions, ModelLimits, Tract, weights, with_weights};
use karman_types::ByteSize;

fn check(bytes: &[u8]) {
    karman_fuzz::let_models_panic();
    let options = LoadOptions {
        limits: ModelLimits {
            model: ByteSize::mib(1),
            nodes: 1_000,
            entries: 10_000,
            constants: ByteSize::mib(4),
            tensor: ByteSize::mib(4),
            run: ByteSize::mib(64),
            ..ModelLimits::default()
        },
        ..LoadOptions::default()
    };
    let _ = weights(bytes, &options.limits).and_then(|own| with_weights(bytes, &own, &options.limits));
    let _ = Tract.load(bytes, &options);
}

karman_fuzz::target!(check);
