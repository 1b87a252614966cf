//! Plugins, models, grants, secrets, keys, and what `open` says.
#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]

use karman_store::{Downgrade, ModelInfo, NewPlugin, NodeKeys, OpenError, Store, StoreError, StoreLimits};
use karman_types::{ByteSize, Digest, Grant, World};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

fn store() -> (tempfile::TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::open(dir.path()).unwrap();
    (dir, store)
}

fn grants<const N: usize>(texts: [&str; N]) -> Vec<Grant> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn classify<'a>(version: &str, component: &'a [u8]) -> NewPlugin<'a> {
    NewPlugin {
        identity: "ed25519:7Kq4/classify",
        name: "classify",
        version: version.parse().unwrap(),
        world: World::Task,
        publisher: Some("ed25519:7Kq4"),
        component,
    }
}

fn blobs(store: &Store) -> usize {
    fs::read_dir(store.dir().join("blobs")).unwrap().count()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn an_upgrade_keeps_grants_and_one_way_back() {
    let (dir, store) = store();
    let plugins = store.plugins();
    let id = classify("0.1.0", b"").identity;
    store.grants().allow(id, &grants(["nn:digits-*"])).unwrap();
    let first = plugins
        .install(&classify("0.1.0", b"one"), Downgrade::Refuse)
        .unwrap();
    assert!(first.replaced.is_none() && first.plugin.previous.is_none());
    for (version, component, files) in [("0.2.0", b"two", 2), ("0.3.0", b"3rd", 2), ("0.3.0", b"3rd", 2)] {
        let now = plugins
            .install(&classify(version, component), Downgrade::Refuse)
            .unwrap();
        assert_eq!(blobs(&store), files);
        assert!(now.plugin.granted.allows(&grants(["nn:digits-m"])[0]));
    }
    let error = plugins
        .install(&classify("0.2.0", b"two"), Downgrade::Refuse)
        .unwrap_err();
    assert!(error.to_string().contains("0.2.0 is older than 0.3.0"), "{error}");
    drop(store);

    let store = Store::open(dir.path()).unwrap();
    let plugin = store.plugins().list().unwrap().remove(0);
    assert_eq!(plugin.previous.as_ref().unwrap().digest, Digest::of(b"two"));
    assert_eq!(store.plugins().component(id).unwrap(), "3rd");
    let back = store
        .plugins()
        .install(&classify("0.2.0", b"two"), Downgrade::Allow)
        .unwrap();
    assert_eq!(back.replaced, Some(plugin));
    store.plugins().remove(id).unwrap();
    assert_eq!(blobs(&store), 0);
    assert!(!store.grants().get(id).unwrap().is_empty());
    assert!(matches!(
        store.plugins().component(id),
        Err(StoreError::Unknown { .. })
    ));
}

#[test]
fn visiting_models_go_when_room_is_needed_least_lately_used_first() {
    let dir = tempfile::tempdir().unwrap();
    let limits = StoreLimits {
        visiting: ByteSize(10),
        ..StoreLimits::default()
    };
    let store = Store::open_with(dir.path(), limits).unwrap();
    let visiting = store.visiting();
    let first = visiting.take_in("model/one", b"first").unwrap();
    let second = visiting.take_in("model/two", b"secnd").unwrap();
    // Used again, so the second goes.
    visiting.used(&first.digest).unwrap();
    let third = visiting.take_in("model/three", b"thrd").unwrap();
    assert!(visiting.get(&second.digest).unwrap().is_none());
    assert!(store.blobs().read(&second.digest).is_err());
    assert_eq!(visiting.list().unwrap().len(), 2);
    for (digest, bytes) in [(first.digest, "first"), (third.digest, "thrd")] {
        assert_eq!(store.blobs().read(&digest).unwrap(), bytes);
    }
    // A model of the operator's with the same file stays when it leaves as a visitor.
    store
        .models()
        .add("mine", b"first", None, ModelInfo::new())
        .unwrap();
    visiting.take_in("model/four", b"0123456789").unwrap();
    assert_eq!(visiting.list().unwrap().len(), 1);
    assert_eq!(store.blobs().read(&first.digest).unwrap(), "first");
    let error = visiting.take_in("model/five", b"0123456789A").unwrap_err();
    assert!(matches!(error, StoreError::Limit { .. }), "{error}");
    let other = visiting.take_in("model/other", b"0123456789").unwrap();
    assert_eq!(other.names, ["model/four", "model/other"]);
}

#[test]
fn a_model_is_its_bytes_and_what_is_known_of_it() {
    let (_dir, store) = store();
    let models = store.models();
    let info = ModelInfo::from([
        ("accuracy".to_owned(), 0.9871.into()),
        ("shape".to_owned(), vec![1, 28, 28].into()),
    ]);
    let model = models
        .add("digits-m", b"onnx", Some(Digest::of(b"onnx")), info)
        .unwrap();
    assert_eq!(models.get("digits-m").unwrap().as_ref(), Some(&model));
    assert_eq!(store.blobs().read(&model.digest).unwrap(), "onnx");
    models
        .add("digits-copy", b"onnx", None, ModelInfo::new())
        .unwrap();
    assert_eq!(models.list().unwrap().len(), 2);
    models.add("digits-m", b"better", None, ModelInfo::new()).unwrap();
    assert_eq!(blobs(&store), 2);
    models.remove("digits-copy").unwrap();
    assert_eq!(blobs(&store), 1);
    let error = models
        .add("digits-m", b"wrong", Some(model.digest), ModelInfo::new())
        .unwrap_err();
    assert!(matches!(error, StoreError::Mismatch { .. }), "{error}");
    for name in ["digits *", "größe", "q?w", "a,b", "", &"a".repeat(129)] {
        let error = models.add(name, b"x", None, ModelInfo::new()).unwrap_err();
        assert!(matches!(error, StoreError::ModelName { .. }), "{error}");
    }
}

#[test]
fn a_file_that_the_disk_changed_is_not_handed_out_and_is_mended_by_adding_it_again() {
    let (_dir, store) = store();
    let model = store
        .models()
        .add("m", b"weights", None, ModelInfo::new())
        .unwrap();
    let path = store.blobs().path(&model.digest).unwrap();
    fs::write(&path, b"wEights").unwrap();
    assert!(matches!(
        store.blobs().read(&model.digest),
        Err(StoreError::CorruptBlob { .. })
    ));
    assert!(matches!(
        store.blobs().path(&model.digest),
        Err(StoreError::CorruptBlob { .. })
    ));
    store
        .models()
        .add("m", b"weights", None, ModelInfo::new())
        .unwrap();
    assert_eq!(store.blobs().read(&model.digest).unwrap(), "weights");
    fs::remove_file(&path).unwrap();
    assert!(matches!(
        store.blobs().read(&model.digest),
        Err(StoreError::MissingBlob { .. })
    ));
}

#[test]
fn revoking_takes_what_it_covers_and_never_only_seems_to() {
    let (_dir, store) = store();
    let book = store.grants();
    book.allow("p", &grants(["http:a.org", "http:a.org:8443", "kv:road"]))
        .unwrap();
    let left = book.revoke("p", &grants(["http:a.org"])).unwrap();
    assert_eq!(
        left.iter().collect::<Vec<_>>(),
        grants(["kv:road"]).iter().collect::<Vec<_>>()
    );
    book.allow("p", &grants(["kv:*"])).unwrap();
    let error = book.revoke("p", &grants(["kv:road"])).unwrap_err();
    assert!(
        error.to_string().contains("still be allowed `kv:road` by `kv:*`"),
        "{error}"
    );
    assert_eq!(book.list().unwrap()[0].1.iter().count(), 2);
    assert!(book.revoke("p", &grants(["kv:*"])).unwrap().is_empty());
    assert!(book.list().unwrap().is_empty());
}

#[test]
fn a_secret_is_on_the_disk_only_encrypted() {
    let (dir, store) = store();
    let secrets = store.secrets();
    secrets.set("token", b"hunter2-hunter2").unwrap();
    let value = secrets.get("token").unwrap().unwrap();
    assert_eq!(value.expose_str(), Some("hunter2-hunter2"));
    assert!(!format!("{value:?} {store:?}").contains("hunter2"));
    assert_eq!(secrets.list().unwrap(), ["token"]);
    drop(store);
    let on_disk = fs::read(dir.path().join("state.redb")).unwrap();
    assert!(!on_disk.windows(7).any(|window| window == b"hunter2"));

    let store = Store::open(dir.path()).unwrap();
    let key = dir.path().join("keys/secrets.key");
    let saved = fs::read(&key).unwrap();
    fs::write(&key, [7; 32]).unwrap();
    assert!(matches!(
        store.secrets().get("token"),
        Err(StoreError::Sealed { .. })
    ));
    fs::remove_file(&key).unwrap();
    assert!(matches!(
        store.secrets().set("other", b"x"),
        Err(StoreError::Key { .. })
    ));
    fs::write(&key, saved).unwrap();
    let error = store.secrets().get("token").unwrap_err().to_string();
    assert!(error.contains("can be read by other users"), "{error}");
    fs::set_permissions(&key, Permissions::from_mode(0o600)).unwrap();
    assert!(store.secrets().get("token").unwrap().is_some());
    assert!(store.secrets().remove("token").unwrap());
}

#[test]
fn a_node_stays_who_it_is() {
    let (dir, store) = store();
    let secret = || *NodeKeys::open(dir.path()).unwrap().mac();
    let (id, public, secret_then) = (store.node_key().id(), store.node_key().public(), secret());
    assert_ne!(&secret_then, store.node_key().seed());
    drop(store);
    let store = Store::open(dir.path()).unwrap();
    assert_eq!((store.node_key().id(), secret()), (id, secret_then));
    let signature = ed25519_compact::Signature::new(store.node_key().sign(b"envelope"));
    assert!(
        ed25519_compact::PublicKey::new(public)
            .verify(b"envelope", &signature)
            .is_ok()
    );
    for folder in ["", "blobs", "keys"] {
        assert_eq!(mode(&dir.path().join(folder)), 0o700, "{folder}");
    }
    for file in ["keys/node.key", "keys/mac.key"] {
        assert_eq!(mode(&dir.path().join(file)), 0o600, "{file}");
    }
}

#[test]
fn what_is_no_store_is_said_to_be_none() {
    let (dir, store) = store();
    store.bucket("b").unwrap().set("k", b"v").unwrap();
    let error = Store::open(dir.path()).unwrap_err().to_string();
    assert!(
        error.contains(&format!("in use by process {}", std::process::id())),
        "{error}"
    );
    store.held_by("karman fed run k3").unwrap();
    let error = Store::open(dir.path()).unwrap_err();
    let holder = format!("process {}", std::process::id());
    assert!(
        matches!(&error, OpenError::Locked { holder: by, command, .. }
            if *by == holder && command.as_deref() == Some("karman fed run k3")),
        "{error:?}"
    );
    drop(store);
    let state = dir.path().join("state.redb");
    let good = fs::read(&state).unwrap();
    for damaged in [&b"not a database"[..], b"", &good[..200], &good[..good.len() / 2]] {
        fs::write(&state, damaged).unwrap();
        let error = Store::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, OpenError::Corrupt { .. }),
            "{} bytes: {error}",
            damaged.len()
        );
    }
    fs::write(&state, &good).unwrap();
    fs::write(dir.path().join("keys/node.key"), b"short").unwrap();
    let error = Store::open(dir.path()).unwrap_err().to_string();
    assert!(error.contains("does not have 32 bytes"), "{error}");
}
