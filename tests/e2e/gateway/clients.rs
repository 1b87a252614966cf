//! Clients that others wrote, unmodified: Triton's, over HTTP and gRPC.

use super::*;

/// Runs a script with the client library, against this gateway.
fn python(node: &Node, script: &str, more: &[&str]) -> String {
    let python = root().join("target/tools/clients/bin/python");
    let mut command = Command::new(python);
    command.arg(root().join("tests/e2e/gateway").join(script));
    let output = command.arg(&node.server.address).args(more).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let wrong = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{wrong}");
    said
}

#[test]
fn tritons_client_works_unmodified_over_http_and_grpc() {
    let node = gateway(home("cloud"), &[]);
    let bearer = token(&node, &["--right", "infer:*"]);
    let said = python(&node, "triton.py", &[MODEL, &bearer]);
    assert_eq!(said.lines().last(), Some("done"), "{said}");
}
