//! Clients that others wrote, unmodified: Triton's and KServe's, over HTTP and gRPC.

use super::*;

/// Runs a script with Triton's client library, against this gateway.
pub(super) fn python(node: &Node, script: &str, more: &[&str]) -> String {
    python_of("clients", node, script, more)
}

fn python_of(environment: &str, node: &Node, script: &str, more: &[&str]) -> String {
    let python = root().join(format!("target/tools/{environment}/bin/python"));
    assert!(python.exists(), "{} is missing", python.display());
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

/// The package brings half a gigabyte with it, so the tests do without; the study that compares with KServe installs it.
#[test]
#[ignore = "needs target/tools/kserve, which `cargo xtask bench gateway` installs"]
fn kserves_clients_work_unmodified_over_http_and_grpc() {
    let node = gateway(home("cloud"), &[]);
    let bearer = token(&node, &["--right", "infer:*"]);
    let said = python_of("kserve", &node, "kserve_client.py", &[MODEL, &bearer]);
    assert_eq!(said.lines().last(), Some("done"), "{said}");
}
