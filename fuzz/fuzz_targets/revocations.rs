//! Any bytes as the revocations of a mesh, and as the succession of its root key.
#![no_main]

use karman_mesh::membership::{MeshKey, Revocations, Succession};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let mesh = MeshKey::from_bytes([1; 32]);
    let mut revoked = Revocations::new(mesh);
    match revoked.merge(bytes) {
        Ok(new) => assert_eq!(new, revoked.number()),
        Err(_) => assert_eq!(revoked.number(), 0),
    }
    if let Ok(succession) = Succession::decode(bytes) {
        assert_eq!(succession.encode(), bytes);
        let _ = succession.verify(&succession.old);
    }
});
