//! Karman: a node of its own (`karman node up`) that has the component deployed, and this process as another member.

use super::Setting;
use super::contender::Contender;
use super::serve::{Process, Serve as Serving, ready};
use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use karman_mesh::membership::{Invitation, Issuer, Member, RootKey, Terms, UnixTime};
use karman_mesh::{Ask, CallHead, Mesh, MeshOptions, PeerId, RemoteReport, Serve, Standing, wall_clock};
use karman_store::Store;
use karman_types::{Offer, TaskError, TaskId, TaskRequest, TaskResponse, Tier};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);

pub(super) struct Karman {
    mesh: Mesh,
    node: PeerId,
    task: &'static str,
    server: Process,
}

impl Karman {
    /// A node with the tiny component.
    pub(super) async fn tiny(setting: &Setting) -> Result<Self> {
        let home = setting.folder().join("node");
        let config = home.join("config/karman");
        std::fs::create_dir_all(&config)?;
        let text = "tier = \"cloud\"\n[mesh]\nlisten = \"127.0.0.1:0\"\nfind-neighbours = false\n";
        std::fs::write(config.join("node.toml"), text)?;
        let karman = |arguments: &[&str]| {
            let mut command = Command::new(&setting.karman);
            command
                .args(arguments)
                .env("KARMAN_STATE", home.join("state"))
                .env("KARMAN_CACHE", home.join("cache"))
                .env("XDG_CONFIG_HOME", home.join("config"))
                .env_remove("KARMAN_CONFIG");
            command
        };
        let run = |arguments: &[&str]| -> Result<String> {
            let ran = karman(arguments).output()?;
            ensure!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
            Ok(String::from_utf8(ran.stdout)?.trim().to_owned())
        };
        run(&["mesh", "init"])?;
        let mut up = karman(&["node", "up", "--listen", "127.0.0.1:0"]);
        up.stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut server = Process::spawn(&mut up)?;
        let said = server.child().stderr.take().context("piped")?;
        Process::says(said, |line| line.contains("on http://").then_some(()))?;
        run(&["deploy", setting.tiny.to_str().context("a path in UTF-8")?])?;
        let invitation = run(&["mesh", "invite", "--tier", "edge"])?;
        Self::join(&setting.folder().join("member"), &invitation, server, "tiny").await
    }

    /// A node that takes tensors natively.
    pub(super) async fn tensor(setting: &Setting) -> Result<Self> {
        let (server, invitation) = Process::serving(setting, Serving::KarmanTensor, None)?;
        Self::join(&setting.folder().join("sender"), &invitation, server, "tensor").await
    }

    async fn join(folder: &Path, invitation: &str, server: Process, task: &'static str) -> Result<Self> {
        let mesh = start(folder, Some(invitation.parse()?), None)?;
        mesh.admitted(SOON).await?;
        let started = Instant::now();
        loop {
            ensure!(started.elapsed() < SOON, "no connection for calls");
            let Some(peer) = mesh.peers().into_iter().find(|peer| peer.path.is_some()) else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let karman = Self {
                mesh: mesh.clone(),
                node: peer.id,
                task,
                server,
            };
            return karman.warm(started).await;
        }
    }

    /// Calls until calls have a connection of their own.
    async fn warm(self, started: Instant) -> Result<Self> {
        while !self.mesh.peers().iter().any(|peer| peer.direct_calls) {
            self.call(Bytes::new()).await?;
            if started.elapsed() > SOON {
                bail!("calls have no connection of their own");
            }
        }
        Ok(self)
    }
}

impl Contender for Karman {
    fn call(&self, body: Bytes) -> BoxFuture<'_, Result<Bytes>> {
        async move {
            let head = CallHead {
                ask: Ask::Call,
                name: self.task.into(),
                task: TaskId::from_parts(0, 0),
                attempt: 1,
                idempotency_key: None,
                within_ms: Some(30_000),
                chain: Vec::new(),
                content_type: String::new(),
                metadata: Vec::new(),
            };
            let (response, _) = self.mesh.call(self.node, head, body).await?;
            Ok(response.body)
        }
        .boxed()
    }

    fn others(&self) -> Vec<u32> {
        vec![self.server.id()]
    }
}

/// Takes any body, and answers with its length.
struct Length;

impl Serve for Length {
    fn most_input(&self, _: &CallHead) -> Result<u64, TaskError> {
        Ok(256 << 20)
    }

    fn serve(
        &self,
        _: Arc<Member>,
        _: CallHead,
        request: TaskRequest,
    ) -> BoxFuture<'static, Result<(TaskResponse, RemoteReport), TaskError>> {
        let response = TaskResponse {
            body: request.body.len().to_string().into(),
            ..TaskResponse::default()
        };
        async { Ok((response, RemoteReport::default())) }.boxed()
    }

    fn busy(&self) -> u32 {
        0
    }

    fn cores(&self) -> u32 {
        1
    }

    fn offer(&self) -> Option<Offer> {
        None
    }
}

fn start(folder: &Path, invitation: Option<Invitation>, issuer: Option<Issuer>) -> Result<Mesh> {
    let store = Store::open(folder)?;
    let seed = *store.node_key().seed();
    let entrances = invitation.iter().flat_map(|invitation| invitation.addresses());
    let options = MeshOptions {
        listen: "127.0.0.1:0".parse()?,
        entrances: entrances.filter_map(|address| address.parse().ok()).collect(),
        find_neighbours: false,
        links: None,
    };
    let standing = Standing::open(store, Tier::Edge, invitation, issuer)?;
    Ok(Mesh::start(options, &seed, Arc::new(standing), Arc::new(Length))?)
}

/// A node whose native handler takes tensors; where it is, it says with an invitation.
pub(super) async fn serve_tensor(folder: &Path) -> Result<()> {
    let root = RootKey::generate()?;
    let mesh = start(&folder.join("receiver"), None, Some(Issuer::root(&root)))?;
    let started = Instant::now();
    let mut addresses = Vec::new();
    while addresses.is_empty() {
        ensure!(started.elapsed() < SOON, "it does not listen");
        addresses = mesh.addresses().await.iter().map(ToString::to_string).collect();
    }
    let now = wall_clock().as_secs();
    let now = UnixTime::from_seconds(now);
    let later = now.after(Duration::from_secs(86_400));
    let terms = Terms::usual(Tier::Edge, later);
    ready(Issuer::root(&root).invite(&terms, later, None, addresses, now)?);
    std::future::pending().await
}
