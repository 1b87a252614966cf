//! quinn as its own documentation has it, with windows and socket buffers as large as Karman's.

use super::Setting;
use super::contender::Contender;
use super::serve::{Handler, Process, Serve, ready};
use super::stage::Stage;
use super::trust;
use anyhow::{Context, Result};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_mesh::SOCKET_BUFFER;
use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use quinn::{
    ClientConfig, Connection, Endpoint, RecvStream, SendStream, ServerConfig, TransportConfig, VarInt,
};
use socket2::SockRef;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::Arc;

/// The longest request that is read whole before it is answered.
const MOST: usize = 1 << 20;

pub(super) struct Quinn {
    connection: Connection,
    tensor: bool,
    server: Process,
    _endpoint: Endpoint,
}

fn transport() -> Arc<TransportConfig> {
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(VarInt::from_u32(8 << 20))
        .receive_window(VarInt::from_u32(16 << 20))
        .send_window(16 << 20);
    Arc::new(transport)
}

fn endpoint(server: Option<ServerConfig>) -> Result<Endpoint> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    let buffers = SockRef::from(&socket);
    buffers.set_recv_buffer_size(SOCKET_BUFFER)?;
    buffers.set_send_buffer_size(SOCKET_BUFFER)?;
    let runtime = Arc::new(quinn::TokioRuntime);
    Ok(Endpoint::new(
        quinn::EndpointConfig::default(),
        server,
        socket,
        runtime,
    )?)
}

impl Quinn {
    pub(super) async fn start(setting: &Setting, what: Serve) -> Result<Self> {
        let (server, at) = Process::serving(setting, what, None)?;
        let tls = QuicClientConfig::try_from(trust::client(setting.folder())?)?;
        let mut config = ClientConfig::new(Arc::new(tls));
        config.transport_config(transport());
        let mut endpoint = endpoint(None)?;
        endpoint.set_default_client_config(config);
        let connection = endpoint.connect(at.parse()?, trust::NAME)?.await?;
        Ok(Self {
            connection,
            tensor: matches!(what, Serve::QuinnTensor | Serve::QuinnStage),
            server,
            _endpoint: endpoint,
        })
    }
}

impl Quinn {
    /// Sends these one after the other, without a copy of them, and gives what comes back.
    pub(super) async fn send(&self, pieces: &mut [Bytes]) -> Result<Bytes> {
        let (mut output, mut input) = self.connection.open_bi().await?;
        let bytes: usize = pieces.iter().map(Bytes::len).sum();
        output.write_all(&(bytes as u64).to_le_bytes()).await?;
        output.write_all_chunks(pieces).await?;
        output.finish()?;
        Ok(input.read_to_end(MOST).await?.into())
    }
}

impl Contender for Quinn {
    fn call(&self, body: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            if self.tensor {
                return self.send(&mut [body]).await;
            }
            let (mut output, mut input) = self.connection.open_bi().await?;
            output.write_all(&body).await?;
            output.finish()?;
            Ok(input.read_to_end(MOST).await?.into())
        }
        .boxed()
    }

    fn others(&self) -> Vec<u32> {
        vec![self.server.id()]
    }
}

pub(super) async fn serve(folder: &Path, handler: Handler) -> Result<()> {
    listen(folder, move |mut output, mut input| {
        let handler = handler.clone();
        async move {
            let body = input.read_to_end(MOST).await?;
            output.write_all(&handler.call(body.into()).await?).await?;
            Ok(output.finish()?)
        }
    })
    .await
}

pub(super) async fn serve_tensor(folder: &Path) -> Result<()> {
    listen(folder, |mut output, input| async move {
        let body = read_tensor(input).await?;
        output.write_all(body.len().to_string().as_bytes()).await?;
        Ok(output.finish()?)
    })
    .await
}

/// Runs the stage in this folder on what comes.
pub(super) async fn serve_stage(folder: &Path) -> Result<()> {
    let stage = Arc::new(Stage::load(folder)?);
    listen(folder, move |mut output, input| {
        let stage = stage.clone();
        async move {
            let mut results = stage.run(read_tensor(input).await?.into())?;
            output.write_all_chunks(&mut results).await?;
            Ok(output.finish()?)
        }
    })
    .await
}

async fn read_tensor(mut input: RecvStream) -> Result<Vec<u8>> {
    let mut length = [0; 8];
    input.read_exact(&mut length).await?;
    let mut body = Vec::with_capacity(u64::from_le_bytes(length) as usize);
    while let Some(chunk) = input.read_chunk(usize::MAX, true).await? {
        body.extend_from_slice(&chunk.bytes);
    }
    Ok(body)
}

async fn listen<H, F>(folder: &Path, handle: H) -> Result<()>
where
    H: Fn(SendStream, RecvStream) -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send + 'static,
{
    let tls = QuicServerConfig::try_from(trust::server(folder)?)?;
    let mut config = ServerConfig::with_crypto(Arc::new(tls));
    config.transport_config(transport());
    let endpoint = endpoint(Some(config))?;
    ready(endpoint.local_addr()?);
    let connection = endpoint.accept().await.context("closed")?.await?;
    while let Ok((output, input)) = connection.accept_bi().await {
        let answered = handle(output, input);
        tokio::spawn(async move {
            if let Err(error) = answered.await {
                eprintln!("quinn: {error:#}");
            }
        });
    }
    Ok(())
}
