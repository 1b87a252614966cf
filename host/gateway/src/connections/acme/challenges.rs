use super::AcmeError;
use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ClientHello;
use rustls::sign::CertifiedKey;
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a server of ACME asks to speak, and nobody else (RFC 8737).
pub(in crate::connections) const ACME_TLS: &[u8] = b"acme-tls/1";

/// What a server of ACME is shown that looks whether a name leads here. A clone is the same.
#[derive(Clone, Debug, Default)]
pub(in crate::connections) struct Challenges(Arc<Mutex<BTreeMap<String, Arc<CertifiedKey>>>>);

/// A name for which a challenge is answered until this is dropped.
pub(super) struct Answering {
    challenges: Challenges,
    name: String,
}

impl Challenges {
    /// From now on a server that looks at this name is shown this digest of what was agreed with it.
    ///
    /// # Errors
    /// [`AcmeError::Own`] when a certificate cannot be made.
    pub(super) fn answer(&self, name: &str, digest: &[u8]) -> Result<Answering, AcmeError> {
        let own = |error: &dyn std::fmt::Display| AcmeError::Own(error.to_string());
        let mut params = CertificateParams::new(vec![name.to_owned()]).map_err(|error| own(&error))?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let key = KeyPair::generate().map_err(|error| own(&error))?;
        let certificate = params.self_signed(&key).map_err(|error| own(&error))?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let key = ring::default_provider().key_provider.load_private_key(key);
        // That it fits the certificate is not looked at: who verifies that would have to know the critical extension.
        let shown = CertifiedKey::new(vec![certificate.der().clone()], key.map_err(|error| own(&error))?);
        let name = name.to_ascii_lowercase();
        self.0.lock().insert(name.clone(), Arc::new(shown));
        Ok(Answering {
            challenges: self.clone(),
            name,
        })
    }

    /// What to show one that asks for a challenge.
    pub(in crate::connections) fn shown_to(&self, hello: &ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name()?.to_ascii_lowercase();
        self.0.lock().get(&name).cloned()
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.challenges.0.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_answered_with_its_digest_until_the_challenge_is_over() {
        let challenges = Challenges::default();
        let digest = [7; 32];
        let answering = challenges.answer("GW.example", &digest).unwrap();
        let shown = challenges.0.lock().get("gw.example").cloned().unwrap();
        let (_, certificate) = x509_parser::parse_x509_certificate(&shown.cert[0]).unwrap();
        // RFC 8737: id-pe-acmeIdentifier, critical, the digest as an octet string.
        let mut extensions = certificate.extensions().iter();
        let extension = extensions.find(|extension| extension.oid.to_id_string() == "1.3.6.1.5.5.7.1.31");
        let extension = extension.unwrap();
        assert!(extension.critical);
        assert_eq!(extension.value, [&[4, 32][..], &digest].concat());
        drop(answering);
        assert!(challenges.0.lock().is_empty());
    }
}
