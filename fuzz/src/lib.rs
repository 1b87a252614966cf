//! What every fuzz target is made of. Under `cargo fuzz` a target is fed by libFuzzer; otherwise it reads the files that it is
//! given, so that every change compiles the targets and a finding is seen again with the usual compiler:
//!
//! ```console
//! $ cargo +nightly fuzz run loader -- -max_total_time=60
//! $ cargo run --package karman-fuzz --bin loader -- fuzz/artifacts/loader/crash-…
//! ```
#![forbid(unsafe_code)]

use karman_infer::ModelLimits;
use karman_types::ByteSize;
use std::sync::Once;

/// Makes a target of a function that takes any bytes and panics where they break its promise.
#[macro_export]
macro_rules! target {
    ($check:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $check(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            for path in std::env::args_os().skip(1) {
                $check(&std::fs::read(path)?);
            }
            Ok(())
        }
    };
}

/// libFuzzer ends at every panic; those of tract are caught on a thread of this name and are errors.
pub fn let_models_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let end = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if std::thread::current().name() != Some("karman-model") {
                end(info);
            }
        }));
    });
}

/// Limits of models so small that a second sees many of them.
pub fn small_models() -> ModelLimits {
    ModelLimits {
        model: ByteSize::mib(1),
        nodes: 1_000,
        entries: 10_000,
        constants: ByteSize::mib(4),
        tensor: ByteSize::mib(4),
        run: ByteSize::mib(64),
        ..ModelLimits::default()
    }
}
