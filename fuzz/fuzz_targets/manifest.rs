//! Any text as a manifest, and each of its lines as a grant.
#![cfg_attr(fuzzing, no_main)]

use karman_types::{Grant, Manifest};

fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    if let Ok(manifest) = Manifest::from_toml(text) {
        let again = Manifest::from_toml(&manifest.to_toml()).expect("a manifest reads what it writes");
        assert_eq!(again.to_toml(), manifest.to_toml());
    }
    for line in text.lines() {
        if let Ok(grant) = line.parse::<Grant>() {
            assert_eq!(grant.to_string().parse(), Ok(grant.clone()));
            assert!(grant.covers(&grant), "{grant} does not cover itself");
        }
    }
}

karman_fuzz::target!(check);
