//! Any bytes as a membership: a typed error or what was signed, never a crash.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::membership::{Membership, MeshKey, Revocations, UnixTime};

/// The public key of the seed of zeros (RFC 8032), so that signatures are really verified.
const MESH: MeshKey = MeshKey::from_bytes([
    0x3b, 0x6a, 0x27, 0xbc, 0xce, 0xb6, 0xa4, 0x2d, 0x62, 0xa3, 0xa8, 0xd0, 0x2a, 0x6f, 0x0d, 0x73, 0x65,
    0x32, 0x15, 0x77, 0x1d, 0xe2, 0x43, 0xa6, 0x3a, 0xc0, 0x48, 0xa1, 0x8b, 0x59, 0xda, 0x29,
]);

fn check(bytes: &[u8]) {
    if let Ok(membership) = Membership::decode(bytes) {
        assert_eq!(membership.encode(), bytes);
        let now = UnixTime::from_seconds(1_800_000_000);
        let _ = membership.verify(&MESH, &[3; 32], now, &Revocations::new(MESH));
    }
}

karman_fuzz::target!(check);
