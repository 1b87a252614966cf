//! Pages in a browser that are not the gateway's: those of plugins, and those of other places.

use super::*;

#[test]
fn a_page_of_another_origin_has_nothing_done_without_a_token() {
    let node = gateway(home("cloud"), &["call:*"]);
    let call = |more: &[(&str, &str)]| node.server.post("/tasks/tiny", more, b"1");
    assert_eq!(call(&[]).status, 200);
    let forged = call(&[("origin", "https://evil.example")]);
    assert_eq!(
        (forged.status, forged.json()["field"].as_str()),
        (403, Some("origin"))
    );
    let bearer = token(&node, &["--right", "call:tiny"]);
    let known = call(&[("origin", "https://evil.example"), ("authorization", &bearer)]);
    assert_eq!(known.status, 200, "{known:?}");
}

#[test]
fn a_page_of_a_plugin_is_an_origin_of_its_own() {
    let node = gateway(home("cloud"), &["http:*"]);
    node.run(&["deploy", guest("hello-http02").to_str().unwrap()])
        .ok();
    let page = node.server.get("/http/hello-http02/");
    let policy = header(&page, "content-security-policy").unwrap();
    assert!(
        policy.starts_with("sandbox ") && !policy.contains("allow-same-origin"),
        "{policy}"
    );
}

/// A page whose name leads to this machine is of the gateway's own origin to a browser; all that tells is the name.
#[test]
fn a_name_that_is_led_to_it_gets_nothing_without_a_token() {
    let home = home("cloud");
    let file = home.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(
        &file,
        format!("{config}[gateway]\nhosts = [\"gateway.example\"]\n"),
    )
    .unwrap();
    let node = gateway(home, &["call:*", "admin"]);
    let call = |more: &[(&str, &str)]| node.server.post("/tasks/tiny", more, b"1");
    assert_eq!(call(&[]).status, 200);
    assert_eq!(call(&[("host", "gateway.example:443")]).status, 200);
    let rebound = [
        ("host", "evil.example:8080"),
        ("origin", "http://evil.example:8080"),
    ];
    let refused = call(&rebound);
    assert_eq!(
        (refused.status, refused.json()["field"].as_str()),
        (403, Some("host")),
        "{refused:?}"
    );
    let read = node.server.send("GET", "/admin/nodes", &rebound[..1], b"");
    assert_eq!(read.status, 403, "{read:?}");
    assert_eq!(node.server.send("GET", "/readyz", &rebound[..1], b"").status, 200);
    let bearer = token(&node, &["--right", "call:tiny"]);
    let known = call(&[rebound[0], ("authorization", &bearer)]);
    assert_eq!(known.status, 200, "{known:?}");
}

#[test]
fn a_request_that_does_not_read_is_the_callers_mistake() {
    let node = gateway(home("cloud"), &["call:*"]);
    let call = |headers: &[(&str, &str)], body: &[u8]| node.server.post("/tasks/tiny", headers, body);
    let field = |answer: Answer| (answer.status, answer.json()["field"].as_str().map(str::to_owned));
    let two = call(&[("host", "localhost"), ("host", "evil.example")], b"1");
    assert_eq!(field(two), (400, Some("host".to_owned())));
    let broken = call(&[("transfer-encoding", "chunked")], b"fffffffffffffffff\r\n");
    assert_eq!(field(broken), (400, Some("body".to_owned())));
}
