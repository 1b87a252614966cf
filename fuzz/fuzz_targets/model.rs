//! Any bytes as an ONNX model: a typed error or a model, never a crash, a hang or memory past the limits.
#![cfg_attr(fuzzing, no_main)]

use karman_infer::{Backend, DeviceModel, LoadOptions, Tract, weights, with_weights};
use karman_types::ByteSize;

fn check(bytes: &[u8]) {
    karman_fuzz::let_models_panic();
    let options = LoadOptions {
        limits: karman_fuzz::small_models(),
        ..LoadOptions::default()
    };
    let _ = weights(bytes, &options.limits).and_then(|own| with_weights(bytes, &own, &options.limits));
    let _ = Tract.load(bytes, &options);
    let _ = DeviceModel::read(bytes.to_vec(), &options.limits, ByteSize::mib(16));
}

karman_fuzz::target!(check);
