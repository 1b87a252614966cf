//! The CNCF Wasm OCI artifact layout: how a plugin is described, and which descriptions are taken.

use crate::RegistryError;
use crate::reference::is_digest;
use karman_package::Package;
use karman_types::ByteSize;
use oci_client::annotations as key;
use oci_client::manifest::{OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use serde::Serialize;
use sha2::Digest as _;
use std::collections::BTreeMap;

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const LAYER: &str = "application/wasm";

/// What tools wrote before the layout was agreed on; read, never written.
const OLDER_LAYERS: [&str; 3] = [
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
];

/// The configuration of an artifact.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Config<'a> {
    /// Always the same, so that the same plugin is the same artifact whenever it is pushed.
    created: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    author: Option<String>,
    architecture: &'static str,
    os: &'static str,
    layer_digests: [&'a str; 1],
    component: Component<'a>,
}

#[derive(Serialize)]
struct Component<'a> {
    exports: &'a [String],
    imports: &'a [String],
    target: Option<&'a str>,
}

/// An artifact, ready to be pushed. Equal plugins give equal bytes.
pub(crate) struct Artifact {
    pub(crate) layer_digest: String,
    pub(crate) config: Vec<u8>,
    pub(crate) config_digest: String,
    pub(crate) manifest: Vec<u8>,
    pub(crate) manifest_digest: String,
}

impl Artifact {
    pub(crate) fn describe(file: &[u8], package: &Package) -> Self {
        let layer_digest = sha256(file);
        let author = package
            .manifest
            .as_ref()
            .filter(|manifest| !manifest.authors.is_empty());
        let config = to_json(&Config {
            created: "1970-01-01T00:00:00Z",
            author: author.map(|manifest| manifest.authors.join(", ")),
            architecture: "wasm",
            os: "wasip2",
            layer_digests: [&layer_digest],
            component: Component {
                exports: &package.exports,
                imports: &package.imports,
                target: None,
            },
        });
        let config_digest = sha256(&config);
        let descriptor = |media_type: &str, digest: &str, bytes: &[u8]| OciDescriptor {
            media_type: media_type.into(),
            digest: digest.into(),
            size: i64::try_from(bytes.len()).unwrap_or(i64::MAX),
            ..OciDescriptor::default()
        };
        let manifest = to_json(&OciImageManifest {
            media_type: Some(OCI_IMAGE_MEDIA_TYPE.into()),
            config: descriptor(CONFIG, &config_digest, &config),
            layers: vec![descriptor(LAYER, &layer_digest, file)],
            annotations: annotations(package),
            ..OciImageManifest::default()
        });
        Self {
            manifest_digest: sha256(&manifest),
            layer_digest,
            config,
            config_digest,
            manifest,
        }
    }
}

/// The standard annotations, as far as the plugin's manifest has them.
fn annotations(package: &Package) -> Option<BTreeMap<String, String>> {
    let manifest = package.manifest.as_ref()?;
    let all = [
        (key::ORG_OPENCONTAINERS_IMAGE_TITLE, manifest.name.clone()),
        (
            key::ORG_OPENCONTAINERS_IMAGE_VERSION,
            manifest.version.to_string(),
        ),
        (
            key::ORG_OPENCONTAINERS_IMAGE_DESCRIPTION,
            manifest.description.clone(),
        ),
        (key::ORG_OPENCONTAINERS_IMAGE_LICENSES, manifest.license.clone()),
        (key::ORG_OPENCONTAINERS_IMAGE_AUTHORS, manifest.authors.join(", ")),
    ];
    let said = all.into_iter().filter(|(_, text)| !text.is_empty());
    Some(said.map(|(key, text)| (key.to_owned(), text)).collect())
}

/// The one layer of an artifact: its digest and size, judged before anything of it is downloaded.
#[derive(Debug)]
pub(crate) struct Layer {
    pub(crate) digest: String,
    pub(crate) size: u64,
}

impl Layer {
    pub(crate) fn read(reference: &str, manifest: &[u8], most: ByteSize) -> Result<Self, RegistryError> {
        let layout = |problem: String| RegistryError::Layout {
            reference: reference.into(),
            problem,
        };
        let manifest: OciImageManifest = serde_json::from_slice(manifest).map_err(|error| {
            layout(format!(
                "its manifest does not read as one of a single artifact: {error}"
            ))
        })?;
        let [layer] = &manifest.layers[..] else {
            return Err(layout(format!(
                "it has {} layers; 1 is right",
                manifest.layers.len()
            )));
        };
        if layer.media_type != LAYER && !OLDER_LAYERS.contains(&layer.media_type.as_str()) {
            let found: String = layer.media_type.chars().take(100).collect();
            return Err(layout(format!(
                "its layer is {}, not {LAYER}",
                found.escape_debug()
            )));
        }
        if !is_digest(&layer.digest) {
            return Err(layout("the digest of its layer is not a SHA-256".into()));
        }
        let size = u64::try_from(layer.size)
            .map_err(|_| layout(format!("the size of its layer is {}", layer.size)))?;
        if size > most.0 {
            return Err(RegistryError::TooLarge {
                reference: reference.into(),
                bytes: size,
                most: most.0,
            });
        }
        Ok(Self {
            digest: layer.digest.clone(),
            size,
        })
    }
}

fn to_json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("these types have only string keys")
}

fn sha256(bytes: &[u8]) -> String {
    let digest = sha2::Sha256::digest(bytes);
    digest
        .iter()
        .fold("sha256:".into(), |text: String, byte| format!("{text}{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(layers: &str) -> String {
        let digest = format!("sha256:{}", "00".repeat(32));
        format!(
            r#"{{"schemaVersion": 2, "config": {{"mediaType": "{CONFIG}", "digest": "{digest}", "size": 2}},
                "layers": [{layers}]}}"#
        )
        .replace("DIGEST", &digest)
    }

    fn layer(media_type: &str, size: &str) -> String {
        format!(r#"{{"mediaType": "{media_type}", "digest": "DIGEST", "size": {size}}}"#)
    }

    fn read(layers: &str) -> Result<Layer, RegistryError> {
        Layer::read("a.b/c:d", manifest(layers).as_bytes(), ByteSize(10))
    }

    #[test]
    fn one_wasm_layer_is_taken_by_its_present_and_former_names() {
        for media_type in [LAYER, OLDER_LAYERS[0], OLDER_LAYERS[1], OLDER_LAYERS[2]] {
            assert_eq!(read(&layer(media_type, "10")).unwrap().size, 10);
        }
    }

    #[test]
    fn everything_else_is_refused_with_its_reason() {
        let (one, many) = (layer(LAYER, "1"), layer(LAYER, "11"));
        assert!(matches!(
            read(&many),
            Err(RegistryError::TooLarge {
                bytes: 11,
                most: 10,
                ..
            })
        ));
        for (layers, says) in [
            (String::new(), "0 layers"),
            (format!("{one},{one}"), "2 layers"),
            (
                layer("application/vnd.oci.image.layer.v1.tar+gzip", "1"),
                "tar+gzip",
            ),
            (layer(LAYER, "-1"), "-1"),
            (one.replace("DIGEST", "sha512:00"), "SHA-256"),
            ("{}".into(), "does not read"),
        ] {
            let error = read(&layers).unwrap_err();
            assert!(matches!(error, RegistryError::Layout { .. }), "{error}");
            assert!(error.to_string().contains(says), "{error}");
        }
    }
}
