//! Any bytes as a signed statement: a typed error or what was signed, never a crash.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::membership::{Kind, MeshKey, Revocations, Signed, UnixTime};

fn check(bytes: &[u8]) {
    if let Ok(signed) = Signed::decode(bytes) {
        assert_eq!(signed.encode(), bytes);
        let mesh = MeshKey::from_bytes([1; 32]);
        let now = UnixTime::from_seconds(1_800_000_000);
        for kind in [Kind::Ticket, Kind::Envelope] {
            assert!(signed.verify(kind, &mesh, now, &Revocations::new(mesh)).is_err());
        }
    }
}

karman_fuzz::target!(check);
