//! Signing, nodes that take signed plugins only, and registries over TLS; the rest of registries is tested where their code is
//! (`host/registry/tests`).

use crate::support::{Home, Ran, Registry, guest};

fn signed(home: &Home) -> (std::path::PathBuf, String) {
    let file = home.path().join("signed.wasm");
    std::fs::copy(guest("tiny"), &file).unwrap();
    home.run(["sign", "--new-key", "publisher.pem"]).ok();
    home.run(["sign", "signed.wasm", "--key", "publisher.pem"]).ok();
    let line = home.run(["verify", "signed.wasm", "--json"]).ok().out();
    let key = line
        .split('"')
        .find(|part| part.starts_with("ed25519:"))
        .unwrap_or_else(|| panic!("{line}"));
    (file, key.to_owned())
}

#[test]
fn a_signature_holds_until_a_byte_changes() {
    let home = Home::new();
    let (file, _) = signed(&home);
    home.run(["run", "signed.wasm", "-"]).ok();
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let ran = home.run(["verify", "signed.wasm"]);
    assert!(matches!(ran.code, 2 | 3), "{ran:?}");
    let ran = home.run(["run", "signed.wasm", "-"]);
    assert!(matches!(ran.code, 2 | 3), "{ran:?}");
}

#[test]
fn a_node_that_wants_signatures_takes_only_those_it_trusts() {
    let home = Home::new();
    let (file, key) = signed(&home);
    let tiny = guest("tiny");
    std::fs::create_dir_all(home.path().join("config/karman")).unwrap();
    let config = home.path().join("config/karman/node.toml");
    std::fs::write(
        &config,
        format!("signed-only = true\ntrusted-keys = [\"{key}\"]\n"),
    )
    .unwrap();
    home.run(["run", file.to_str().unwrap(), "-"]).ok();
    home.run(["run", tiny.to_str().unwrap(), "-"])
        .fails(3, "not signed");
    std::fs::write(&config, "signed-only = true\n").unwrap();
    home.run(["run", file.to_str().unwrap(), "-"])
        .fails(3, "not among the keys");
}

#[test]
fn a_registry_over_tls_is_believed_by_its_certificate_only() {
    let home = Home::new();
    let registry = Registry::start_with_tls();
    let tiny = guest("tiny");
    let reference = format!("{}/acme/tiny:0.1.0", registry.address);
    let push = ["push", tiny.to_str().unwrap(), &reference];
    home.run(push).fails(4, "certificate");

    let trusting = |arguments: &[&str]| {
        let mut command = home.command(arguments);
        command.env("SSL_CERT_FILE", registry.certificate());
        Ran::of(command.output().unwrap())
    };
    trusting(&push).ok();
    trusting(&["pull", &reference, "-o", "pulled.wasm"]).ok();
    let pulled = std::fs::read(home.path().join("pulled.wasm")).unwrap();
    assert_eq!(pulled, std::fs::read(tiny).unwrap());
}
