//! Any bytes as what is said at the gate, which strangers may say: a typed error, or words that the gate knows.
#![no_main]

use karman_mesh::read_greeting;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = read_greeting(bytes);
});
