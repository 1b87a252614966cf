//! HTTP plugins, none of which was written for Karman: Rust on WASI 0.2 and 0.3, JavaScript from a plain fetch handler.

use crate::support::{Home, guest};
use std::io::{Read, Write};
use std::net::TcpStream;

fn serve(home: &Home, name: &str) -> crate::support::Server {
    let guest = guest(name);
    home.start(["serve", guest.to_str().unwrap(), "--listen", "127.0.0.1:0"])
}

#[test]
fn a_proxy_of_wasi_02_runs_unmodified() {
    let home = Home::new();
    let server = serve(&home, "hello-http02");
    for _ in 0..20 {
        let answer = server.get("/");
        assert_eq!((answer.status, answer.text().trim()), (200, "Hello, world!"));
    }
}

#[test]
fn a_service_of_wasi_03_runs_unmodified_and_its_instances_serve_again() {
    let home = Home::new();
    let server = serve(&home, "hello-http03");
    // More than one instance serves.
    for _ in 0..300 {
        let answer = server.get("/");
        assert_eq!((answer.status, answer.text().trim()), (200, "Hello, world!"));
    }
}

#[test]
fn an_answer_that_breaks_off_does_not_look_whole() {
    for name in ["hello-http02", "hello-http03"] {
        let home = Home::new();
        let server = serve(&home, name);
        let read = |path: &str| {
            let mut connection = TcpStream::connect(&server.address).unwrap();
            let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            connection.write_all(head.as_bytes()).unwrap();
            let mut answer = Vec::new();
            let _ = connection.read_to_end(&mut answer);
            String::from_utf8(answer).unwrap()
        };
        let (whole, broken) = (read("/"), read("/breaks"));
        // The last piece of a body in pieces is an empty one (RFC 9112, 7.1).
        assert!(
            whole.contains("Hello, world!") && whole.ends_with("0\r\n\r\n"),
            "{whole}"
        );
        assert!(!broken.ends_with("0\r\n\r\n"), "{name}: {broken}");
        assert_eq!(server.get("/").status, 200);
    }
}

#[test]
fn a_fetch_handler_in_javascript_runs_unmodified() {
    let home = Home::new();
    let server = serve(&home, "fetch-hello");
    let answer = server.get("/");
    assert_eq!((answer.status, answer.text().trim()), (200, "Hello from fetch"));
    let body = vec![b'k'; 100_000];
    let echoed = server.post("/", &[("content-type", "text/plain")], &body);
    assert_eq!((echoed.status, echoed.body), (200, body));
}

#[test]
fn a_gibibyte_is_refused_before_it_is_read() {
    let home = Home::new();
    let server = serve(&home, "hello-http02");
    let answer = server.post("/", &[("content-length", "1073741824")], b"");
    assert_eq!(answer.status, 413, "{answer:?}");
    assert_eq!(answer.json()["field"], "body");
    assert_eq!(server.get("/").status, 200);
}

/// All that tells a page whose name leads to this machine from the plugin's own is the name.
#[test]
fn a_name_that_is_led_to_a_served_plugin_gets_nothing() {
    let home = Home::new();
    let folder = home.path().join("config/karman");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("node.toml"), "hosts = [\"hello.example\"]\n").unwrap();
    let server = serve(&home, "hello-http02");
    let get = |host: &str| server.send("GET", "/", &[("host", host)], b"");
    let refused = get("evil.example");
    assert_eq!(
        (refused.status, refused.json()["field"].as_str()),
        (403, Some("host")),
        "{refused:?}"
    );
    for ours in ["hello.example:8080", "localhost:8080", "127.0.0.1", "[::1]:80"] {
        assert_eq!(get(ours).status, 200, "{ours}");
    }
}

#[test]
fn a_shutdown_lets_connections_finish() {
    let home = Home::new();
    let server = serve(&home, "hello-http02");
    assert_eq!(server.get("/").status, 200);
    assert_eq!(server.stop().0, 0);
}

#[test]
fn an_address_in_use_says_so() {
    let home = Home::new();
    let server = serve(&home, "hello-http02");
    let guest = guest("hello-http02");
    home.run(["serve", guest.to_str().unwrap(), "--listen", &server.address])
        .fails(4, &server.address);
}

#[test]
fn the_alert_plugin_filters_and_formats() {
    let home = Home::new();
    let server = serve(&home, "alert");
    let alerts = br#"{"type":"FeatureCollection","features":[
        {"type":"Feature","properties":{"event":"flood","severity":"severe","headline":"River rising"},
         "geometry":{"type":"Polygon","coordinates":[[[7,50],[8,50],[8,51],[7,51],[7,50]]]}},
        {"type":"Feature","properties":{"event":"wind","severity":"minor","headline":"Breeze"},
         "geometry":{"type":"Point","coordinates":[20,20]}}]}"#;
    let json = [("content-type", "application/geo+json")];
    let answer = server.post("/?min-severity=severe", &json, alerts);
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.json()["features"].as_array().unwrap().len(), 1);
    assert_eq!(server.post("/?bbox=1,2,3", &json, alerts).status, 400);
}
