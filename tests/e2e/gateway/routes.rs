//! HTTP plugins at paths, and on hosts, of the operator's choice.

use super::*;

const ROUTES: &str = "hosts = [\"gateway.example\"]\n\
    [[gateway.routes]]\npath = \"/hello\"\nplugin = \"hello-http02\"\n\
    [[gateway.routes]]\npath = \"/hello/alerts\"\nplugin = \"alert\"\n\
    [[gateway.routes]]\nhost = \"*.hello.example\"\nplugin = \"hello-http02\"\n\
    [[gateway.routes]]\nhost = \"shared.example\"\nplugin = \"hello-http02\"\n\
    [[gateway.routes]]\nhost = \"shared.example\"\npath = \"/alerts\"\nplugin = \"alert\"\n";

/// A home whose gateway is configured so.
fn configured(gateway: &str) -> Home {
    let home = home("cloud");
    home.configure(&format!("[gateway]\n{gateway}"));
    home
}

fn policy(answer: &Answer) -> Option<&str> {
    header(answer, "content-security-policy")
}

#[test]
fn plugins_answer_where_routes_lead_and_nowhere_else() {
    let node = gateway(configured(ROUTES), &["http:hello-http02", "infer:*"]);
    let get = |host: &str, path: &str| node.server.send("GET", path, &[("host", host)], b"");
    let missing = get("localhost", "/hello");
    assert_eq!(
        (missing.status, &missing.json()["field"]),
        (404, &json!("task")),
        "{missing:?}"
    );
    assert_ne!(
        node.home
            .said("`[[gateway.routes]]` leads to a plugin that is not here"),
        ""
    );
    for plugin in ["hello-http02", "alert"] {
        node.run(&["deploy", guest(plugin).to_str().unwrap()]).ok();
    }

    // Beside what is the gateway's own, in a sandbox.
    for path in ["/hello", "/hello/any?thing", "/http/hello-http02/"] {
        let page = get("localhost", path);
        assert_eq!(
            (page.status, page.text().trim()),
            (200, "Hello, world!"),
            "{path}"
        );
        assert!(policy(&page).unwrap().starts_with("sandbox "), "{page:?}");
    }
    assert_eq!(get("gateway.example", "/v2").json()["name"], "karman");
    assert_eq!(get("localhost", "/helloes").status, 404);

    // Alone on hosts, where nothing is the gateway's.
    for path in ["/", "/v2", "/admin/nodes", "/healthz", "/http/alert"] {
        let page = get("One.hello.example:8080", path);
        assert_eq!(
            (page.status, page.text().trim()),
            (200, "Hello, world!"),
            "{path}"
        );
        assert_eq!(policy(&page), None, "{page:?}");
    }
    let shared = get("shared.example", "/");
    assert!(
        policy(&shared).is_some_and(|policy| policy.starts_with("sandbox ")),
        "{shared:?}"
    );

    // Names that nobody has named get nothing without a token, and a route is no right.
    for host in ["hello.example", "a.one.hello.example", "evil.example"] {
        let refused = get(host, "/hello");
        assert_eq!(
            (refused.status, &refused.json()["field"]),
            (403, &json!("host")),
            "{host}"
        );
    }
    let path = "/hello/alerts/a/b?c";
    assert_eq!(get("localhost", path).status, 401);
    let bearer = token(&node, &["--right", "http:alert"]);
    let answer = node.server.send("GET", path, &[("authorization", &bearer)], b"");
    let error = answer.json()["error"].as_str().unwrap().to_owned();
    assert!(
        error.contains("`/a/b`"),
        "it sees what is behind the route: {error}"
    );

    // The log tells which host was asked for, and who answered.
    let (_, said) = node.server.stop();
    for (host, plugin) in [
        ("one.hello.example", "hello-http02"),
        ("shared.example", "hello-http02"),
        ("localhost", "hello-http02"),
    ] {
        let of_both = [format!("host=\"{host}\""), format!("plugin=\"{plugin}\"")];
        let is_told = |line: &str| of_both.iter().all(|field| line.contains(field));
        assert!(said.lines().any(is_told), "{of_both:?}: {said}");
    }
}

#[test]
fn routes_that_cannot_be_are_told_before_it_answers() {
    for (routes, says) in [
        (
            "[[gateway.routes]]\npath = \"/admin\"\nplugin = \"shop\"\n",
            "`routes` has the path `/admin`, which is the gateway's own",
        ),
        (
            "[[gateway.routes]]\npath = \"/a\"\nplugin = \"shop\"\n[[gateway.routes]]\npath = \"/a/\"\nplugin = \"b\"\n",
            "`routes` has `/a/` twice",
        ),
    ] {
        configured(routes)
            .run(["gateway", "--listen", "127.0.0.1:0"])
            .fails(2, says);
    }
}
