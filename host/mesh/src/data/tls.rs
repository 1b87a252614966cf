//! TLS by which nodes know each other: libp2p's certificates, which carry the node's own key, under our own name and with
//! the cipher that the processor is good at.

use crate::gate::GateError;
use libp2p::PeerId;
use libp2p::identity::Keypair;
use libp2p_tls::certificate;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, SignatureScheme};
use std::sync::Arc;

const NAME: &[u8] = b"karman-call/1";
/// What TLS calls the other side. Certificates say who it is; this says nothing.
pub(super) const SERVER: &str = "karman";

/// Both ends of the handshake for the node of this key.
pub(super) fn configs(keypair: &Keypair) -> Result<(QuicServerConfig, QuicClientConfig), GateError> {
    let broken = |error: &dyn std::fmt::Display| GateError::Broken(error.to_string());
    let (certificate, key) = certificate::generate(keypair).map_err(|error| broken(&error))?;
    let provider = Arc::new(provider());
    let key = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| broken(&error))?;
    // Not through webpki, which does not know the extension that holds the node's key.
    let ours = Arc::new(SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key)));
    let mut server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| broken(&error))?
        .with_client_cert_verifier(Arc::new(NodeCertificates))
        .with_cert_resolver(ours.clone());
    server.alpn_protocols = vec![NAME.to_vec()];
    server.send_tls13_tickets = 0;
    let mut client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(|error| broken(&error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(NodeCertificates))
        .with_client_cert_resolver(ours);
    client.alpn_protocols = vec![NAME.to_vec()];
    client.resumption = Resumption::disabled();
    Ok((
        server.try_into().map_err(|error| broken(&error))?,
        client.try_into().map_err(|error| broken(&error))?,
    ))
}

/// Who is at the other end, by the key that the handshake proved.
pub(super) fn peer_of(connection: &quinn::Connection) -> Option<PeerId> {
    let chain = connection
        .peer_identity()?
        .downcast::<Vec<CertificateDer<'static>>>()
        .ok()?;
    Some(certificate::parse(chain.first()?).ok()?.peer_id())
}

/// AES where the processor has instructions for it, ChaCha20 where it would be computed bit by bit.
fn provider() -> CryptoProvider {
    let (aes, chacha) = (
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    );
    CryptoProvider {
        cipher_suites: match has_aes() {
            true => vec![aes, chacha],
            false => vec![chacha, aes],
        },
        ..aws_lc_rs::default_provider()
    }
}

#[cfg(target_arch = "x86_64")]
fn has_aes() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const fn has_aes() -> bool {
    false
}

/// Takes every certificate by which a node proves its key, as libp2p's specification of TLS has it. Whether that node may
/// come in is not its question.
#[derive(Debug)]
struct NodeCertificates;

impl NodeCertificates {
    fn verify(end: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<(), Error> {
        if !intermediates.is_empty() {
            return Err(Error::General("a node shows one certificate".into()));
        }
        certificate::parse(end)?;
        Ok(())
    }

    fn signed(
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        certificate::parse(certificate)?.verify_signature(
            signature.scheme,
            message,
            signature.signature(),
        )?;
        Ok(HandshakeSignatureValid::assertion())
    }

    fn schemes() -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
    }
}

impl ServerCertVerifier for NodeCertificates {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Self::verify(end, intermediates).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}

impl ClientCertVerifier for NodeCertificates {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Self::verify(end, intermediates).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::signed(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        Self::schemes()
    }
}
