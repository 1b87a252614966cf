//! Signing, and nodes that take signed plugins only. Registries are tested where their code is (`host/registry/tests`).

use crate::support::{Home, guest};

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
