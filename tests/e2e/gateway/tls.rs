//! TLS: clients that others wrote, over HTTP/2 and HTTP/1.1, with a token, against a certificate that they check.

use super::clients::python;
use super::*;

/// A certificate for 127.0.0.1 and localhost that signs itself, and its key.
fn certificate(home: &Home) -> (String, String) {
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let made = rcgen::generate_simple_self_signed(names).unwrap();
    let file = |name: &str, text: String| {
        let file = home.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    (
        file("gateway.pem", made.cert.pem()),
        file("gateway.key", made.key_pair.serialize_pem()),
    )
}

#[test]
fn clients_reach_it_over_tls_with_a_token() {
    let home = home("cloud");
    with_model(&home);
    let (certificate, key) = certificate(&home);
    let arguments = ["gateway", "--listen", "127.0.0.1:0"];
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
    let server = home.start([&arguments[..], &tls[..]].concat());
    let node = Node { home, server };
    let bearer = token(&node, &["--right", "infer:*"]);
    let said = python(&node, "tls.py", &[MODEL, &bearer, &certificate]);
    assert_eq!(said.lines().last(), Some("done"), "{said}");

    // Who speaks plainly to it is told nothing.
    let mut plain = TcpStream::connect(&node.server.address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    plain
        .write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(
        !answer.starts_with(b"HTTP"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
}

/// The certificate that whoever connects is shown, as PEM without white space.
fn shown(node: &Node) -> String {
    let (host, port) = node.server.address.split_once(':').unwrap();
    let asks = format!("import ssl; print(ssl.get_server_certificate(('{host}', {port})))");
    let python = root().join("target/tools/clients/bin/python");
    let output = Command::new(python).args(["-c", &asks]).output().unwrap();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{wrong}");
    String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .collect()
}

#[test]
fn a_renewed_certificate_is_shown_without_a_restart() {
    let (home, other) = (home("cloud"), Home::new());
    let (certificate, key) = certificate(&home);
    let read = |file: &str| -> String {
        let text = std::fs::read_to_string(file).unwrap();
        text.split_whitespace().collect()
    };
    let first = read(&certificate);
    let arguments = ["gateway", "--listen", "127.0.0.1:0"];
    let tls = ["--tls-certificate", &certificate, "--tls-key", &key];
    let server = home.start([&arguments[..], &tls[..]].concat());
    let node = Node { home, server };
    assert_eq!(shown(&node), first);

    let (renewed, its_key) = self::certificate(&other);
    std::fs::copy(&renewed, &certificate).unwrap();
    std::fs::copy(&its_key, &key).unwrap();
    let started = Instant::now();
    while shown(&node) != read(&renewed) {
        assert!(started.elapsed() < FOUND, "it shows the one before");
    }
}

#[test]
fn a_key_of_another_certificate_is_refused_by_name() {
    let (ours, other) = (home("cloud"), Home::new());
    let (certificate, _) = self::certificate(&ours);
    let (_, key) = self::certificate(&other);
    let arguments = [
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--tls-certificate",
        &certificate,
        "--tls-key",
        &key,
    ];
    ours.run(arguments).fails(2, "gateway.pem");
}
