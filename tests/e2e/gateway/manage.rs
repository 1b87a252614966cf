//! Plugins and invitations, by the gateway's administration.

use super::*;

fn ask(node: &Node, method: &str, path: &str, bearer: &str, body: &[u8]) -> Answer {
    node.server.send(method, path, &[("authorization", bearer)], body)
}

#[test]
fn plugins_come_and_go_and_hold_what_they_are_granted() {
    let node = gateway(home("cloud"), &["admin"]);
    let tally = std::fs::read(guest("tally")).unwrap();
    // To see is open here; to change anything is not.
    assert_eq!(node.server.get("/admin/plugins").status, 200);
    let nobody = node.server.post("/admin/plugins/tally", &[], &tally);
    assert_eq!(
        (nobody.status, &nobody.json()["field"]),
        (401, &json!("authorization")),
        "{nobody:?}"
    );
    let viewer = token(&node, &["--right", "admin"]);
    let seen = ask(&node, "POST", "/admin/plugins/tally", &viewer, &tally);
    assert_eq!(seen.status, 403, "{seen:?}");
    let bearer = token(&node, &["--right", "manage"]);
    for (method, path, body, status, field) in [
        ("POST", "/admin/plugins/other", &tally[..], 400, "name"),
        ("POST", "/admin/plugins/tally", &tally[..], 403, "asks"),
        (
            "POST",
            "/admin/plugins/tally?on=all&grant-asked=true",
            b"".as_slice(),
            400,
            "on",
        ),
        (
            "POST",
            "/admin/plugins/tally?of=all",
            b"".as_slice(),
            400,
            "query",
        ),
        (
            "POST",
            "/admin/plugins/tiny/grants",
            b"{}".as_slice(),
            400,
            "body",
        ),
        (
            "DELETE",
            "/admin/plugins/tiny/grants",
            b"".as_slice(),
            400,
            "query",
        ),
        ("DELETE", "/admin/plugins/tally", b"".as_slice(), 404, "name"),
        (
            "POST",
            "/admin/plugins/tally/grants",
            b"[]".as_slice(),
            404,
            "name",
        ),
        (
            "POST",
            "/admin/invitations",
            b"{\"tier\":\"moon\"}".as_slice(),
            400,
            "body",
        ),
    ] {
        let refused = ask(&node, method, path, &bearer, body);
        assert_eq!(
            (refused.status, &refused.json()["field"]),
            (status, &json!(field)),
            "{method} {path}: {refused:?}"
        );
    }
    let none = ask(&node, "POST", "/admin/plugins/any", &bearer, b"no component");
    assert!((400..500).contains(&none.status), "{none:?}");
    let alone = ask(
        &node,
        "POST",
        "/admin/invitations",
        &bearer,
        b"{\"tier\":\"edge\"}",
    );
    assert_eq!(
        (alone.status, &alone.json()["code"]),
        (503, &json!("unavailable"))
    );

    let path = "/admin/plugins/tally?grant-asked=true";
    let deployed = ask(&node, "POST", path, &bearer, &tally);
    assert_eq!(deployed.status, 200, "{deployed:?}");
    let deployed = deployed.json();
    assert_eq!(
        (&deployed[0]["node"], &deployed[0]["deployed"]["name"]),
        (&json!(node.id()), &json!("tally")),
        "{deployed}"
    );
    let held = || {
        let known = ask(&node, "GET", "/admin/plugins", &bearer, b"").json();
        let here = known["here"].as_array().unwrap();
        let found = here.iter().find(|plugin| plugin["name"] == "tally");
        found.map(|plugin| plugin["granted"].clone())
    };
    assert_eq!(held(), Some(json!(["kv:tally"])));
    let grants = "/admin/plugins/tally/grants";
    let left = ask(&node, "DELETE", &format!("{grants}?grant=kv:tally"), &bearer, b"");
    assert_eq!((left.status, left.json()), (200, json!([])));
    assert_eq!(held(), Some(json!([])));
    let again = ask(&node, "POST", grants, &bearer, b"[\"kv:tally\"]");
    assert_eq!((again.status, again.json()), (200, json!(["kv:tally"])));
    assert_eq!(
        ask(&node, "DELETE", "/admin/plugins/tally", &bearer, b"").status,
        200
    );
    assert_eq!(held(), None);
}

#[test]
fn an_invitation_that_was_withdrawn_lets_nobody_in() {
    let home_of_cloud = home("cloud");
    home_of_cloud.run(["mesh", "init"]).ok();
    // Made while nothing runs, it is remembered by the node that runs later.
    let address = ["--address", "/ip4/192.0.2.7/udp/7117/quic-v1"];
    let early = [&["--json", "mesh", "invite", "--tier", "fog"][..], &address].concat();
    let early: Value = serde_json::from_str(&home_of_cloud.run(early).ok().out()).unwrap();
    assert!(early["expires"].as_u64() > Some(1_700_000_000), "{early}");
    let server = home_of_cloud.start(["gateway", "--listen", "127.0.0.1:0"]);
    let cloud = Node {
        home: home_of_cloud,
        server,
    };
    let bearer = token(&cloud, &["--right", "manage"]);
    let order = json!({ "tier": "edge" }).to_string();
    let invited = ask(&cloud, "POST", "/admin/invitations", &bearer, order.as_bytes()).json();
    let (id, word) = (&invited["id"], invited["invitation"].as_str().unwrap());
    let listed = ask(&cloud, "GET", "/admin/invitations", &bearer, b"");
    assert!(
        !format!("{listed:?}").contains(word),
        "the word is nobody's to see"
    );
    let states = |listed: &Answer| {
        let listed = listed.json();
        let of = |one: &Value| (one["id"].clone(), one["tier"].clone(), one["state"].clone());
        listed.as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    let known = states(&listed);
    assert_eq!(known.len(), 2, "{known:?}");
    assert!(known.contains(&(early["id"].clone(), json!("fog"), json!("open"))));
    assert!(known.contains(&(id.clone(), json!("edge"), json!("open"))));

    let path = format!("/admin/invitations/{}", id.as_str().unwrap());
    let viewer = token(&cloud, &["--right", "admin"]);
    assert_eq!(ask(&cloud, "DELETE", &path, &viewer, b"").status, 403);
    let unknown = ask(&cloud, "DELETE", "/admin/invitations/ffffffff", &bearer, b"");
    assert_eq!(
        (unknown.status, &unknown.json()["field"]),
        (404, &json!("invitation"))
    );
    let withdrawn = ask(&cloud, "DELETE", &path, &bearer, b"");
    assert_eq!(
        (withdrawn.status, &withdrawn.json()["state"]),
        (200, &json!("withdrawn")),
        "{withdrawn:?}"
    );
    let short = &early["id"].as_str().unwrap()[..8];
    cloud.home.run(["mesh", "withdraw", short]).ok();
    let unknown = cloud.home.run(["mesh", "withdraw", "ffffffff"]);
    unknown.fails(4, "no invitation that was made here");
    let comes = home("edge").run(["node", "up", "--listen", "127.0.0.1:0", "--join", word]);
    comes.fails(3, "was withdrawn");

    // Over a restart they stay withdrawn.
    let Node { home, server } = cloud;
    drop(server);
    let cloud = Node {
        server: home.start(["gateway", "--listen", "127.0.0.1:0"]),
        home,
    };
    let known = states(&ask(&cloud, "GET", "/admin/invitations", &bearer, b""));
    assert!(
        known.iter().all(|(_, _, state)| *state == "withdrawn"),
        "{known:?}"
    );
}

#[test]
fn an_invited_node_gets_a_plugin_from_outside() {
    let home_of_cloud = home("cloud");
    home_of_cloud.run(["mesh", "init"]).ok();
    let server = home_of_cloud.start(["gateway", "--listen", "127.0.0.1:0"]);
    let cloud = Node {
        home: home_of_cloud,
        server,
    };
    let bearer = token(&cloud, &["--right", "manage"]);
    let issuer = json!({ "tier": "edge", "rights": ["issue"] }).to_string();
    let refused = ask(&cloud, "POST", "/admin/invitations", &bearer, issuer.as_bytes());
    assert_eq!(
        (refused.status, &refused.json()["field"]),
        (403, &json!("rights"))
    );
    let order = json!({ "tier": "edge", "expires": "1h" }).to_string();
    let invited = ask(&cloud, "POST", "/admin/invitations", &bearer, order.as_bytes());
    assert_eq!(
        (invited.status, header(&invited, "cache-control")),
        (200, Some("no-store")),
        "{invited:?}"
    );
    let word = invited.json()["invitation"].as_str().unwrap().to_owned();
    let edge = up(home("edge"), &["--join", &word]);
    let id = edge.id();

    let tiny = std::fs::read(guest("tiny")).unwrap();
    let started = Instant::now();
    let deployed = loop {
        let answer = ask(
            &cloud,
            "POST",
            "/admin/plugins/tiny?on=tier%3Dedge",
            &bearer,
            &tiny,
        );
        if answer.status == 200 {
            break answer.json();
        }
        assert!(answer.status == 503 && started.elapsed() < FOUND, "{answer:?}");
    };
    assert_eq!(
        (&deployed[0]["node"], &deployed[0]["deployed"]["name"]),
        (&json!(id), &json!("tiny")),
        "{deployed}"
    );
    let started = Instant::now();
    loop {
        let known = ask(&cloud, "GET", "/admin/plugins", &bearer, b"").json();
        assert_eq!(known["here"], json!([]), "{known}");
        let there = &known["elsewhere"][0];
        if there["node"] == json!(id) && there["plugins"][0]["name"] == "tiny" {
            break;
        }
        assert!(started.elapsed() < FOUND, "{known}");
    }
    let path = format!("/admin/plugins/tiny?on={}", &id[..8]);
    let gone = ask(&cloud, "DELETE", &path, &bearer, b"");
    assert_eq!((gone.status, gone.json()), (200, json!([{ "node": id }])));
}
