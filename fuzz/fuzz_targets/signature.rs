//! Any bytes as a signed file; and what we sign is ours.
#![cfg_attr(fuzzing, no_main)]

use karman_package::{SecretKey, sign, verify};
use std::sync::OnceLock;

static KEY: OnceLock<SecretKey> = OnceLock::new();

fn check(bytes: &[u8]) {
    let key = KEY.get_or_init(SecretKey::generate);
    let _ = verify(bytes);
    if let Ok(signed) = sign(bytes, key) {
        assert_eq!(verify(&signed), Ok(Some(key.public())));
    }
}

karman_fuzz::target!(check);
