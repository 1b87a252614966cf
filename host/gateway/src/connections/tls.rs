//! The certificate that is shown. Clients of ACME, the gateway's own among them, write a renewed one into the files of the one before, or
//! lead their links to it: from the next look on it is shown. Connections that are there stay as they are.

use super::acme::{ACME_TLS, Challenges};
use crate::config::TlsConfig;
use blake3::Hash;
use karman_types::TaskError;
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// A certificate and key that do not go together are told of when they are found so this often: they may just be changing.
const TOLD_AFTER: u32 = 2;

/// The certificate that is shown now, and the files that it is from.
pub(super) struct Shown {
    config: TlsConfig,
    acceptor: TlsAcceptor,
    /// What a server of ACME is shown, where the gateway has asked one for its certificate.
    challenges: Option<Challenges>,
    /// What the files said then; nothing where there were none yet.
    said: Option<Hash>,
    /// What they have said since that could not be shown, and how often in a row.
    refused: Option<(Hash, u32)>,
}

/// The files of a certificate and its key, as they are.
struct Files {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Shown {
    /// Reads it.
    ///
    /// # Errors
    /// `invalid`, with the file, when certificate or key do not read or do not belong together.
    pub(super) fn open(config: &TlsConfig) -> Result<Self, TaskError> {
        let files = Files::read(config)?;
        Ok(Self {
            acceptor: acceptor(config, Some(&files), None)?,
            challenges: None,
            said: Some(files.hash()),
            config: config.clone(),
            refused: None,
        })
    }

    /// Shows what a server of ACME looks for, and the certificate that it has signed, once that is there.
    ///
    /// # Errors
    /// `internal` when the library for TLS does not do what it should.
    pub(super) fn awaited(config: &TlsConfig, challenges: &Challenges) -> Result<Self, TaskError> {
        let mut shown = Self {
            acceptor: acceptor(config, None, Some(challenges))?,
            challenges: Some(challenges.clone()),
            said: None,
            config: config.clone(),
            refused: None,
        };
        // One that does not read is told of like any other, and does not keep a good one from being ordered.
        shown.look();
        Ok(shown)
    }

    /// Shows it to whoever connects.
    pub(super) fn acceptor(&self) -> TlsAcceptor {
        self.acceptor.clone()
    }

    /// Takes what the files say now, if that is another certificate; whether it is. What does not read, or whose key is not
    /// there yet, leaves the one before in its place.
    pub(super) fn look(&mut self) -> bool {
        // Who orders it tells how that goes.
        if self.said.is_none() && !self.config.certificate.exists() {
            return false;
        }
        let files = match Files::read(&self.config) {
            Ok(files) => files,
            Err(error) => {
                self.refuse(blake3::hash(&[]), &error);
                return false;
            }
        };
        let says = files.hash();
        if self.said == Some(says) {
            self.refused = None;
            return false;
        }
        match acceptor(&self.config, Some(&files), self.challenges.as_ref()) {
            Ok(acceptor) => {
                tracing::info!(file = %self.config.certificate.display(), "a new certificate is shown");
                (self.acceptor, self.said, self.refused) = (acceptor, Some(says), None);
                true
            }
            Err(error) => {
                self.refuse(says, &error);
                false
            }
        }
    }

    fn refuse(&mut self, says: Hash, error: &TaskError) {
        let before = self.refused.filter(|(what, _)| *what == says);
        let times = before.map_or(1, |(_, times)| times.saturating_add(1));
        self.refused = Some((says, times));
        if times == TOLD_AFTER {
            tracing::error!(%error, "the certificate stays the one before");
        }
    }
}

impl Files {
    fn read(config: &TlsConfig) -> Result<Self, TaskError> {
        let read = |file: &Path| std::fs::read(file).map_err(|error| wrong(file, &error));
        Ok(Self {
            certificate: read(&config.certificate)?,
            key: read(&config.key)?,
        })
    }

    fn hash(&self) -> Hash {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&(self.certificate.len() as u64).to_le_bytes());
        hasher.update(&self.certificate);
        hasher.update(&self.key);
        hasher.finalize()
    }
}

fn wrong(file: &Path, why: &dyn std::fmt::Display) -> TaskError {
    TaskError::invalid(format!("{}: {why}", file.display())).with_field("gateway.tls")
}

/// What callers are shown, who may speak HTTP/2 or HTTP/1.1; and a server of ACME, which speaks nothing of that.
#[derive(Debug)]
struct ToShow {
    certificate: Option<Arc<CertifiedKey>>,
    challenges: Option<Challenges>,
}

impl ResolvesServerCert for ToShow {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let is_challenge = hello.alpn().is_some_and(|protocols| protocols.eq([ACME_TLS]));
        match (&self.challenges, is_challenge) {
            (Some(challenges), true) => challenges.shown_to(&hello),
            _ => self.certificate.clone(),
        }
    }
}

/// Shows the certificate of these files, or none, and the answers to challenges.
fn acceptor(
    config: &TlsConfig,
    files: Option<&Files>,
    challenges: Option<&Challenges>,
) -> Result<TlsAcceptor, TaskError> {
    let provider = Arc::new(ring::default_provider());
    let certificate = files.map(|files| certified(config, files, &provider));
    let to_show = ToShow {
        certificate: certificate.transpose()?.map(Arc::new),
        challenges: challenges.cloned(),
    };
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TaskError::internal(error.to_string()))?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(to_show));
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    if challenges.is_some() {
        server.alpn_protocols.push(ACME_TLS.to_vec());
    }
    Ok(TlsAcceptor::from(Arc::new(server)))
}

fn certified(
    config: &TlsConfig,
    files: &Files,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TaskError> {
    let file = &config.certificate;
    let certificates = CertificateDer::pem_slice_iter(&files.certificate);
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(|error| wrong(file, &error))?;
    if certificates.is_empty() {
        return Err(wrong(file, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(&files.key).map_err(|error| wrong(&config.key, &error))?;
    CertifiedKey::from_der(certificates, key, provider).map_err(|error| wrong(file, &error))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use rustls::{ClientConfig, RootCertStore};
    use tokio_rustls::TlsConnector;

    /// A certificate for localhost that signs itself, and its key, in files of this folder.
    pub(in crate::connections) fn certificate(folder: &Path) -> (TlsConfig, CertificateDer<'static>) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let config = TlsConfig {
            certificate: folder.join("gateway.pem"),
            key: folder.join("gateway.key"),
        };
        std::fs::write(&config.certificate, made.cert.pem()).unwrap();
        std::fs::write(&config.key, made.key_pair.serialize_pem()).unwrap();
        (config, made.cert.der().clone())
    }

    /// Whether somebody who trusts this certificate only is content.
    async fn is_shown(shown: &Shown, trusted: &CertificateDer<'static>) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(trusted.clone()).unwrap();
        let client = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (near, far) = tokio::io::duplex(64 << 10);
        let (connector, acceptor) = (TlsConnector::from(Arc::new(client)), shown.acceptor());
        let name = ServerName::try_from("localhost").unwrap();
        let (connected, _) = tokio::join!(connector.connect(name, near), acceptor.accept(far));
        connected.is_ok()
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_shown_once_its_key_is_there() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (config, first) = certificate(folder.path());
        let (renewed, second) = certificate(other.path());
        let mut shown = Shown::open(&config).unwrap();
        assert!(!shown.look() && is_shown(&shown, &first).await);
        // The files change one after the other, and each may be read half written.
        let text = std::fs::read(&renewed.certificate).unwrap();
        std::fs::write(&config.certificate, &text[..text.len() / 2]).unwrap();
        assert!(!shown.look());
        std::fs::write(&config.certificate, &text).unwrap();
        assert!(!shown.look() && !shown.look());
        assert!(is_shown(&shown, &first).await && !is_shown(&shown, &second).await);
        std::fs::copy(&renewed.key, &config.key).unwrap();
        assert!(shown.look());
        assert!(is_shown(&shown, &second).await && !is_shown(&shown, &first).await);
        // It is taken once; files that go away take nothing with them.
        assert!(!shown.look());
        std::fs::remove_file(&config.key).unwrap();
        assert!(!shown.look() && is_shown(&shown, &second).await);
    }

    #[tokio::test]
    async fn a_certificate_that_is_awaited_is_shown_once_it_is_there() {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (made, trusted) = certificate(other.path());
        let file = folder.path().join("certificate.pem");
        let config = TlsConfig {
            certificate: file.clone(),
            key: file.clone(),
        };
        let challenges = Challenges::default();
        let mut shown = Shown::awaited(&config, &challenges).unwrap();
        assert!(!shown.look() && !is_shown(&shown, &trusted).await);
        // The key and its certificate may be in one file.
        let [key, chain] = [made.key, made.certificate].map(|file| std::fs::read(file).unwrap());
        std::fs::write(&file, [key, chain].concat()).unwrap();
        assert!(shown.look() && is_shown(&shown, &trusted).await);
        let again = Shown::awaited(&config, &challenges).unwrap();
        assert!(is_shown(&again, &trusted).await);
    }

    #[tokio::test]
    async fn links_may_lead_to_a_renewed_certificate() {
        let folders = [(); 3].map(|()| tempfile::tempdir().unwrap());
        let [live, first, second] = &folders;
        let (first, _) = certificate(first.path());
        let (second, trusted) = certificate(second.path());
        let config = TlsConfig {
            certificate: live.path().join("fullchain.pem"),
            key: live.path().join("privkey.pem"),
        };
        let lead = |to: &TlsConfig| {
            for (to, link) in [(&to.certificate, &config.certificate), (&to.key, &config.key)] {
                let _ = std::fs::remove_file(link);
                std::os::unix::fs::symlink(to, link).unwrap();
            }
        };
        lead(&first);
        let mut shown = Shown::open(&config).unwrap();
        lead(&second);
        assert!(shown.look() && is_shown(&shown, &trusted).await);
    }
}
