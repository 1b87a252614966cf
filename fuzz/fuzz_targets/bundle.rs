//! Any bytes as a bundle: a typed error, or a head and a payload that make the same bundle again.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::{open_bundle, write_bundle};

fn check(bytes: &[u8]) {
    if let Ok((head, payload)) = open_bundle(&bytes.to_vec().into()) {
        let again = write_bundle(&head, &payload).expect("what was read can be written");
        assert_eq!(
            open_bundle(&again).expect("what was written can be read"),
            (head, payload)
        );
    }
}

karman_fuzz::target!(check);
