use crate::layout::{Artifact, Layer};
use crate::{Auth, Reference, ReferenceError, RegistryError};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use http::HeaderValue;
use karman_package::{Package, ReadLimits};
use karman_types::ByteSize;
use oci_client::client::{Client, ClientConfig, ClientProtocol};
use oci_client::manifest::OCI_IMAGE_MEDIA_TYPE;
use oci_client::secrets::RegistryAuth;
use std::time::Duration;

/// The options of a registry client.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Options {
    /// Plain HTTP with every registry. Off by default; with registries on this machine it is plain HTTP anyway.
    pub insecure: bool,
    /// How long a connection may take to open. 10 s by default.
    pub connect: Duration,
    /// How long a registry may be silent. 30 s by default.
    pub silence: Duration,
    /// How long a push or pull may take in all. 10 min by default.
    pub total: Duration,
    /// How often a push or pull is tried while the registry cannot be reached. 3 by default; the waits between grow
    /// from 250 ms.
    pub attempts: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            insecure: false,
            connect: Duration::from_secs(10),
            silence: Duration::from_secs(30),
            total: Duration::from_secs(600),
            attempts: 3,
        }
    }
}

/// The way to every registry. Cheap; one per process is enough.
#[derive(Clone, Debug)]
pub struct Registry {
    options: Options,
}

/// The result of a pull.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pulled {
    /// The plugin's file; its digest is the one that the registry described.
    pub bytes: Bytes,
    /// The digest of the description, `sha256:…`: what to pin in a reference.
    pub digest: String,
}

impl Registry {
    /// With these options. Installs `ring` as the process's provider of cryptography where there is none.
    pub fn new(options: Options) -> Self {
        // An error says that there is one already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Self { options }
    }

    /// Pushes a plugin's file and gives the digest of its description, `sha256:…`. The same file pushed twice is the same
    /// artifact; a layer that the registry has already is not sent again.
    ///
    /// # Errors
    /// The bytes are no plugin, the reference pins a digest, or one of the registry's own.
    pub async fn push(
        &self,
        reference: &Reference,
        file: Bytes,
        auth: &Auth,
    ) -> Result<String, RegistryError> {
        if reference.oci().digest().is_some() {
            let text = reference.to_string();
            return Err(ReferenceError::new(&text, "digest", "cannot be chosen; push to a tag").into());
        }
        let limits = ReadLimits {
            bytes: usize::MAX,
            ..ReadLimits::default()
        };
        let package = Package::read(&file, &limits)?;
        let artifact = Artifact::describe(&file, &package);
        let auth = auth.resolve(reference.registry())?;
        self.bounded(reference, async || {
            self.push_once(reference, &file, &artifact, &auth).await
        })
        .await?;
        Ok(artifact.manifest_digest)
    }

    /// Pulls a plugin's file into memory, `most` bytes of it at most. A description that says more is refused before the
    /// layer is asked for. The caller gets all of the file, with the right digest, or an error.
    ///
    /// # Errors
    /// One case of [`RegistryError`] for each way to fail.
    pub async fn pull(
        &self,
        reference: &Reference,
        auth: &Auth,
        most: ByteSize,
    ) -> Result<Pulled, RegistryError> {
        let auth = auth.resolve(reference.registry())?;
        self.bounded(reference, async || self.pull_once(reference, &auth, most).await)
            .await
    }

    async fn push_once(
        &self,
        reference: &Reference,
        file: &Bytes,
        artifact: &Artifact,
        auth: &RegistryAuth,
    ) -> Result<(), RegistryError> {
        let oci = reference.oci();
        let client = self.client(reference)?;
        client.store_auth_if_needed(oci.resolve_registry(), auth).await;
        let push = async {
            if !client.blob_exists(oci, &artifact.layer_digest).await? {
                client
                    .push_blob(oci, file.clone(), &artifact.layer_digest)
                    .await?;
            }
            let config = Bytes::copy_from_slice(&artifact.config);
            client.push_blob(oci, config, &artifact.config_digest).await?;
            let media_type = HeaderValue::from_static(OCI_IMAGE_MEDIA_TYPE);
            client
                .push_manifest_raw(oci, artifact.manifest.clone(), media_type)
                .await
        };
        match push.await {
            Ok(_) => Ok(()),
            Err(error) => Err(RegistryError::of(&reference.to_string(), error)),
        }
    }

    async fn pull_once(
        &self,
        reference: &Reference,
        auth: &RegistryAuth,
        most: ByteSize,
    ) -> Result<Pulled, RegistryError> {
        let name = reference.to_string();
        let client = self.client(reference)?;
        let (manifest, digest) = client
            .pull_manifest_raw(reference.oci(), auth, &[OCI_IMAGE_MEDIA_TYPE])
            .await
            .map_err(|error| RegistryError::of(&name, error))?;
        let layer = Layer::read(&name, &manifest, most)?;
        // By digest alone: a descriptor may name other hosts to fetch from, which are none of ours.
        let mut stream = client
            .pull_blob_stream(reference.oci(), layer.digest.as_str())
            .await
            .map_err(|error| RegistryError::of(&name, error))?;
        let wrong_length = |bytes: u64| RegistryError::Corrupt {
            reference: name.clone(),
            message: format!(
                "the layer has {bytes} bytes or more where {} are described",
                layer.size
            ),
        };
        let mut bytes = BytesMut::new();
        while let Some(part) = stream.next().await {
            let part = part.map_err(|error| RegistryError::of_stream(&name, &error))?;
            let length = (bytes.len() + part.len()) as u64;
            if length > layer.size {
                return Err(wrong_length(length));
            }
            bytes.extend_from_slice(&part);
        }
        if bytes.len() as u64 != layer.size {
            return Err(wrong_length(bytes.len() as u64));
        }
        Ok(Pulled {
            bytes: bytes.freeze(),
            digest,
        })
    }

    /// Tries again while the registry cannot be reached, as often and as long as the options allow.
    async fn bounded<T>(
        &self,
        reference: &Reference,
        once: impl AsyncFn() -> Result<T, RegistryError>,
    ) -> Result<T, RegistryError> {
        let tries = async {
            let (mut attempt, mut wait) = (1, Duration::from_millis(250));
            loop {
                match once().await {
                    Err(RegistryError::Unreachable { message, .. }) if attempt < self.options.attempts => {
                        tracing::warn!(%reference, attempt, message, "registry not reached, trying again");
                        tokio::time::sleep(wait).await;
                        attempt += 1;
                        wait *= 2;
                    }
                    done => return done,
                }
            }
        };
        match tokio::time::timeout(self.options.total, tries).await {
            Ok(done) => done,
            Err(_) => Err(RegistryError::Deadline {
                reference: reference.to_string(),
                limit: self.options.total,
            }),
        }
    }

    fn client(&self, reference: &Reference) -> Result<Client, RegistryError> {
        let plain = self.options.insecure || reference.is_local();
        let config = ClientConfig {
            protocol: if plain {
                ClientProtocol::Http
            } else {
                ClientProtocol::Https
            },
            connect_timeout: Some(self.options.connect),
            read_timeout: Some(self.options.silence),
            user_agent: concat!("karman/", env!("CARGO_PKG_VERSION")),
            ..ClientConfig::default()
        };
        Client::try_from(config).map_err(|error| RegistryError::of(&reference.to_string(), error))
    }
}
