//! `wasi:http` outgoing requests, with the grant `http:HOST`.
//!
//! A name is resolved once and the connection goes to that address, so that a second answer of the resolver cannot lead
//! elsewhere (DNS rebinding). Private, local and metadata addresses, and those of this machine, are refused unless `http-private:HOST`
//! is granted.

use super::addresses::{Neighbourhood, is_public};
use http::uri::Scheme;
use http::{Request, Response, Uri};
use http_body_util::BodyExt;
use karman_types::{Grant, GrantSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{
    DEFAULT_FORBIDDEN_HEADERS, Error, ForbiddenHeaderFilter, RequestOptions, WasiBody, WasiHttpHooks,
};

/// The longest wait for a connection and for the first byte; a call's own deadline is usually shorter.
const PATIENCE: Duration = Duration::from_secs(60);

/// Judges and sends a plugin's outgoing requests.
pub(crate) struct Outgoing {
    pub(crate) grants: Arc<GrantSet>,
    /// What the last request that was denied would have needed.
    pub(crate) refused: Option<Grant>,
}

type Io = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for Outgoing {
    fn forbidden_header_filter(&mut self) -> ForbiddenHeaderFilter {
        static FILTER: LazyLock<ForbiddenHeaderFilter> =
            LazyLock::new(|| Arc::new(|name| DEFAULT_FORBIDDEN_HEADERS.contains(name)));
        FILTER.clone()
    }

    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _sent: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<(Response<WasiBody>, Io), Error>> + Send> {
        let destination = Destination::of(request.uri(), &self.grants, &mut self.refused);
        Box::new(async move {
            let destination = destination?;
            let connect = options
                .as_ref()
                .and_then(|options| options.connect_timeout)
                .unwrap_or(PATIENCE)
                .min(PATIENCE);
            let first = options
                .as_ref()
                .and_then(|options| options.first_byte_timeout)
                .unwrap_or(PATIENCE)
                .min(PATIENCE);
            let stream = tokio::time::timeout(connect, destination.connect())
                .await
                .map_err(|_| Error::ConnectionTimeout)??;
            match destination.tls {
                false => exchange(stream, request, first).await,
                true => exchange(secure(stream, &destination.host).await?, request, first).await,
            }
        })
    }
}

struct Destination {
    host: String,
    port: u16,
    tls: bool,
    private: bool,
}

impl Destination {
    /// Where a request goes, if the grants let it; else `refused` is the one that is lacking.
    fn of(uri: &Uri, grants: &GrantSet, refused: &mut Option<Grant>) -> Result<Self, Error> {
        let tls = uri.scheme() == Some(&Scheme::HTTPS);
        let host = uri
            .host()
            .ok_or(Error::HttpRequestUriInvalid)?
            .trim_matches(['[', ']'])
            .to_ascii_lowercase();
        let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
        let name = format!("{host}:{port}");
        let private = grants.allows(&Grant::HttpPrivate(name.clone()));
        let needed = Grant::Http(name);
        if !private && !grants.allows(&needed) {
            *refused = Some(needed);
            return Err(Error::HttpRequestDenied);
        }
        Ok(Self {
            host,
            port,
            tls,
            private,
        })
    }

    async fn connect(&self) -> Result<TcpStream, Error> {
        let unresolved = |_| Error::DnsError {
            rcode: Some("no answer".into()),
            info_code: None,
        };
        let addresses: Vec<SocketAddr> = lookup_host((&*self.host, self.port))
            .await
            .map_err(unresolved)?
            .collect();
        let near = Neighbourhood::of_this_machine().await;
        let is_outside = |address: IpAddr| is_public(address) && !near.has(address);
        let allowed = |address: &&SocketAddr| self.private || is_outside(address.ip());
        let mut last = match addresses.is_empty() {
            true => Error::DestinationNotFound,
            false => Error::DestinationIpProhibited,
        };
        for address in addresses.iter().filter(allowed) {
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => last = Error::Connect(error),
            }
        }
        Err(last)
    }
}

async fn secure(stream: TcpStream, host: &str) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Error> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    let config = CONFIG.get_or_init(|| {
        let roots = RootCertStore {
            roots: webpki_roots::TLS_SERVER_ROOTS.into(),
        };
        let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has the default protocol versions");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    });
    let name = ServerName::try_from(host.to_owned()).map_err(|_| Error::HttpRequestUriInvalid)?;
    TlsConnector::from(config.clone())
        .connect(name, stream)
        .await
        .map_err(Error::Tls)
}

/// One request and its response over a fresh connection; the connection is driven by the body that the guest reads.
async fn exchange<S>(
    stream: S,
    mut request: Request<WasiBody>,
    patience: Duration,
) -> Result<(Response<WasiBody>, Io), Error>
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Send + Unpin + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake::<_, WasiBody>(TokioIo::new(stream)).await?;
    // The request line of a request that goes to the server itself, not to a proxy, carries the path alone.
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse().map_err(|_| Error::HttpRequestUriInvalid)?;
    let driver = AbortOnDrop(tokio::spawn(connection));
    let response = tokio::time::timeout(patience, sender.send_request(request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)??;
    let response = response.map(|body| body.map_err(Error::from).boxed_unsync());
    let io = async move {
        let _sender = sender;
        driver.finish().await
    };
    Ok((response, Box::new(io)))
}

struct AbortOnDrop(tokio::task::JoinHandle<hyper::Result<()>>);

impl AbortOnDrop {
    async fn finish(mut self) -> Result<(), Error> {
        match (&mut self.0).await {
            Ok(result) => result.map_err(Error::from),
            Err(_) => Err(Error::ConnectionTerminated),
        }
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Empty = http_body_util::Empty<bytes::Bytes>;

    fn grants(texts: &[&str]) -> Arc<GrantSet> {
        Arc::new(texts.iter().map(|text| text.parse::<Grant>().unwrap()).collect())
    }

    async fn send(uri: &str, granted: &[&str]) -> Result<u16, Error> {
        let request = Request::builder().uri(uri).header("host", "test");
        let request = request
            .body(Empty::new().map_err(Error::from).boxed_unsync())
            .unwrap();
        let mut hooks = Outgoing {
            grants: grants(granted),
            refused: None,
        };
        let sending = Box::into_pin(hooks.send_request(request, None, Box::new(async { Ok(()) })));
        Ok(sending.await?.0.status().as_u16())
    }

    #[tokio::test]
    async fn a_host_without_grant_is_denied_before_anything_is_resolved() {
        let denied = send("http://example.org/", &["http:tiles.example"]).await;
        assert!(matches!(denied, Err(Error::HttpRequestDenied)), "{denied:?}");
    }

    #[tokio::test]
    async fn a_granted_name_that_resolves_to_a_private_address_is_refused() {
        let refused = send("http://localhost:1/", &["http:localhost"]).await;
        assert!(
            matches!(refused, Err(Error::DestinationIpProhibited)),
            "{refused:?}"
        );
    }

    #[tokio::test]
    async fn a_private_address_is_reached_with_its_own_grant() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 1024]).await;
            stream
                .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
                .await
                .unwrap();
        });
        let granted = format!("http-private:localhost:{port}");
        assert_eq!(
            send(&format!("http://localhost:{port}/"), &[&granted])
                .await
                .unwrap(),
            204
        );
    }
}
