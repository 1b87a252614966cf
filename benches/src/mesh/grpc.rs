//! gRPC by `tonic` over TLS: a unary method whose messages are bytes.

use super::Setting;
use super::contender::Contender;
use super::serve::{Handler, Process, Serve, ready};
use super::trust;
use anyhow::Result;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use std::convert::Infallible;
use std::path::Path;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::{NamedService, UnaryService};
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Identity, Server, ServerTlsConfig};
use tonic::{Request, Response, Status};
use tonic_prost::ProstCodec;

const METHOD: &str = "/karman.bench.Tiny/Call";

pub(super) struct Grpc {
    channel: Channel,
    server: Process,
}

impl Grpc {
    pub(super) async fn start(setting: &Setting) -> Result<Self> {
        let (server, at) = Process::serving(setting, Serve::Grpc, None)?;
        let roots = Certificate::from_pem(std::fs::read(trust::certificate(setting.folder()))?);
        let tls = ClientTlsConfig::new()
            .ca_certificate(roots)
            .domain_name(trust::NAME);
        let channel = Channel::from_shared(format!("https://{at}"))?
            .tls_config(tls)?
            .connect()
            .await?;
        Ok(Self { channel, server })
    }
}

impl Contender for Grpc {
    fn call(&self, body: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let mut client = tonic::client::Grpc::new(self.channel.clone());
            client.ready().await?;
            let path = http::uri::PathAndQuery::from_static(METHOD);
            let codec = ProstCodec::<Bytes, Bytes>::default();
            let answer = client.unary(Request::new(body), path, codec).await?;
            Ok(answer.into_inner())
        }
        .boxed()
    }

    fn others(&self) -> Vec<u32> {
        vec![self.server.id()]
    }
}

pub(super) async fn serve(folder: &Path, handler: Handler) -> Result<()> {
    let identity = Identity::from_pem(
        std::fs::read(trust::certificate(folder))?,
        std::fs::read(trust::key(folder))?,
    );
    let incoming = TcpIncoming::bind("127.0.0.1:0".parse()?)?.with_nodelay(Some(true));
    ready(incoming.local_addr()?);
    Server::builder()
        .tls_config(ServerTlsConfig::new().identity(identity))?
        .add_service(Tiny(handler))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

#[derive(Clone)]
struct Tiny(Handler);

impl NamedService for Tiny {
    const NAME: &'static str = "karman.bench.Tiny";
}

impl Service<http::Request<Body>> for Tiny {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = Method(self.0.clone());
        async move {
            let codec = ProstCodec::<Bytes, Bytes>::default();
            Ok(tonic::server::Grpc::new(codec).unary(method, request).await)
        }
        .boxed()
    }
}

struct Method(Handler);

impl UnaryService<Bytes> for Method {
    type Response = Bytes;
    type Future = BoxFuture<'static, Result<Response<Bytes>, Status>>;

    fn call(&mut self, request: Request<Bytes>) -> Self::Future {
        let handler = self.0.clone();
        async move {
            let answer = handler.call(request.into_inner()).await;
            answer
                .map(Response::new)
                .map_err(|error| Status::internal(error.to_string()))
        }
        .boxed()
    }
}
