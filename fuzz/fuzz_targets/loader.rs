//! Any bytes as a plugin's file.
#![cfg_attr(fuzzing, no_main)]

use karman_package::{Package, ReadLimits, embed};

fn check(bytes: &[u8]) {
    let limits = ReadLimits::default();
    if let Ok(package) = Package::read(bytes, &limits) {
        assert_eq!(package.bytes_len, bytes.len());
        assert!(package.imports.len() + package.exports.len() <= limits.names);
        // What was read can be written, and reads as the same manifest.
        if let Some(manifest) = &package.manifest {
            let file = embed(bytes, manifest).expect("a manifest that was read can be embedded");
            let again = Package::read(&file, &limits).expect("what was embedded can be read");
            assert_eq!(again.manifest.map(|m| m.to_toml()), Some(without_build(manifest)));
        }
    }
}

karman_fuzz::target!(check);

fn without_build(manifest: &karman_types::Manifest) -> String {
    let mut manifest = manifest.clone();
    manifest.build = None;
    manifest.to_toml()
}
