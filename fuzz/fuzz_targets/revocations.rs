//! Any bytes as the revocations of a mesh, as the succession and the lineage of its root key, and as the charter of its keepers.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::membership::{Charter, Lineage, MeshKey, Revocations, Succession};

fn check(bytes: &[u8]) {
    let mesh = MeshKey::from_bytes([1; 32]);
    let mut revoked = Revocations::new(mesh);
    match revoked.merge(bytes, 0) {
        Ok(merged) => assert_eq!(merged.new, revoked.number()),
        Err(_) => assert_eq!(revoked.number(), 0),
    }
    // Nobody holds the key of this mesh.
    assert!(Charter::decode(&mesh, bytes).is_err());
    if let Ok(succession) = Succession::decode(bytes) {
        assert_eq!(succession.encode(), bytes);
        let _ = succession.verify(&succession.old);
    }
    if let Ok(lineage) = Lineage::decode(bytes) {
        assert_eq!(lineage.encode(), bytes);
        let mut ours = Lineage::new(mesh);
        assert!(ours.follow(&lineage).is_err() || lineage.mesh() == mesh);
        assert_eq!(ours, Lineage::new(mesh));
    }
}

karman_fuzz::target!(check);
