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
