//! Any bytes as a `ModelInferRequest`: what it would take is told without taking it, is bounded by its length, and no less than what a part of
//! it takes that came first.
#![cfg_attr(fuzzing, no_main)]

use karman_gateway::weigh_infer_request;

/// An empty tensor has two bytes on the way.
const MOST_OF_A_BYTE: u64 = 512;

fn check(bytes: &[u8]) {
    let weight = weigh_infer_request(bytes);
    assert!(weight <= bytes.len() as u64 * MOST_OF_A_BYTE, "{weight}");
    let begun = weigh_infer_request(&bytes[..bytes.len() / 2]);
    assert!(begun <= weight, "{begun} of {weight}");
}

karman_fuzz::target!(check);
