//! One certificate for every server of the study but Karman's, whose nodes bring their own.

use anyhow::{Context, Result};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// For whom the certificate stands.
pub(super) const NAME: &str = "localhost";

pub(super) fn certificate(folder: &Path) -> PathBuf {
    folder.join("certificate.pem")
}

pub(super) fn key(folder: &Path) -> PathBuf {
    folder.join("key.pem")
}

pub(super) fn make(folder: &Path) -> Result<()> {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
    fs::write(certificate(folder), made.cert.pem())?;
    Ok(fs::write(key(folder), made.key_pair.serialize_pem())?)
}

/// What Karman's data plane chooses where the processor has instructions for AES.
pub(super) fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![cipher_suite::TLS13_AES_128_GCM_SHA256],
        ..aws_lc_rs::default_provider()
    })
}

pub(super) fn server(folder: &Path) -> Result<rustls::ServerConfig> {
    let chain = vec![CertificateDer::from_pem_file(certificate(folder)).context("certificate")?];
    let key = PrivateKeyDer::from_pem_file(key(folder)).context("key")?;
    Ok(rustls::ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_single_cert(chain, key)?)
}

pub(super) fn client(folder: &Path) -> Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(certificate(folder)).context("certificate")?)?;
    Ok(rustls::ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
