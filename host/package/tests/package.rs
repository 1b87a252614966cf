//! From bytes to a package, and every way in which bytes fail to be one.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

use karman_package::{Package, PackageError, ReadLimits, SecretKey, embed, sign, verify};
use karman_types::{Digest, ErrorKind, Manifest, World};
use proptest::prelude::*;

const TASK: &str = r#"
    (instance $i)
    (export "karman:task/handler@0.1.0" (instance $i))
"#;

fn component(body: &str) -> Vec<u8> {
    wat::parse_str(format!("(component {body})")).unwrap()
}

fn import(name: &str) -> String {
    format!("(import \"{name}\" (instance)) {TASK}")
}

fn manifest(world: &str) -> Manifest {
    Manifest::from_toml(&format!(
        "name = \"hello\"\nversion = \"0.1.0\"\nworld = \"{world}\"\n[build]\nlang = \"rust\"\n"
    ))
    .unwrap()
}

fn read(bytes: &[u8]) -> Result<Package, PackageError> {
    Package::read(bytes, &ReadLimits::default())
}

/// The component with a custom section put at its end.
fn with_section(component: &[u8], name: &str, data: &[u8]) -> Vec<u8> {
    let content = 1 + name.len() + data.len();
    assert!(name.len() < 128 && content < 1 << 21);
    let mut file = component.to_vec();
    file.push(0);
    // The length, in three groups of seven bits.
    file.extend([
        content as u8 | 0x80,
        (content >> 7) as u8 | 0x80,
        (content >> 14) as u8,
    ]);
    file.push(name.len() as u8);
    file.extend_from_slice(name.as_bytes());
    file.extend_from_slice(data);
    file
}

#[test]
fn a_foreign_component_is_known_by_its_digest_and_exports() {
    let file = component(
        r#"
        (import "wasi:cli/environment@0.2.6" (instance))
        (core module (func))
        (instance $i)
        (export "karman:task/handler@0.1.0" (instance $i))
        (export "karman:task/lifecycle@0.1.0" (instance $i))
    "#,
    );
    let package = read(&file).unwrap();
    assert_eq!(package.id, Digest::of(&file));
    assert_eq!(package.bytes_len, file.len());
    assert_eq!(package.world, World::Task);
    assert!(package.lifecycle);
    assert_eq!(package.imports, ["wasi:cli/environment@0.2.6"]);
    assert_eq!(package.manifest, None);
    assert_eq!(package.publisher, None);
    assert_eq!(package.identity().to_string(), format!("blake3:{}", package.id));
}

#[test]
fn each_world_is_found() {
    for (export, world) in [
        ("karman:task/handler@0.1.0", World::Task),
        ("karman:task/stream-handler@0.1.2", World::TaskStream),
        ("wasi:cli/run@0.2.3", World::Command),
        ("wasi:cli/run@0.3.0", World::Command),
        ("wasi:http/incoming-handler@0.2.6", World::Http),
        ("wasi:http/handler@0.3.0", World::Http),
    ] {
        let file = component(&format!("(instance $i) (export \"{export}\" (instance $i))"));
        let package = read(&file).unwrap();
        assert_eq!(package.world, world, "{export}");
        assert!(!package.lifecycle);
    }
}

#[test]
fn the_manifest_chooses_between_worlds() {
    let both = component(
        r#"
        (instance $i)
        (export "karman:task/handler@0.1.0" (instance $i))
        (export "wasi:cli/run@0.2.0" (instance $i))
    "#,
    );
    assert_eq!(read(&both).unwrap().world, World::Task);
    let file = embed(&both, &manifest("wasi:cli/command")).unwrap();
    assert_eq!(read(&file).unwrap().world, World::Command);
}

#[test]
fn every_way_to_fail_has_its_error() {
    let task = component(TASK);
    let with_manifest = |data: &[u8]| with_section(&task, "karman:manifest", data);
    let good = manifest("karman:task/task").to_toml();
    let cases: Vec<(&str, Vec<u8>, ErrorKind, &str)> = vec![
        ("empty", vec![], ErrorKind::Invalid, "not WebAssembly"),
        (
            "text",
            b"#!/bin/sh".to_vec(),
            ErrorKind::Invalid,
            "not WebAssembly",
        ),
        (
            "module",
            wat::parse_str("(module)").unwrap(),
            ErrorKind::Invalid,
            "wasm-tools component new",
        ),
        (
            "cut",
            task[..task.len() - 3].to_vec(),
            ErrorKind::Invalid,
            "malformed at byte",
        ),
        ("no version", b"\0asm".to_vec(), ErrorKind::Invalid, "malformed"),
        (
            "garbage",
            [&task[..], &[0xff; 9]].concat(),
            ErrorKind::Invalid,
            "malformed",
        ),
        ("nothing", component(""), ErrorKind::Invalid, "exports nothing"),
        (
            "foreign",
            component(r#"(instance $i) (export "acme:x/y@1.0.0" (instance $i))"#),
            ErrorKind::Invalid,
            "acme:x/y@1.0.0",
        ),
        (
            "import",
            component(&import("acme:secret/door@1.0.0")),
            ErrorKind::Unavailable,
            "acme:secret/door@1.0.0",
        ),
        (
            "manifest",
            with_manifest(b"nme = 1"),
            ErrorKind::Invalid,
            "did you mean `name`",
        ),
        (
            "encoding",
            with_manifest(b"name\xff"),
            ErrorKind::Invalid,
            "UTF-8 at its byte 4",
        ),
        (
            "long",
            with_manifest(&vec![b' '; Manifest::MAX_BYTES + 1]),
            ErrorKind::Invalid,
            "65536",
        ),
        (
            "several",
            with_section(
                &with_manifest(good.as_bytes()),
                "karman:manifest",
                good.as_bytes(),
            ),
            ErrorKind::Invalid,
            "several",
        ),
        (
            "differs",
            with_manifest(manifest("wasi:cli/command").to_toml().as_bytes()),
            ErrorKind::Invalid,
            "karman:task/task",
        ),
        (
            "misplaced",
            with_section(&task, "signature", &[1; 107]),
            ErrorKind::Denied,
            "covers nothing",
        ),
        (
            "key alone",
            with_section(&task, "karman:publisher", &[1; 32]),
            ErrorKind::Denied,
            "was removed",
        ),
        (
            "short key",
            with_section(&task, "karman:publisher", &[1; 31]),
            ErrorKind::Denied,
            "karman:publisher",
        ),
    ];
    for (case, file, kind, says) in cases {
        let error = read(&file).expect_err(case);
        assert_eq!(error.kind(), kind, "{case}: {error}");
        assert!(error.to_string().contains(says), "{case}: {error}");
    }
}

#[test]
fn limits_are_numbers() {
    let file = component(TASK);
    let limits = ReadLimits {
        bytes: file.len() - 1,
        ..ReadLimits::default()
    };
    let error = Package::read(&file, &limits).unwrap_err();
    assert_eq!(
        error,
        PackageError::TooLarge {
            bytes: file.len(),
            most: file.len() - 1
        }
    );
    assert_eq!(error.kind(), ErrorKind::Limit);

    let limits = ReadLimits {
        names: 0,
        ..ReadLimits::default()
    };
    assert_eq!(
        Package::read(&file, &limits),
        Err(PackageError::TooManyNames { most: 0 })
    );
}

#[test]
fn embedding_replaces_the_manifest_and_leaves_the_recipe_behind() {
    let mut first = manifest("karman:task/task");
    let file = embed(&component(TASK), &first).unwrap();
    first.build = None;
    assert_eq!(read(&file).unwrap().manifest.as_ref(), Some(&first));

    let second = Manifest {
        version: "0.2.0".parse().unwrap(),
        ..first
    };
    let signed = sign(&file, &SecretKey::generate()).unwrap();
    let package = read(&embed(&signed, &second).unwrap()).unwrap();
    assert_eq!(package.manifest, Some(second));
    assert_eq!(package.publisher, None);
}

#[test]
fn embedding_refuses_what_could_not_be_read_back() {
    let task = manifest("karman:task/task");
    assert_eq!(
        embed(&wat::parse_str("(module)").unwrap(), &task),
        Err(PackageError::CoreModule)
    );
    assert!(matches!(
        embed(&component(TASK), &manifest("wasi:http/proxy")),
        Err(PackageError::WorldDiffers { .. })
    ));
    let nameless = Manifest {
        name: String::new(),
        ..task
    };
    assert!(matches!(
        embed(&component(TASK), &nameless),
        Err(PackageError::Manifest(_))
    ));
}

#[test]
fn a_signed_plugin_belongs_to_its_publisher_whatever_its_version() {
    let key = SecretKey::generate();
    let file = embed(&component(TASK), &manifest("karman:task/task")).unwrap();
    let package = read(&sign(&file, &key).unwrap()).unwrap();
    assert_eq!(package.identity().to_string(), format!("{}/hello", key.public()));

    let other = SecretKey::generate();
    let again = sign(&sign(&file, &key).unwrap(), &other).unwrap();
    assert_eq!(verify(&again), Ok(Some(other.public())));
    assert_eq!(again, sign(&file, &other).unwrap());
}

#[test]
fn another_tool_verifies_the_signature_and_the_file_stays_a_component() {
    let key = SecretKey::generate();
    let file = sign(&component(TASK), &key).unwrap();
    let theirs = wasmsign2::PublicKey::from_pem(&key.public().to_pem()).unwrap();
    theirs.verify(&mut &file[..], None).unwrap();
    wasmparser::validate(&file).unwrap();
}

fn signed() -> Vec<u8> {
    let file = embed(
        &component(&import("wasi:cli/stdout@0.2.0")),
        &manifest("karman:task/task"),
    )
    .unwrap();
    sign(&file, &SecretKey::generate()).unwrap()
}

#[test]
fn no_flipped_bit_is_read() {
    let file = signed();
    for at in 0..file.len() {
        for bit in 0..8 {
            let mut changed = file.clone();
            changed[at] ^= 1 << bit;
            assert!(read(&changed).is_err(), "bit {bit} of byte {at}");
        }
    }
}

proptest! {
    #[test]
    fn no_changed_byte_is_read(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let file = signed();
        let mut changed = file.clone();
        let at = at.index(file.len());
        changed[at] = byte;
        prop_assert_eq!(read(&changed).is_ok(), changed == file);
    }

    #[test]
    fn nothing_can_be_added_or_cut(extra in prop::collection::vec(any::<u8>(), 1..20), cut in 1..200_usize) {
        let file = signed();
        prop_assert!(read(&[&file[..], &extra].concat()).is_err());
        prop_assert!(read(&with_section(&file, "note", &extra)).is_err());
        prop_assert!(read(&file[..file.len().saturating_sub(cut)]).is_err());
    }

    #[test]
    fn a_manifest_comes_back_as_it_went_in(
        name in "[a-z][a-z0-9-]{0,30}",
        description in r"[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{0,80}",
        version in (0..100_u64, 0..100_u64, 0..100_u64),
        buckets in prop::collection::vec("[a-z]{1,8}", 0..5),
    ) {
        let manifest = Manifest {
            name,
            description,
            version: semver::Version::new(version.0, version.1, version.2),
            asks: buckets.into_iter().map(karman_types::Grant::KeyValue).collect(),
            build: None,
            ..manifest("karman:task/task")
        };
        let file = embed(&component(TASK), &manifest).unwrap();
        prop_assert_eq!(read(&file).unwrap().manifest, Some(manifest));
    }

    #[test]
    fn no_bytes_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..300), header in any::<bool>()) {
        if header {
            bytes.splice(0..0, *b"\0asm\x0d\0\x01\0");
        }
        let _ = read(&bytes);
        let _ = verify(&bytes);
        let _ = sign(&bytes, &SecretKey::generate());
        let _ = embed(&bytes, &manifest("karman:task/task"));
    }
}
