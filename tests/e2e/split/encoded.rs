//! What travels between two nodes is encoded where their link is slow, and a plan goes by that.

use super::{REQUESTS, assert_same, numbers, slow, state_link, wait_for};
use crate::mesh::{FOUND, Node, home, up};
use crate::support::until;
use karman_infer::zoo::{Architecture, Variant};
use serde_json::{Value, json};

/// Rows and columns of the pictures of a network that is worth a journey.
const SIDE: u32 = 32;
/// Has the network run in parts.
const APPLY: [&str; 6] = ["model", "plan", "net", "--over", "tier=cloud", "--apply"];

/// The milliseconds of computing of the node that has the model, in a request with a picture of these numbers.
fn computes_here(node: &Node, pixel: impl Fn(u32) -> f64) -> f64 {
    answered(node, pixel)["parameters"]["legs"][0]["compute_us"]
        .as_f64()
        .unwrap()
        / 1e3
}

/// The answer of the network to a picture.
fn answered(node: &Node, pixel: impl Fn(u32) -> f64) -> Value {
    let data: Vec<f64> = (0..3 * SIDE * SIDE).map(pixel).collect();
    let image = json!({ "name": "image", "shape": [1, 3, SIDE, SIDE], "datatype": "FP32", "data": data });
    let body = json!({ "inputs": [image] }).to_string();
    let json = [("content-type", "application/json")];
    let answer = node.home.ask("POST", "/models/net/run", &json, body.as_bytes());
    let answer = answer.expect("no node answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// A slow node with a network of so many classes, and a fast one that may run it.
fn edge_and_cloud(classes: u32) -> [Node; 2] {
    let home = home("cloud");
    home.run(["mesh", "init"]).ok();
    let cloud = up(home, &[]);
    let word = cloud.invite(&["--tier", "edge", "--right", "deploy:*"]);
    let edge = up(slow("edge", 20), &["--join", &word]);
    let variant = Variant {
        input: SIDE,
        narrower: 4,
        classes,
        ..Variant::default()
    };
    let file = edge.home.path().join("net.onnx");
    std::fs::write(&file, Architecture::MobileNetV2.generate(&variant)).unwrap();
    edge.run(&["model", "add", "net", file.to_str().unwrap()]).ok();
    wait_for(&edge, &cloud.id());
    [edge, cloud]
}

#[test]
fn over_a_slow_link_results_come_back_in_fewer_bytes_and_are_the_same() {
    let [edge, cloud] = edge_and_cloud(1000);
    let picture = |at: u32| f64::from(at % 256) / 255.0;
    let whole = answered(&edge, picture);
    edge.run(&[&APPLY[..], &["--cut", "0"]].concat()).ok();
    let asked = || {
        let answer = answered(&edge, picture);
        assert_same(&answer, &whole);
        let last = answer["parameters"]["legs"].as_array().unwrap().last().unwrap();
        assert_eq!(last["node"], cloud.id()[..16]);
        let bytes = ["bytes_in", "bytes_out"].map(|bytes| last[bytes].as_u64().unwrap());
        (numbers(&answer), bytes)
    };
    let (pixels, scores) = (u64::from(3 * SIDE * SIDE), 1000);
    state_link(&edge, "net", &cloud.id(), 1e5);
    let (as_they_are, [there, back]) = asked();
    assert!(there > 4 * pixels && back > 4 * scores, "{there} {back}");
    state_link(&edge, "net", &cloud.id(), 1.0);
    let (results, [there, back]) = asked();
    assert!(results == as_they_are, "something was lost");
    assert!(there < 2 * pixels && back < 4 * scores, "{there} {back}");
}

#[test]
fn a_plan_goes_by_what_encodings_make_of_the_input() {
    let [edge, cloud] = edge_and_cloud(10);
    let there = cloud.id();
    // Over this link the input takes three times as long as the whole network here, unless it gets smaller on the way.
    let apply = || {
        let planned = edge.run(&[&APPLY[..], &["--json"]].concat()).ok().out();
        let planned: Value = serde_json::from_str(&planned).unwrap();
        let layers = planned["problem"]["graph"]["layers"].as_array().unwrap();
        let here_ms = layers
            .iter()
            .map(|layer| layer["time"]["Measured"][0].as_f64().unwrap());
        let rate = f64::from(3 * SIDE * SIDE * 4) * 8.0 / (3.0 * here_ms.sum::<f64>() * 1e3);
        state_link(&edge, "net", &there, rate);
    };
    let noise = |at: u32| f64::from(at.wrapping_mul(2_654_435_761)) / f64::from(u32::MAX);
    apply();
    for _ in 0..REQUESTS {
        assert!(
            computes_here(&edge, noise) > 0.0,
            "an input that stays as long as it is has gone away"
        );
    }
    apply();
    until(FOUND, "an input that takes a few bytes stays", || {
        computes_here(&edge, |_| 0.5) <= 0.0
    });
}
