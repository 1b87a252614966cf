//! The published interfaces: a change of their text is a new version, not an edit.

use crate::support::root;
use std::fs;

/// `karman:task@0.1.0` as published. What the comments say may be made better; what the interfaces are may not change
/// under this version.
#[test]
fn the_published_text_of_karman_task_holds() {
    holds("karman-task-0.1.0.wit", "wit/task/task.wit");
}

/// `karman:federated@0.1.0`, likewise.
#[test]
fn the_published_text_of_karman_federated_holds() {
    holds("karman-federated-0.1.0.wit", "wit/federated/client.wit");
}

/// Of `karman:federated@0.1.0` what a plugin is that makes versions, likewise.
#[test]
fn the_published_text_of_strategies_holds() {
    holds(
        "karman-federated-strategy-0.1.0.wit",
        "wit/federated/strategy.wit",
    );
}

/// `karman:gpu@0.1.0`, likewise.
#[test]
fn the_published_text_of_karman_gpu_holds() {
    holds("karman-gpu-0.1.0.wit", "wit/gpu/gpu.wit");
}

/// Of `karman:policy@0.1.0` what selects models, likewise.
#[test]
fn the_published_text_of_karman_policy_holds() {
    holds("karman-policy-select-0.1.0.wit", "wit/policy/select.wit");
}

/// And what puts the nodes that could run a call in order.
#[test]
fn the_published_text_of_routing_policies_holds() {
    holds("karman-policy-route-0.1.0.wit", "wit/policy/route.wit");
}

/// And what places tasks.
#[test]
fn the_published_text_of_placing_policies_holds() {
    holds("karman-policy-place-0.1.0.wit", "wit/policy/place.wit");
}

fn holds(published: &str, now: &str) {
    let text = fs::read_to_string(root().join("tests/e2e").join(published)).unwrap();
    assert_eq!(
        bare(&text),
        bare(&fs::read_to_string(root().join(now)).unwrap()),
        "change the version in {now} and publish a new text beside the old"
    );
}

/// Without comments and layout.
fn bare(text: &str) -> Vec<String> {
    let code = text
        .lines()
        .map(|line| line.split("//").next().unwrap_or_default());
    code.flat_map(str::split_whitespace).map(str::to_owned).collect()
}
