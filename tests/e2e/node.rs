//! A node as its operator and its callers have it.

use crate::support::{Home, PATIENCE, guest};
use std::os::unix::net::UnixDatagram;

#[test]
fn tasks_answer_over_http_with_types_metadata_and_errors() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("hostile").to_str().unwrap()]).ok();
    let answer = server.post(
        "/tasks/hostile",
        &[("content-type", "text/plain"), ("karman-meta-do", "echo")],
        b"hello",
    );
    assert_eq!((answer.status, answer.text().as_str()), (200, "hello"));
    assert!(
        answer.head.contains("content-type: text/plain") && answer.head.contains("karman-meta-do: echo"),
        "{answer:?}"
    );
    for (order, status, code) in [
        ("fail denied", 403, "denied"),
        ("fail invalid", 400, "invalid"),
        ("fail unavailable", 503, "unavailable"),
    ] {
        let answer = server.post("/tasks/hostile", &[("karman-meta-do", order)], b"");
        assert_eq!(
            (answer.status, answer.json()["code"].as_str().unwrap()),
            (status, code),
            "{answer:?}"
        );
    }
    assert_eq!(server.post("/tasks/nobody", &[], b"").status, 404);
    assert_eq!(server.get("/nowhere").status, 400);
    assert_eq!(
        (server.get("/healthz").status, server.get("/readyz").status),
        (200, 200)
    );
    let metrics = server.get("/metrics").text();
    assert!(
        metrics.contains("faas_invocations_total{faas_name=\"hostile\"} 4"),
        "{metrics}"
    );
}

#[test]
fn call_and_logs_go_to_the_running_node() {
    let home = Home::new();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("hostile").to_str().unwrap()]).ok();
    assert_eq!(
        home.run_with(["call", "hostile", "-", "--meta", "do=echo"], b"across")
            .ok()
            .out(),
        "across"
    );
    let told = home.run_with(["call", "hostile", "-", "--meta", "do=echo", "--json"], b"across");
    let told: serde_json::Value = serde_json::from_str(&told.ok().out()).unwrap();
    let id = home.run(["node", "id", "--long", "--json"]).ok().out();
    assert!(id.contains(told["node"].as_str().unwrap()), "{told} {id}");
    assert_eq!(
        (&told["tier"], &told["why"]),
        (&"edge".into(), &"this node has the task".into())
    );
    home.run_with(["call", "hostile", "-", "--meta", "do=log remember me"], b"")
        .ok();
    assert!(
        home.run(["node", "logs", "--plugin", "hostile"])
            .ok()
            .out()
            .contains("remember me")
    );
    home.run(["call", "nobody", "-"]).fails(4, "nobody");
}

#[test]
fn an_order_that_does_not_read_is_refused_with_its_field() {
    let home = Home::new();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let json = [("content-type", "application/json")];
    for (headers, order) in [(&json[..], "[1"), (&json[..], "{}"), (&[], "[]")] {
        let refused = home.ask("POST", "/grants?identity=tiny", headers, order.as_bytes());
        let refused = refused.unwrap();
        assert_eq!(
            (refused.status, refused.json()["field"].as_str()),
            (400, Some("body")),
            "{refused:?}"
        );
    }
}

#[test]
fn what_needs_a_node_says_that_none_runs() {
    let home = Home::new();
    home.run(["call", "hostile", "-"]).fails(4, "karman node up");
    home.run(["node", "logs"]).fails(4, "karman node up");
    home.run(["node", "drain"]).fails(4, "karman node up");
}

#[test]
fn two_nodes_do_not_share_a_folder() {
    let home = Home::new();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["node", "up", "--listen", "127.0.0.1:0"])
        .fails(4, "in use");
}

#[test]
fn an_http_plugin_answers_below_its_name() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("hello-http02").to_str().unwrap()]).ok();
    let answer = server.get("/http/hello-http02/any/path?q=1");
    assert_eq!((answer.status, answer.text().trim()), (200, "Hello, world!"));
    // In a browser its pages are none of the node's.
    assert!(
        answer.head.contains("content-security-policy: sandbox "),
        "{answer:?}"
    );
}

#[test]
fn what_a_plugin_newly_asks_for_waits_for_the_operator() {
    let home = Home::new();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let project = home.path().join("asker");
    home.run(["new", "asker", "--lang", "rust"]).ok();
    let file = project.join("karman.toml");
    let manifest = std::fs::read_to_string(&file).unwrap();
    let packed = |asks: &str, version: &str| {
        let text: String = manifest
            .lines()
            .filter(|line| !line.starts_with("asks"))
            .map(|line| match line.starts_with("version") {
                true => format!("version = \"{version}\"\nasks = [{asks}]\n"),
                false => format!("{line}\n"),
            })
            .collect();
        let path = home.path().join(format!("asker-{version}.wasm"));
        let component = std::fs::read(guest("tiny")).unwrap();
        let manifest = karman_types::Manifest::from_toml(&text).unwrap();
        std::fs::write(&path, karman_package::embed(&component, &manifest).unwrap()).unwrap();
        path
    };
    let (first, second) = (packed("", "0.1.0"), packed("\"kv:road\"", "0.2.0"));
    home.run(["deploy", first.to_str().unwrap()]).ok();
    home.run(["deploy", second.to_str().unwrap()])
        .fails(3, "newly asks for kv:road");
    home.run(["deploy", second.to_str().unwrap(), "--grant-asked"])
        .ok();
    home.run(["deploy", first.to_str().unwrap()]).fails(3, "older");
    home.run(["deploy", first.to_str().unwrap(), "--downgrade"]).ok();
}

#[test]
fn a_cycle_of_calls_is_refused() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let component = std::fs::read(guest("hostile")).unwrap();
    for name in ["ping", "pong"] {
        let text = format!(
            "name = \"{name}\"\nversion = \"0.1.0\"\nworld = \"karman:task/task\"\nasks = [\"call:*\"]\n[task]\ncapability = \"games\"\n"
        );
        let manifest = karman_types::Manifest::from_toml(&text).unwrap();
        let path = home.path().join(format!("{name}.wasm"));
        std::fs::write(&path, karman_package::embed(&component, &manifest).unwrap()).unwrap();
        home.run(["deploy", path.to_str().unwrap(), "--grant-asked"]).ok();
    }
    // ping calls pong, whose body tells it to call ping.
    let answer = server.post("/tasks/ping", &[("karman-meta-do", "call pong")], b"call ping");
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(
        answer.text().contains("cyclic call: ping -> pong -> ping"),
        "{answer:?}"
    );
    // The same by what ping does.
    let answer = server.post(
        "/tasks/ping",
        &[("karman-meta-do", "call pong")],
        b"call games/ping",
    );
    assert!(
        answer.text().contains("cyclic call: ping -> pong -> ping"),
        "{answer:?}"
    );
    // Without another, the key of a call is the id of its task. What it calls has one of its own.
    let key = |order: &str| {
        let answer = server.post("/tasks/ping", &[("karman-meta-do", order)], b"context");
        let answer = answer.text();
        let (_, rest) = answer
            .split_once("idempotency-key: \"")
            .expect("it tells its call");
        rest.split('"').next().unwrap().to_owned()
    };
    assert_eq!((key("context").len(), key("call pong").len()), (26, 64));
}

#[test]
fn a_node_goes_on_when_nobody_reads_what_it_says() {
    let home = Home::new();
    // It says more than a pipe holds.
    let server = home.start(["-vvv", "node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("hostile").to_str().unwrap()]).ok();
    for _ in 0..300 {
        let answer = server.post("/tasks/hostile", &[("karman-meta-do", "echo")], b"hello");
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[test]
fn a_supervisor_is_told_how_a_node_is() {
    for service in [vec!["node", "up"], vec!["gateway"]] {
        let home = Home::new();
        let socket = home.path().join("supervisor");
        let supervisor = UnixDatagram::bind(&socket).unwrap();
        supervisor.set_read_timeout(Some(PATIENCE)).unwrap();
        let hears = || {
            let mut told = [0; 256];
            let length = supervisor.recv(&mut told).unwrap();
            String::from_utf8_lossy(&told[..length]).trim().to_owned()
        };
        let mut command = home.command(service.into_iter().chain(["--listen", "127.0.0.1:0"]));
        command
            .env("NOTIFY_SOCKET", &socket)
            .env("WATCHDOG_USEC", "200000");
        let server = home.started(command);
        assert_eq!(
            [hears(), hears(), hears()],
            ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
        );
        server.signal_terminate();
        let last = std::iter::repeat_with(hears).find(|told| told != "WATCHDOG=1");
        assert_eq!(last.unwrap(), "STOPPING=1");
    }
}

#[test]
fn a_plugin_is_called_by_what_it_does_and_changed_by_its_name_only() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("event-screen").to_str().unwrap()]).ok();
    let serves = || server.post("/tasks/event-screen", &[], b"0,9.81,50\n").status != 404;
    for other in ["vibration", "vibration/screening/events/event-screen"] {
        home.run(["undeploy", other]).fails(4, "has no plugin");
        assert!(serves());
    }
    home.run(["undeploy", "event-screen"]).ok();
    assert!(!serves());
}

/// It asks nobody who they are, so what a browser says of a page is all that there is to go by.
#[test]
fn somebody_elses_page_has_nothing_of_a_node_on_its_machine() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("tiny").to_str().unwrap()]).ok();
    let call = |more: &[(&str, &str)]| server.post("/tasks/tiny", more, b"12");
    assert_eq!(call(&[]).status, 200);
    for (header, field) in [
        (("host", "evil.example:8080"), "host"),
        (("sec-fetch-site", "cross-site"), "origin"),
        (("origin", "https://evil.example"), "origin"),
        (("origin", "null"), "origin"),
    ] {
        let refused = call(&[header]);
        assert_eq!(
            (refused.status, refused.json()["field"].as_str()),
            (403, Some(field)),
            "{refused:?}"
        );
    }
    assert_eq!(call(&[("sec-fetch-site", "same-origin")]).status, 200);
    // Nor of its HTTP plugins, whether there are any or not.
    let page = server.send("GET", "/http/any/", &[("host", "evil.example")], b"");
    assert_eq!(
        (page.status, page.json()["field"].as_str()),
        (403, Some("host")),
        "{page:?}"
    );
    let watched = server.send("GET", "/readyz", &[("host", "evil.example")], b"");
    assert_eq!(watched.status, 200, "{watched:?}");
}

#[test]
fn a_request_that_does_not_read_is_the_callers_mistake() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run(["deploy", guest("tiny").to_str().unwrap()]).ok();
    let two = server.post(
        "/tasks/tiny",
        &[("host", "localhost"), ("host", "evil.example")],
        b"1",
    );
    assert_eq!(
        (two.status, two.json()["field"].as_str()),
        (400, Some("host")),
        "{two:?}"
    );
    let chunked = [("transfer-encoding", "chunked")];
    let broken = server.post("/tasks/tiny", &chunked, b"fffffffffffffffff\r\n");
    assert_eq!(
        (broken.status, broken.json()["field"].as_str()),
        (400, Some("body")),
        "{broken:?}"
    );
}
