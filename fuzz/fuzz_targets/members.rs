//! Any bytes as what a member tells of others: a typed error, or addresses that each name whom they lead to.
#![no_main]

use karman_mesh::read_members;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(addresses) = read_members(bytes) {
        assert!(addresses.len() <= 48);
        assert!(addresses.iter().all(|address| address.to_string().contains("/p2p/")));
    }
});
