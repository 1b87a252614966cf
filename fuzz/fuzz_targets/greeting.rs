//! Any bytes as what is said at the gate, which strangers may say: a typed error, or words that the gate knows.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::read_greeting;

fn check(bytes: &[u8]) {
    let _ = read_greeting(bytes);
}

karman_fuzz::target!(check);
