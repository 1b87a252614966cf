//! Who reaches a gateway, as it says when it starts.

use super::*;

const CLOSED: &str =
    "only this machine reaches it: `--listen 0.0.0.0:8080` opens it, with a certificate beside it";

#[test]
fn one_that_is_not_told_where_to_listen_says_that_only_this_machine_reaches_it() {
    let home = home("cloud");
    let mut command = home.command(["gateway"]);
    // As its default, on a port of its own.
    command.env("KARMAN_LISTEN", "127.0.0.1:0");
    let (code, said) = home.started(command).stop();
    assert_eq!(code, 0, "{said}");
    assert!(said.contains(CLOSED), "{said}");
    // Who says where knows who reaches it.
    let (code, said) = home.start(["gateway", "--listen", "127.0.0.1:0"]).stop();
    assert_eq!(code, 0, "{said}");
    assert!(!said.contains(CLOSED), "{said}");
}

#[test]
fn a_certificate_without_its_key_opens_nothing() {
    let home = home("cloud");
    let listen = ["gateway", "--listen", "127.0.0.1:0"];
    for (given, lacks) in [
        ("--tls-certificate", "--tls-key <FILE>"),
        ("--tls-key", "--tls-certificate <FILE>"),
    ] {
        let tls = [given, "gateway.pem"];
        home.run([&listen[..], &tls].concat()).fails(2, lacks);
    }
    let tls = ["--tls-certificate", "gateway.pem", "--tls-key", "gateway.key"];
    home.run([&listen[..], &tls].concat()).fails(2, "gateway.pem");
}
