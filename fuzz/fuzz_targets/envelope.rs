//! Any bytes as an envelope, sealed and opened: nobody has signed them, so none is ever taken.
#![cfg_attr(fuzzing, no_main)]

use karman_mesh::membership::{Issuer, RootKey};
use karman_mesh::{Envelope, Standing};
use karman_store::Store;
use karman_types::Tier;
use std::sync::LazyLock;

static STANDING: LazyLock<Standing> = LazyLock::new(|| {
    let folder = tempfile::tempdir().expect("a folder").keep();
    let store = Store::open(folder).expect("a store");
    let root = RootKey::from_seed(&[1; 32]);
    Standing::open(store, Tier::Edge, None, Some(Issuer::root(&root))).expect("a mesh of its own")
});

fn check(bytes: &[u8]) {
    assert!(Envelope::open(bytes, &STANDING).is_err());
    assert!(Envelope::judge(bytes.to_vec().into(), &STANDING).is_err());
}

karman_fuzz::target!(check);
