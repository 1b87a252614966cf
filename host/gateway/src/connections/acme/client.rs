//! HTTP to a server of ACME, whose own certificate is judged by the operator's roots, or by those that browsers trust.

use bytes::Bytes;
use http::Request;
use http_body_util::Limited;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use karman_node::trusted_roots;
use karman_types::TaskError;
use rustls::crypto::ring;
use rustls::{ClientConfig, RootCertStore};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

/// The longest answer that is read.
const MOST: usize = 1 << 20;

/// Speaks to the server.
pub(super) struct Https(Client<HttpsConnector<HttpConnector>, BodyWrapper<Bytes>>);

impl Https {
    /// Judges the server by these roots.
    pub(super) fn new(roots: Arc<RootCertStore>) -> Result<Self, rustls::Error> {
        let tls = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new().with_tls_config(tls);
        let connector = connector.https_only().enable_http1().build();
        Ok(Self(Client::builder(TokioExecutor::new()).build(connector)))
    }
}

impl HttpClient for Https {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let answer = self.0.request(request);
        Box::pin(async move {
            let answer = answer.await.map_err(|error| Error::Other(Box::new(error)))?;
            Ok(BytesResponse::from(answer.map(|body| Limited::new(body, MOST))))
        })
    }
}

/// The roots of this file, or those that browsers trust.
///
/// # Errors
/// `invalid` with the file when it does not read, or holds none.
pub(super) fn roots(ca: Option<&Path>) -> Result<RootCertStore, TaskError> {
    trusted_roots(ca).map_err(|why| TaskError::invalid(why).with_field("gateway.acme.ca"))
}
