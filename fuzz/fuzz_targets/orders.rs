//! Any bytes as an order of a federated run for a client of this node, or as what a client answers, the steps of secure sums and of rounds
//! without a server among them: a typed error, or what reads the same once it is written again.
#![cfg_attr(fuzzing, no_main)]

use karman_node::{read_fed_answer, read_fed_order};

fn check(bytes: &[u8]) {
    for read in [read_fed_order, read_fed_answer] {
        if let Ok(written) = read(bytes) {
            let again = read(&written).expect("what was written is read");
            assert_eq!(again, written);
        }
    }
}

karman_fuzz::target!(check);
