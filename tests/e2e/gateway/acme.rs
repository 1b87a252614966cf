//! A certificate from a server of ACME that others wrote: Debian's `pebble`, the one that Let's Encrypt tests clients with. It looks at the
//! gateway's own port, and signs for some seconds, so that certificates are renewed while one watches.

use super::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use tokio::net::TcpSocket;

/// Seconds for which certificates hold.
const HOLDS: u64 = 21;
/// Time for what comes about by itself, on a machine with better things to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// The account with the server that new ones are bound to: the id of its key, and the key.
const EXTERNAL: [&str; 2] = ["kid-1", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"];

/// A port that nobody is given who asks for any, as long as this is there: it is bound. Who asks for it by its number may listen on it.
struct Port {
    number: u16,
    _bound: TcpSocket,
}

impl Port {
    fn reserve() -> Self {
        let bound = TcpSocket::new_v4().unwrap();
        bound.set_reuseaddr(true).unwrap();
        bound.bind(([127, 0, 0, 1], 0).into()).unwrap();
        Self {
            number: bound.local_addr().unwrap().port(),
            _bound: bound,
        }
    }
}

/// The server; killed when dropped.
struct Pebble {
    child: Child,
    config: PathBuf,
    directory: String,
    ca: PathBuf,
    ports: [Port; 3],
}

impl Pebble {
    /// Starts one that looks for names on this port.
    fn start(folder: &Path, looks_at: u16) -> Self {
        let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).unwrap();
        let (ca, key, config) = (
            folder.join("pebble.pem"),
            folder.join("pebble.key"),
            folder.join("pebble.json"),
        );
        std::fs::write(&ca, made.cert.pem()).unwrap();
        std::fs::write(&key, made.key_pair.serialize_pem()).unwrap();
        let ports = [(); 3].map(|()| Port::reserve());
        let [listens, manages, http] = [0, 1, 2].map(|at: usize| ports[at].number);
        let described = json!({ "pebble": {
            "listenAddress": format!("127.0.0.1:{listens}"),
            "managementListenAddress": format!("127.0.0.1:{manages}"),
            "certificate": ca,
            "privateKey": key,
            "httpPort": http,
            "tlsPort": looks_at,
            "externalAccountBindingRequired": true,
            "externalAccountMACKeys": { EXTERNAL[0]: EXTERNAL[1] },
            "certificateValidityPeriod": HOLDS,
        }});
        std::fs::write(&config, described.to_string()).unwrap();
        let mut pebble = Self {
            child: Self::run(&config),
            config,
            directory: format!("https://localhost:{listens}/dir"),
            ca,
            ports,
        };
        pebble.listens();
        pebble
    }

    /// Starts it anew: it knows of nothing any more then.
    fn forget(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.child = Self::run(&self.config);
        self.listens();
    }

    fn run(config: &Path) -> Child {
        Command::new("pebble")
            .arg("-config")
            .arg(config)
            .env("PEBBLE_VA_NOSLEEP", "1")
            // Else it refuses good ones by chance: three in a row would be a failure, after which the gateway waits for minutes.
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            // Each order is looked at, also one for a name that was found before.
            .env("PEBBLE_AUTHZREUSE", "0")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("no `pebble` on this machine: run `apt-get install pebble`")
    }

    /// Waits until it listens.
    fn listens(&mut self) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.ports[0].number)).is_err() {
            assert_eq!(self.child.try_wait().unwrap(), None, "`pebble` has ended");
            assert!(started.elapsed() < PATIENCE, "`pebble` does not listen");
            crate::support::pause();
        }
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The digest of the certificate that callers are shown on this port, and whether Pebble has signed it; nothing where they are shown none.
fn shown(port: u16) -> Option<(String, bool)> {
    let asks = format!(
        "import hashlib, ssl\n\
         shown = ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(('127.0.0.1', {port})))\n\
         print(hashlib.sha256(shown).hexdigest(), b'Pebble Intermediate' in shown)"
    );
    let python = root().join("target/tools/clients/bin/python");
    let output = Command::new(python).args(["-c", &asks]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let (digest, signed) = said.trim().split_once(' ')?;
    Some((digest.to_owned(), signed == "True"))
}

/// The next certificate that callers are shown after these.
fn next(port: u16, before: &[String]) -> String {
    let started = Instant::now();
    loop {
        if let Some((digest, signed)) = shown(port).filter(|(digest, _)| !before.contains(digest)) {
            assert!(signed, "Pebble has not signed {digest}");
            return digest;
        }
        assert!(started.elapsed() < PATIENCE, "no certificate after {before:?}");
        std::thread::park_timeout(Duration::from_millis(200));
    }
}

/// Adds `[gateway.acme]` to the node's configuration; where it keeps what it gets.
fn acme(home: &Home, directory: &str, ca: &Path, more: &str) -> PathBuf {
    let folder = home.path().join("acme");
    let config = home.path().join("config/karman/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    // A name may be written as the DNS has it.
    let table = format!(
        "[gateway.acme]\nnames = [\"Localhost.\"]\nfolder = {folder:?}\ndirectory = \"{directory}\"\nca = {ca:?}\n{more}\n"
    );
    std::fs::write(&config, text + &table).unwrap();
    folder
}

/// The files of the folder with their rights, the account's first.
fn kept(folder: &Path) -> Vec<(String, u32)> {
    use std::os::unix::fs::PermissionsExt;
    let mut files: Vec<(String, u32)> = std::fs::read_dir(folder)
        .unwrap()
        .map(|file| {
            let file = file.unwrap();
            let mode = file.metadata().unwrap().permissions().mode() & 0o777;
            (file.file_name().into_string().unwrap(), mode)
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_certificate_is_got_from_a_server_of_acme_renewed_and_kept_over_a_restart() {
    let (home, port) = (home("cloud"), Port::reserve());
    let listens = port.number;
    let mut pebble = Pebble::start(home.path(), listens);
    let [id, key] = EXTERNAL;
    let file = home.path().join("binding.key");
    std::fs::write(&file, key).unwrap();
    let more = format!("terms-agreed = true\nexternal-account = {{ key-id = \"{id}\", key = {file:?} }}");
    let folder = acme(&home, &pebble.directory, &pebble.ca, &more);
    let address = format!("127.0.0.1:{listens}");
    let arguments = ["gateway", "--listen", &address];
    let server = home.start(arguments);
    let first = next(listens, &[]);
    // It is renewed when a third of its time is left, and shown without a restart.
    let second = next(listens, std::slice::from_ref(&first));
    let files = kept(&folder);
    let [account, certificate] = &files[..] else {
        panic!("{files:?}")
    };
    assert!(account.0.starts_with("account-"), "{files:?}");
    assert_eq!(
        (account.1, &certificate.0[..], certificate.1),
        (0o600, "certificate.pem", 0o600)
    );
    let account = folder.join(&account.0);
    let before = std::fs::read(&account).unwrap();

    server.kill();
    let _server = home.start(arguments);
    // What is kept is shown at once; the account stays, and the next certificate comes by it.
    assert!(shown(listens).is_some(), "it shows none after a restart");
    let third = next(listens, &[first.clone(), second.clone()]);
    assert_eq!(std::fs::read(&account).unwrap(), before);

    // A server that has lost the account is asked for another one, and signs on.
    pebble.forget();
    next(listens, &[first, second, third]);
    assert_ne!(std::fs::read(&account).unwrap(), before);
}

#[test]
fn a_table_that_orders_nothing_is_refused_by_the_name_of_its_key() {
    let refused = |more: &str, says: &str| {
        let home = home("cloud");
        let ca = home.path().join("pebble.pem");
        acme(&home, "https://localhost:1/dir", &ca, more);
        home.run(["gateway", "--listen", "127.0.0.1:0"]).fails(2, says);
    };
    refused("", "`acme.terms-agreed` is not true");
    // The roots and keys are read before anybody is asked.
    refused("terms-agreed = true", "pebble.pem");
    refused(
        "terms-agreed = true\nexternal-account = { key-id = \"kid-1\", key = \"/none/binding.key\" }",
        "binding.key",
    );
}
