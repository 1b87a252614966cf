//! NATS request-reply over TLS, through Debian's `nats-server`.

use super::Setting;
use super::contender::Contender;
use super::serve::{Handler, Process, Serve, ready};
use super::trust;
use anyhow::{Context, Result, bail};
use async_nats::{Client, ConnectOptions};
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SUBJECT: &str = "tiny";

pub(super) struct Nats {
    client: Client,
    server: Process,
    responder: Process,
}

impl Nats {
    pub(super) async fn start(setting: &Setting) -> Result<Self> {
        // A port that was free a moment ago; nobody else asks for ports here.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new("nats-server");
        command.args(["--addr", "127.0.0.1", "--port", &port.to_string(), "--tls"]);
        command.arg("--tlscert").arg(trust::certificate(setting.folder()));
        command.arg("--tlskey").arg(trust::key(setting.folder()));
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let server =
            Process::spawn(&mut command).context("`nats-server` is missing: apt-get install nats-server")?;
        let at = format!("tls://{}:{port}", trust::NAME);
        let client = connect(setting.folder(), &at).await?;
        let (responder, _) = Process::serving(setting, Serve::Nats, Some(&at))?;
        Ok(Self {
            client,
            server,
            responder,
        })
    }
}

impl Contender for Nats {
    fn call(&self, body: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        async move { Ok(self.client.request(SUBJECT, body).await?.payload) }.boxed()
    }

    fn others(&self) -> Vec<u32> {
        vec![self.server.id(), self.responder.id()]
    }
}

pub(super) async fn serve(folder: &Path, handler: Handler, at: &str) -> Result<()> {
    let client = connect(folder, at).await?;
    let mut requests = client.subscribe(SUBJECT).await?;
    client.flush().await?;
    ready(at);
    while let Some(request) = requests.next().await {
        let (client, handler) = (client.clone(), handler.clone());
        tokio::spawn(async move {
            let answer = handler.call(request.payload).await;
            if let (Ok(answer), Some(reply)) = (answer, request.reply) {
                let _ = client.publish(reply, answer).await;
            }
        });
    }
    Ok(())
}

async fn connect(folder: &Path, at: &str) -> Result<Client> {
    let started = Instant::now();
    loop {
        let options = ConnectOptions::new()
            .add_root_certificates(trust::certificate(folder))
            .require_tls(true);
        match options.connect(at).await {
            Ok(client) => return Ok(client),
            Err(error) if started.elapsed() > Duration::from_secs(10) => bail!("the NATS server: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
}
