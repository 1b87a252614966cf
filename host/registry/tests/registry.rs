//! Against Debian's `docker-registry`.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]

mod support;

use bytes::Bytes;
use karman_package::{Package, ReadLimits};
use karman_registry::{Auth, Options, Reference, Registry, RegistryError};
use karman_types::{ByteSize, ErrorKind};
use oci_client::client::{Client, ClientConfig, ClientProtocol, Config, ImageLayer};
use oci_client::secrets::RegistryAuth;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::{DockerRegistry, Proxy, plugin};

const MOST: ByteSize = ByteSize::mib(64);

fn ours() -> Registry {
    Registry::new(Options::default())
}

/// The client that others use.
fn theirs() -> Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Client::try_from(ClientConfig {
        protocol: ClientProtocol::Http,
        ..ClientConfig::default()
    })
    .unwrap()
}

fn reference(address: SocketAddr, rest: &str) -> Reference {
    format!("{address}/{rest}").parse().unwrap()
}

async fn pull(reference: &Reference) -> Result<Bytes, RegistryError> {
    ours()
        .pull(reference, &Auth::Anonymous, MOST)
        .await
        .map(|pulled| pulled.bytes)
}

#[tokio::test]
async fn what_is_pushed_is_pulled_byte_by_byte() {
    let registry = DockerRegistry::start().await;
    let tag = reference(registry.address, "acme/hello:0.1.0");
    let file = plugin(9 << 20);
    let digest = ours().push(&tag, file.clone(), &Auth::Anonymous).await.unwrap();
    let pulled = ours().pull(&tag, &Auth::Anonymous, MOST).await.unwrap();
    assert_eq!(pulled.bytes, file);
    assert_eq!(pulled.digest, digest);
    Package::read(&pulled.bytes, &ReadLimits::default()).unwrap();

    let pinned = reference(registry.address, &format!("acme/hello@{digest}"));
    assert_eq!(pull(&pinned).await.unwrap(), file);
    assert_eq!(
        ours().push(&tag, file.clone(), &Auth::Anonymous).await.unwrap(),
        digest
    );
    let error = ours().push(&pinned, file, &Auth::Anonymous).await.unwrap_err();
    assert!(
        matches!(&error, RegistryError::Reference(error) if error.field == "digest"),
        "{error}"
    );
}

#[tokio::test]
async fn the_artifact_is_laid_out_as_others_expect() {
    let registry = DockerRegistry::start().await;
    let tag = reference(registry.address, "acme/hello:0.1.0");
    let file = plugin(0);
    ours().push(&tag, file.clone(), &Auth::Anonymous).await.unwrap();

    let (manifest, _, config) = theirs()
        .pull_manifest_and_config(&tag.to_string().parse().unwrap(), &RegistryAuth::Anonymous)
        .await
        .unwrap();
    assert_eq!(
        manifest.media_type.as_deref(),
        Some("application/vnd.oci.image.manifest.v1+json")
    );
    assert_eq!(manifest.config.media_type, "application/vnd.wasm.config.v0+json");
    assert_eq!(manifest.layers.len(), 1);
    assert_eq!(manifest.layers[0].media_type, "application/wasm");
    assert_eq!(manifest.layers[0].size, file.len() as i64);
    let annotations = manifest.annotations.unwrap();
    for (key, value) in [
        ("title", "hello"),
        ("version", "0.1.0"),
        ("description", "Greets."),
        ("licenses", "Apache-2.0"),
        ("authors", "Ada, Grace"),
    ] {
        assert_eq!(annotations[&format!("org.opencontainers.image.{key}")], value);
    }
    let config: serde_json::Value = serde_json::from_str(&config).unwrap();
    assert_eq!(config["architecture"], "wasm");
    assert_eq!(config["os"], "wasip2");
    assert_eq!(config["layerDigests"][0], manifest.layers[0].digest);
    assert_eq!(config["component"]["imports"][0], "wasi:cli/stdout@0.2.0");
    assert_eq!(config["component"]["exports"][0], "karman:task/handler@0.1.0");
}

#[tokio::test]
async fn an_older_layer_is_read_and_two_layers_are_refused() {
    let registry = DockerRegistry::start().await;
    let layer = |text: &'static str, media_type: &str| ImageLayer::new(text, media_type.into(), None);
    let push = async |tag: &str, layers: Vec<ImageLayer>| {
        let tag = reference(registry.address, tag);
        let config = Config::new("{}", "application/vnd.wasm.config.v1+json".into(), None);
        let oci = tag.to_string().parse().unwrap();
        theirs()
            .push(&oci, &layers, config, &RegistryAuth::Anonymous, None)
            .await
            .unwrap();
        tag
    };
    let old = push(
        "old:1",
        vec![layer("old", "application/vnd.wasm.content.layer.v1+wasm")],
    )
    .await;
    assert_eq!(pull(&old).await.unwrap(), "old");

    let two = vec![layer("one", "application/wasm"), layer("two", "application/wasm")];
    let error = pull(&push("two:1", two).await).await.unwrap_err();
    assert!(matches!(error, RegistryError::Layout { .. }), "{error}");
    assert!(error.to_string().contains("2 layers"), "{error}");
}

#[tokio::test]
async fn what_is_no_plugin_is_not_pushed() {
    let tag = "localhost:1/a:b".parse().unwrap();
    let module = wat::parse_str("(module)").unwrap();
    let error = ours()
        .push(&tag, module.into(), &Auth::Anonymous)
        .await
        .unwrap_err();
    assert!(matches!(error, RegistryError::Package(_)), "{error}");
}

#[tokio::test]
async fn a_plugin_over_the_limit_is_refused_before_it_is_downloaded() {
    let registry = DockerRegistry::start().await;
    let file = plugin(1 << 20);
    let tag = reference(registry.address, "big:1");
    ours().push(&tag, file.clone(), &Auth::Anonymous).await.unwrap();

    let proxy = Proxy::start(registry, u64::MAX).await;
    let tag = reference(proxy.address, "big:1");
    let error = ours()
        .pull(&tag, &Auth::Anonymous, ByteSize::kib(64))
        .await
        .unwrap_err();
    assert!(
        matches!(error, RegistryError::TooLarge { bytes, .. } if bytes == file.len() as u64),
        "{error}"
    );
    assert_eq!(error.kind(), ErrorKind::Limit);
    assert!(proxy.passed.load(Ordering::SeqCst) < 16 << 10);
}

#[tokio::test]
async fn a_missing_tag_is_not_found() {
    let registry = DockerRegistry::start().await;
    for missing in ["acme/hello:0.9.9", "nobody/nothing:1"] {
        let error = pull(&reference(registry.address, missing)).await.unwrap_err();
        assert!(matches!(error, RegistryError::NotFound { .. }), "{error}");
    }
}

#[tokio::test]
async fn a_locked_registry_opens_to_the_right_password_only() {
    let registry = DockerRegistry::start_locked().await;
    let tag = reference(registry.address, "acme/hello:0.1.0");
    let login = |password: &str| Auth::Basic {
        user: "ada".into(),
        password: password.into(),
    };
    for auth in [Auth::Anonymous, login("wrong")] {
        let error = ours().push(&tag, plugin(0), &auth).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
        let error = ours().pull(&tag, &auth, MOST).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    }
    let file = plugin(0);
    ours().push(&tag, file.clone(), &login("U*U")).await.unwrap();
    assert_eq!(ours().pull(&tag, &login("U*U"), MOST).await.unwrap().bytes, file);
}

#[tokio::test]
async fn an_unreachable_registry_is_tried_again_and_given_up() {
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let start = Instant::now();
    let error = pull(&reference(address, "a:b")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    // Two waits between three attempts.
    assert!(start.elapsed() >= Duration::from_millis(750));
    let error = ours()
        .push(&reference(address, "a:b"), plugin(0), &Auth::Anonymous)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}

#[tokio::test]
async fn a_silent_registry_is_given_up_in_time() {
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tag = reference(silent.local_addr().unwrap(), "a:b");
    for (options, kind) in [
        (
            Options {
                silence: Duration::from_millis(100),
                attempts: 1,
                ..Options::default()
            },
            ErrorKind::Unavailable,
        ),
        (
            Options {
                total: Duration::from_millis(100),
                ..Options::default()
            },
            ErrorKind::Deadline,
        ),
    ] {
        let error = Registry::new(options)
            .pull(&tag, &Auth::Anonymous, MOST)
            .await
            .unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}

#[tokio::test]
async fn a_registry_killed_within_a_pull_leaves_an_error_and_no_bytes() {
    let registry = DockerRegistry::start().await;
    let tag = reference(registry.address, "big:1");
    ours()
        .push(&tag, plugin(8 << 20), &Auth::Anonymous)
        .await
        .unwrap();

    let proxy = Proxy::start(registry, 2 << 20).await;
    let error = pull(&reference(proxy.address, "big:1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(proxy.passed.load(Ordering::SeqCst) > 1 << 20);
}
