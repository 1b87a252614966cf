//! Against `wkg`, the client that the Wasm community uses: what one pushes the other pulls, byte for byte. It is no package
//! of Debian's and takes minutes to compile, so these tests wait for who has it:
//! `cargo install wkg --version 0.16.1 --locked`, then `cargo test --package karman-registry --test wkg -- --ignored`.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use bytes::Bytes;
use karman_registry::{Auth, Options, Reference, Registry};
use karman_types::ByteSize;
use std::net::SocketAddr;
use std::path::Path;
use support::{DockerRegistry, plugin};
use tokio::process::Command;

/// Runs `wkg oci VERB` against this registry.
async fn wkg(verb: &str, registry: SocketAddr, arguments: &[&str]) {
    let output = Command::new("wkg")
        .args(["oci", verb, "--insecure", &registry.to_string()])
        .args(arguments)
        .output()
        .await
        .expect("no `wkg` on this machine: run `cargo install wkg --version 0.16.1 --locked`");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "wkg oci {verb}: {said}");
}

fn ours(tag: &str) -> (Registry, Reference) {
    (Registry::new(Options::default()), tag.parse().unwrap())
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[tokio::test]
#[ignore = "needs wkg, see above"]
async fn what_karman_pushes_wkg_pulls() {
    let registry = DockerRegistry::start().await;
    let tag = format!("{}/acme/hello:0.1.0", registry.address);
    let file = plugin(1 << 20);
    let (client, reference) = ours(&tag);
    client
        .push(&reference, file.clone(), &Auth::Anonymous)
        .await
        .unwrap();

    let folder = tempfile::tempdir().unwrap();
    let pulled = folder.path().join("pulled.wasm");
    wkg("pull", registry.address, &["--output", text(&pulled), &tag]).await;
    assert_eq!(Bytes::from(std::fs::read(pulled).unwrap()), file);
}

#[tokio::test]
#[ignore = "needs wkg, see above"]
async fn what_wkg_pushes_karman_pulls() {
    let registry = DockerRegistry::start().await;
    let tag = format!("{}/acme/hello:0.1.0", registry.address);
    let file = plugin(1 << 20);
    let folder = tempfile::tempdir().unwrap();
    let pushed = folder.path().join("pushed.wasm");
    std::fs::write(&pushed, &file).unwrap();
    wkg("push", registry.address, &[&tag, text(&pushed)]).await;

    let (client, reference) = ours(&tag);
    let pulled = client
        .pull(&reference, &Auth::Anonymous, ByteSize::mib(64))
        .await
        .unwrap();
    assert_eq!(pulled.bytes, file);
}
