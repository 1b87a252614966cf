//! Any bytes as an ONNX model: a typed error or a model, never a crash, a hang or memory past the limits.
#![no_main]

use karman_infer::{Backend, LoadOptions, ModelLimits, Tract};
use karman_types::ByteSize;
use libfuzzer_sys::fuzz_target;

fuzz_target!(
    init: {
        // libFuzzer ends at every panic; those of tract are caught on a thread of this name and are errors.
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some("karman-model") {
                end(info);
            }
        }));
    },
    |bytes: &[u8]| {
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
        let _ = Tract.load(bytes, &options);
    }
);
