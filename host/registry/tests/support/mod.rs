//! Debian's registry on a port of its own, a proxy before it that counts and cuts, and plugins to push.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use bytes::Bytes;
use karman_types::Manifest;
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A running `docker-registry`; killed when dropped.
pub struct DockerRegistry {
    child: Child,
    pub address: SocketAddr,
    folder: TempDir,
}

impl DockerRegistry {
    pub async fn start() -> Self {
        Self::start_with("").await
    }

    /// One that lets in only `ada` with the password `U*U`.
    pub async fn start_locked() -> Self {
        Self::start_with("auth:\n  htpasswd:\n    realm: test\n    path: FOLDER/users\n").await
    }

    async fn start_with(more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // Free the moment before: nobody else asks the system for a port in between, short of bad luck.
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let path = folder.path().display();
        let config = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: {path}/data\nhttp:\n  \
             addr: {address}\n{}",
            more.replace("FOLDER", &path.to_string())
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        // The bcrypt test vector of crypt_blowfish.
        let users = "ada:$2a$05$CCCCCCCCCCCCCCCCCCCCC.E5YPO9kmyuRGyh0XouQYb4YMJKvyOeW\n";
        std::fs::write(folder.path().join("users"), users).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("no `docker-registry` on this machine: run `apt-get install docker-registry`");
        let registry = Self {
            child,
            address,
            folder,
        };
        for _ in 0..200 {
            if TcpStream::connect(address).await.is_ok() {
                return registry;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("`docker-registry` does not listen on {address} after 10 s");
    }

    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Stands before a registry.
pub struct Proxy {
    pub address: SocketAddr,
    /// Bytes that the client got.
    pub passed: Arc<AtomicU64>,
}

impl Proxy {
    /// After `cut_after` bytes to the client, over all connections, the registry is killed.
    pub async fn start(mut registry: DockerRegistry, cut_after: u64) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let passed = Arc::new(AtomicU64::new(0));
        let count = passed.clone();
        tokio::spawn(async move {
            let upstream = registry.address;
            let (cut, mut is_cut) = tokio::sync::mpsc::channel::<()>(1);
            loop {
                let client = tokio::select! {
                    client = listener.accept() => client.unwrap().0,
                    _ = is_cut.recv() => { registry.kill(); continue }
                };
                tokio::spawn(pass(client, upstream, count.clone(), cut_after, cut.clone()));
            }
        });
        Self { address, passed }
    }
}

async fn pass(
    client: TcpStream,
    upstream: SocketAddr,
    count: Arc<AtomicU64>,
    cut_after: u64,
    cut: tokio::sync::mpsc::Sender<()>,
) {
    let Ok(server) = TcpStream::connect(upstream).await else {
        return;
    };
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let up = tokio::spawn(async move { tokio::io::copy(&mut from_client, &mut to_server).await });
    let mut buffer = vec![0; 16 << 10];
    while let Ok(length @ 1..) = from_server.read(&mut buffer).await {
        if count.fetch_add(length as u64, Ordering::SeqCst) + length as u64 > cut_after {
            let _ = cut.send(()).await;
            break;
        }
        if to_client.write_all(&buffer[..length]).await.is_err() {
            break;
        }
    }
    up.abort();
}

/// A signed plugin of at least this many bytes.
pub fn plugin(bytes: usize) -> Bytes {
    let filler = "karman ".repeat(bytes / 7 + 1);
    let component = wat::parse_str(format!(
        r#"(component
            (import "wasi:cli/stdout@0.2.0" (instance))
            (instance $i)
            (export "karman:task/handler@0.1.0" (instance $i))
            (@custom "filler" "{filler}")
        )"#
    ))
    .unwrap();
    let manifest = Manifest::from_toml(
        r#"
        name = "hello"
        version = "0.1.0"
        world = "karman:task/task"
        description = "Greets."
        license = "Apache-2.0"
        authors = ["Ada", "Grace"]
    "#,
    )
    .unwrap();
    let file = karman_package::embed(&component, &manifest).unwrap();
    let key = karman_package::SecretKey::generate();
    karman_package::sign(&file, &key).unwrap().into()
}
