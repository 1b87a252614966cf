//! The gateway as callers have it: the inference protocol in JSON, in bytes and over gRPC, who may, and how much.

use crate::mesh::{FOUND, Node, home, up};
use crate::support::{Answer, Home, Server, guest, root};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

mod acme;
mod admin;
mod batches;
mod clients;
mod dashboard;
mod described;
mod events;
mod exits;
mod limits;
mod load;
mod manage;
mod objectives;
mod pages;
mod reach;
mod routes;
mod tls;

const MODEL: &str = "digits-s";
const JSON: (&str, &str) = ("content-type", "application/json");

/// A gateway with the model and the task `tiny`, and what takes no token there.
fn gateway(home: Home, open: &[&str]) -> Node {
    with_model(&home);
    let mut arguments = vec!["gateway", "--listen", "127.0.0.1:0"];
    open.iter().for_each(|right| arguments.extend(["--open", right]));
    let server = home.start(arguments);
    let node = Node { home, server };
    node.run(&["deploy", guest("tiny").to_str().unwrap()]).ok();
    node
}

pub(crate) fn with_model(home: &Home) {
    let file = root().join(format!("tests/models/{MODEL}.onnx"));
    home.run(["model", "add", MODEL, file.to_str().unwrap()]).ok();
}

pub(crate) fn token(node: &Node, more: &[&str]) -> String {
    let arguments = [&["token", "issue", "tester"], more].concat();
    format!("Bearer {}", node.run(&arguments).ok().out())
}

fn image() -> Vec<f32> {
    (0..64u8).map(|at| f32::from(at % 17) / 16.0).collect()
}

pub(crate) fn infer(server: &Server, model: &str, headers: &[(&str, &str)]) -> Answer {
    let image = json!({ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image() });
    let body = json!({ "id": "7", "inputs": [image] }).to_string();
    let headers = [&[JSON], headers].concat();
    server.post(&format!("/v2/models/{model}/infer"), &headers, body.as_bytes())
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    let line = answer.head.lines().find(|line| {
        line.split_once(':')
            .is_some_and(|(key, _)| key.eq_ignore_ascii_case(name))
    });
    line.and_then(|line| line.split_once(": "))
        .map(|(_, value)| value)
}

#[test]
fn a_model_and_a_task_answer_the_inference_protocol() {
    let node = gateway(home("cloud"), &["infer:*"]);
    let server = &node.server;
    for path in ["/healthz", "/readyz", "/v2/health/live", "/v2/health/ready"] {
        assert_eq!(server.get(path).status, 200, "{path}");
    }
    let described = server.get("/v2").json();
    assert_eq!(described["name"], "karman");
    // Not `model_repository`: models are listed, and neither loaded nor unloaded.
    assert_eq!(described["extensions"], json!(["binary_tensor_data"]));
    let about = server.get(&format!("/v2/models/{MODEL}")).json();
    assert_eq!(about["inputs"][0]["shape"], json!([-1, 1, 8, 8]), "{about}");

    let answer = infer(server, MODEL, &[("x-request-id", "mine-1")]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    let reply = answer.json();
    assert_eq!((&reply["model_name"], &reply["id"]), (&json!(MODEL), &json!("7")));
    let probabilities = reply["outputs"][0]["data"].as_array().unwrap();
    let sum: f64 = probabilities.iter().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 1e-4 && probabilities.len() == 10, "{reply}");
    assert_eq!(header(&answer, "x-request-id"), Some("mine-1"));
    let id = node.id();
    assert_eq!(
        (header(&answer, "karman-model"), header(&answer, "karman-node")),
        (Some(MODEL), Some(&id[..]))
    );
    assert_eq!(
        header(&answer, "karman-cut"),
        Some(&format!("0@{}", &id[..8])[..])
    );
    assert!(
        header(&answer, "karman-why").is_some_and(|why| why.contains("this node")),
        "{answer:?}"
    );

    // A version is the beginning of the digest.
    let version = about["versions"][0].as_str().unwrap();
    assert_eq!(
        infer(server, &format!("{MODEL}/versions/{version}"), &[]).status,
        200
    );
    assert_eq!(infer(server, &format!("{MODEL}/versions/9"), &[]).status, 404);
    // A file in the place of the one before is the one that runs.
    let other = root().join("tests/models/digits-m.onnx");
    node.run(&["model", "add", MODEL, other.to_str().unwrap()]).ok();
    let about = server.get(&format!("/v2/models/{MODEL}")).json();
    assert_ne!(about["versions"][0], version);
    let replaced = infer(server, MODEL, &[]).json();
    assert_ne!(
        replaced["outputs"][0]["data"], reply["outputs"][0]["data"],
        "{replaced}"
    );

    let text =
        json!({ "inputs": [{ "name": "input", "shape": [1], "datatype": "BYTES", "data": ["12345"] }] });
    let answer = server.post("/v2/models/tiny/infer", &[JSON], text.to_string().as_bytes());
    assert_eq!(answer.json()["outputs"][0]["data"], json!(["5"]), "{answer:?}");
    let about = server.get("/v2/models/tiny").json();
    assert_eq!(about["platform"], "karman_task");
    let version = about["versions"][0].as_str().unwrap();
    for (asked, status) in [(version, 200), ("9.9.9", 404)] {
        let path = format!("/v2/models/tiny/versions/{asked}/infer");
        let answer = server.post(&path, &[JSON], text.to_string().as_bytes());
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // What suits a model does not suit a task of this name.
    let tensor = json!({ "inputs": [{ "name": "input", "shape": [1], "datatype": "FP32", "data": [1.0] }] });
    let answer = server.post("/v2/models/tiny/infer", &[JSON], tensor.to_string().as_bytes());
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.json()["error"].as_str().unwrap().contains("is a task"),
        "{answer:?}"
    );
}

#[test]
fn wrong_requests_are_told_in_the_words_of_the_protocol() {
    let node = gateway(home("cloud"), &["infer:*"]);
    let server = &node.server;
    let none = infer(server, "nothing", &[]);
    assert_eq!(
        (none.status, none.json()["error"].is_string()),
        (404, true),
        "{none:?}"
    );
    let run = |body: &Value| {
        let path = format!("/v2/models/{MODEL}/infer");
        server.post(&path, &[JSON], body.to_string().as_bytes())
    };
    let input = |name: &str, shape: Value, datatype: &str, data: Value| json!({ "inputs": [{ "name": name, "shape": shape, "datatype": datatype, "data": data }] });
    for (body, says) in [
        (json!({}), "missing field `inputs`"),
        (json!({ "inputs": [] }), "image"),
        (input("image", json!([1, 1, 8, 8]), "FP32", json!([1])), "image"),
        (input("image", json!([1, -1, 8, 8]), "FP32", json!([1])), "-1"),
        (input("image", json!([1]), "UINT64", json!([1])), "UINT64"),
        (input("other", json!([1]), "FP32", json!([1])), "other"),
        (
            input("image", json!([1]), "BYTES", json!(["a"])),
            "is a model: it takes `image`",
        ),
    ] {
        let answer = run(&body);
        let text = answer.text();
        assert!((400..500).contains(&answer.status), "{body}: {answer:?}");
        assert!(
            answer.json()["error"].as_str().unwrap().contains(says),
            "{body}: {text}"
        );
    }
    let garbled = server.get("/v2/models/%FF");
    assert_eq!(
        (garbled.status, garbled.json()["error"].is_string()),
        (400, true),
        "{garbled:?}"
    );
    let none = server.get("/v2/models/nothing/at/all");
    assert_eq!(
        (none.status, none.json()["error"].is_string()),
        (404, true),
        "{none:?}"
    );
    assert_eq!(server.get(&format!("/v2/models/{MODEL}/infer")).status, 405);
    let within = infer(server, MODEL, &[("karman-within", "soon")]);
    assert_eq!(within.status, 400, "{within:?}");
    let compressed = infer(server, MODEL, &[("content-encoding", "gzip")]);
    assert_eq!(
        (compressed.status, header(&compressed, "accept-encoding")),
        (415, Some("identity")),
        "{compressed:?}"
    );
}

#[test]
fn a_path_or_a_method_that_is_wrong_is_told_as_any_other_error() {
    let node = gateway(home("cloud"), &["call:*", "flow:*", "admin"]);
    for (method, path, status, field) in [
        ("DELETE", "/tasks/tiny", 405, "method"),
        ("POST", "/healthz", 405, "method"),
        ("PUT", "/flows", 405, "method"),
        ("POST", "/admin/nodes", 405, "method"),
        ("GET", "/accepted/%FF", 400, "path"),
        ("GET", "/flows/%FF/why", 400, "path"),
        ("GET", "/accepted/a/result?wait=1s&wait=2s", 400, "query"),
        ("GET", "/flows/a/b/c", 404, "path"),
        ("GET", "/nothing", 404, "path"),
    ] {
        let answer = node.server.send(method, path, &[], b"");
        let error = answer.json();
        assert_eq!(
            (answer.status, &error["code"], &error["field"]),
            (status, &json!("invalid"), &json!(field)),
            "{method} {path}: {answer:?}"
        );
        let allowed = header(&answer, "allow");
        assert_eq!(
            allowed.is_some_and(|those| !those.is_empty()),
            status == 405,
            "{answer:?}"
        );
    }
    let read_only = node.server.send("POST", "/healthz", &[], b"");
    assert_eq!(header(&read_only, "allow"), Some("GET,HEAD"));
}

#[test]
fn nobody_comes_in_without_the_right() {
    let node = gateway(home("cloud"), &[]);
    let server = &node.server;
    let refused = infer(server, MODEL, &[]);
    assert_eq!(
        (refused.status, header(&refused, "www-authenticate")),
        (401, Some("Bearer")),
        "{refused:?}"
    );
    let elsewhere = token(&node, &["--right", "infer:other"]);
    let refused = infer(server, MODEL, &[("authorization", &elsewhere)]);
    let says = "karman token issue NAME --right infer:digits-s";
    assert!(
        refused.status == 403 && refused.text().contains(says),
        "{refused:?}"
    );
    assert_eq!(server.post("/tasks/tiny", &[], b"1").status, 401);
    assert_eq!(server.get("/metrics").status, 401);

    let named = token(&node, &["--right", "infer:digits-*", "--right", "metrics"]);
    let with = |bearer: &str| infer(server, MODEL, &[("authorization", bearer)]);
    assert_eq!(with(&named).status, 200);
    assert_eq!(
        server
            .send("POST", "/tasks/tiny", &[("authorization", &named)], b"1")
            .status,
        403
    );
    let metrics = server
        .send("GET", "/metrics", &[("authorization", &named)], b"")
        .text();
    assert!(
        metrics.contains("http_server_request_duration_seconds_count{http_route=\"infer\""),
        "{metrics}"
    );
    for line in [
        "karman_inference_requests_total{model=\"digits-s\",outcome=\"ok\"} 1\n",
        "karman_inference_request_duration_seconds_count{model=\"digits-s\"} 1\n",
    ] {
        assert!(metrics.contains(line), "{metrics}");
    }
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    for wrong in ["Bearer nonsense", "Basic YTpi", &named[..named.len() - 4]] {
        assert_eq!(with(wrong).status, 401, "{wrong}");
    }

    // A list shows what the caller may run, and no more.
    let list = server
        .send("POST", "/v2/repository/index", &[("authorization", &named)], b"")
        .json();
    let names: Vec<&str> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, [MODEL]);

    let shown = node
        .run(&["token", "inspect", &named["Bearer ".len()..], "--json"])
        .ok()
        .out();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    node.run(&["token", "revoke", shown["token"]["id"].as_str().unwrap()])
        .ok();
    let started = Instant::now();
    while with(&named).status != 401 {
        assert!(started.elapsed() < FOUND, "a revoked token is taken");
    }
}

#[test]
fn the_models_of_other_nodes_are_run_there() {
    let cloud = home("cloud");
    cloud.run(["mesh", "init"]).ok();
    let arguments = [
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--open",
        "infer:*",
        "--open",
        "metrics",
    ];
    let server = cloud.start(arguments);
    let cloud = Node { home: cloud, server };
    let edge = cloud.joined("edge", &[]);
    with_model(&edge.home);
    let started = Instant::now();
    let answer = loop {
        let answer = infer(&cloud.server, MODEL, &[]);
        if answer.status == 200 {
            break answer;
        }
        assert!(answer.status == 404 && started.elapsed() < FOUND, "{answer:?}");
    };
    let id = edge.id();
    assert_eq!(
        (header(&answer, "karman-node"), header(&answer, "karman-tier")),
        (Some(&id[..]), Some("edge"))
    );
    assert!(
        header(&answer, "karman-why").is_some_and(|why| why.contains("only node in reach")),
        "{answer:?}"
    );
    let about = cloud.server.get(&format!("/v2/models/{MODEL}"));
    assert_eq!(about.json()["outputs"][0]["name"], "probabilities", "{about:?}");
    // One node is enough for so few calls: that is what an autoscaler is told.
    let metrics = cloud.server.get("/metrics").text();
    for gauge in ["karman_task_replicas", "karman_task_desired_replicas"] {
        let line = format!("{gauge}{{task=\"model/{MODEL}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }

    edge.server.kill();
    let gone = infer(&cloud.server, MODEL, &[("karman-within", "8 s")]);
    assert!([404, 503, 504].contains(&gone.status), "{gone:?}");
}

#[test]
fn the_routes_are_described() {
    let node = gateway(home("cloud"), &["infer:*", "call:*"]);
    let document = node.server.get("/openapi.json").json();
    assert_eq!(document["info"]["title"], "Karman gateway");
    let paths = document["paths"].as_object().unwrap();
    for path in ["/v2/models/{model}/infer", "/flows/{run}", "/admin/contacts"] {
        assert!(paths.contains_key(path), "{path}: {document}");
    }
    let about = node.server.get(&format!("/v2/models/{MODEL}")).json();
    let version = about["versions"][0].as_str().unwrap();
    // What is described is there: no answer says that there is no such path.
    for (path, methods) in paths {
        let path = path
            .replace("{model}", MODEL)
            .replace("{version}", version)
            .replace("{name}", "tiny")
            .replace("{path}", "a")
            .replace("{task}", "01JD7W2Z0Q8V5M3N9K4T6B1XAC")
            .replace("{run}", "01JD7W2Z0Q8V5M3N9K4T6B1XAC");
        for method in methods.as_object().unwrap().keys() {
            let answer = node.server.send(&method.to_uppercase(), &path, &[], b"");
            let is_no_path = match answer.status {
                // There is no such task, which is another thing.
                404 => answer.json()["field"] != "task",
                status => status == 405,
            };
            assert!(!is_no_path, "{method} {path}: {answer:?}");
        }
    }
}
