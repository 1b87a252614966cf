use crate::config::TlsConfig;
use karman_types::TaskError;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Shows the operator's certificate to callers, who may speak HTTP/2 or HTTP/1.1.
///
/// # Errors
/// `invalid`, with the file, when certificate or key do not read or do not belong together.
pub(super) fn acceptor(config: &TlsConfig) -> Result<TlsAcceptor, TaskError> {
    let wrong = |file: &Path, why: &dyn std::fmt::Display| {
        TaskError::invalid(format!("{}: {why}", file.display())).with_field("gateway.tls")
    };
    let file = &config.certificate;
    let certificates = CertificateDer::pem_file_iter(file).map_err(|error| wrong(file, &error))?;
    let certificates: Result<Vec<_>, _> = certificates.collect();
    let certificates = certificates.map_err(|error| wrong(file, &error))?;
    if certificates.is_empty() {
        return Err(wrong(file, &"there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&config.key).map_err(|error| wrong(&config.key, &error))?;
    let mut server = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| TaskError::internal(error.to_string()))?
        .with_no_client_auth()
        .with_single_cert(certificates, key)
        .map_err(|error| wrong(file, &error))?;
    server.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(server)))
}
