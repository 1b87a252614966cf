//! Plugins whose bodies are streams, on nodes: a body that is longer than any limit goes through, one that is not is a task's as any
//! other.

use crate::mesh::{first, path};
use crate::support::{Home, resident, root};
use serde_json::Value;
use std::fmt::Write;

/// Of any body that is held in memory, by the plugin's manifest.
const MOST_INPUT: usize = 16 << 20;

/// A smooth road of at least so many bytes, at 100 Hz; and how many samples it has.
fn road(bytes: usize) -> (String, u64) {
    let (mut csv, mut samples) = (String::with_capacity(bytes + 64), 0);
    while csv.len() < bytes {
        let wave = f64::from(samples as u32 % 50) / 500.0;
        writeln!(csv, "{:.2},{:.3},50.0", samples as f64 / 100.0, 9.81 + wave).unwrap();
        samples += 1;
    }
    (csv, samples)
}

#[test]
fn a_body_longer_than_any_limit_goes_through_a_node() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", &path("event-screen")]).ok();
    let (csv, samples) = road(2 * MOST_INPUT);
    server.post("/tasks/event-screen", &[], b"0,9.81,50\n");
    let before = resident(server.pid());
    let answer = server.post(
        "/tasks/event-screen",
        &[("content-type", "text/csv")],
        csv.as_bytes(),
    );
    let grown = resident(server.pid()).saturating_sub(before);
    assert_eq!(answer.status, 200, "{answer:?}");
    let found: Value = answer.json();
    assert_eq!(found["samples"], samples, "{found}");
    assert!((grown as usize) < MOST_INPUT, "it took {grown} bytes more");

    // What is wrong with the last line is known when the answer has begun: then it has no end.
    let wrong = csv + "and so on\n";
    let answer = server.post("/tasks/event-screen", &[], wrong.as_bytes());
    assert!(
        serde_json::from_slice::<Value>(&answer.body).is_err(),
        "{answer:?}"
    );
    // A short body is answered whole.
    let answer = server.post("/tasks/event-screen", &[], b"0,9.81,50\nand so on\n");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.text().contains("line 2 has a field that is not a number"));
    assert_eq!(answer.json()["field"], "body");
}

#[test]
fn a_stream_is_called_like_any_task() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    edge.run(&["deploy", &path("event-screen")]).ok();
    let file = |name: &str| root().join("plugins/event-screen/tests").join(name);
    let csv = std::fs::read(file("road.csv")).unwrap();
    let json: Value = serde_json::from_slice(&std::fs::read(file("road.json")).unwrap()).unwrap();
    let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();

    let ran = cloud.soon(&["call", "event-screen", "-"], &csv);
    assert!(ran.stderr.contains("(edge)"), "{ran:?}");
    assert_eq!(read(&ran.out()), json);
    let accepted = ["call", "event-screen", "-", "--accept", "local", "--json"];
    let task = edge.home.run_with(accepted, &csv).ok().out();
    let task = read(&task)["task"].as_str().unwrap().to_owned();
    let result = edge.run(&["task", "result", &task, "--wait", "30s"]).ok();
    assert_eq!(read(&result.out()), json);
    cloud
        .home
        .run_with(["call", "event-screen", "-"], b"no road\n")
        .fails(2, "line 1");
}
