use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::fmt::Display;
use std::path::Path;

/// The certificates of this file, by which other servers are judged; without one, those that browsers trust.
///
/// # Errors
/// The file and why, when it does not read, or holds none.
pub fn trusted_roots(ca: Option<&Path>) -> Result<RootCertStore, String> {
    let Some(file) = ca else {
        return Ok(RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.to_vec(),
        });
    };
    let wrong = |why: &dyn Display| format!("{}: {why}", file.display());
    let text = std::fs::read(file).map_err(|error| wrong(&error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| wrong(&error))?;
        roots.add(certificate).map_err(|error| wrong(&error))?;
    }
    match roots.is_empty() {
        true => Err(wrong(&"there is no certificate in it")),
        false => Ok(roots),
    }
}
