//! A registry of containers that somebody else wrote.

use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Debian's `docker-registry` on a port of its own; killed when dropped.
pub(crate) struct Registry {
    child: Child,
    pub(crate) address: std::net::SocketAddr,
    folder: TempDir,
}

impl Registry {
    /// On this very machine, where plain HTTP is spoken.
    pub(crate) fn start() -> Self {
        Self::start_at("127.0.0.1", "")
    }

    /// As one elsewhere: over TLS, with the certificate of [`Registry::certificate`].
    pub(crate) fn start_with_tls() -> Self {
        let tls = "  tls:\n    certificate: FOLDER/certificate.pem\n    key: FOLDER/key.pem\n";
        // Of all addresses that lead back here, only 127.0.0.1 counts as this machine.
        Self::start_at("127.0.0.2", tls)
    }

    /// The certificate that vouches for it: in PEM.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.folder.path().join("certificate.pem")
    }

    fn start_at(host: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let free = std::net::TcpListener::bind((host, 0)).unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).unwrap();
        std::fs::write(folder.path().join("certificate.pem"), made.cert.pem()).unwrap();
        std::fs::write(folder.path().join("key.pem"), made.key_pair.serialize_pem()).unwrap();
        let config = folder.path().join("config.yml");
        let path = folder.path().display().to_string();
        let text = format!(
            "version: 0.1\nlog:\n  level: error\nstorage:\n  filesystem:\n    rootdirectory: FOLDER/data\nhttp:\n  \
             addr: {address}\n{more}"
        );
        std::fs::write(&config, text.replace("FOLDER", &path)).unwrap();
        let child = Command::new("docker-registry")
            .arg("serve")
            .arg(&config)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("no `docker-registry` on this machine: run `apt-get install docker-registry`");
        let registry = Self {
            child,
            address,
            folder,
        };
        let started = std::time::Instant::now();
        while TcpStream::connect(address).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "the registry does not listen"
            );
            super::pause();
        }
        registry
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
