//! Any bytes as what a member tells of others: a typed error, or addresses that each name whom they lead to.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::read_members;

fn check(bytes: &[u8]) {
    if let Ok(addresses) = read_members(bytes) {
        assert!(addresses.len() <= 48);
        assert!(
            addresses
                .iter()
                .all(|address| address.to_string().contains("/p2p/"))
        );
    }
}

karman_fuzz::target!(check);
