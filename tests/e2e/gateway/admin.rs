//! What those who administer see of workflows, federated rounds and contacts.

use super::*;
use crate::fed::{describe, digits};
use karman_mesh::wall_clock;
use karman_space::Time;

/// A satellite, and the stations that it passes.
const SATELLITE: &str = "00000000000000aa";
const OPEN: &str = "00000000000000bb";
const LATER: &str = "00000000000000cc";
/// The time within which a workflow of one small task has ended, on a machine with better things to do.
const ENDED: Duration = Duration::from_secs(120);

/// A plan by which the satellite is in reach of one station for an hour, and of another in half an hour.
fn plan(home: &Home) {
    let now = wall_clock();
    let at = |minutes: i64| Time::from_unix_ms(now.as_millis() as i64 + minutes * 60_000);
    let contact = |to: &str, start: i64, end: i64| {
        format!(
            "[[contact]]\nfrom = \"{SATELLITE}\"\nto = \"{to}\"\nstart = \"{}\"\nend = \"{}\"\n\
             rate = \"2 Mbit/s\"\nboth-ways = true\n",
            at(start),
            at(end)
        )
    };
    let file = home.path().join("contacts.toml");
    std::fs::write(&file, contact(OPEN, -5, 60) + &contact(LATER, 30, 40)).unwrap();
    let config = home.path().join("config/karman/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    // Its last table is [mesh].
    std::fs::write(&config, format!("{text}contacts = {file:?}\n")).unwrap();
}

/// A gateway that has run a workflow and a federated run, and knows of contacts; a token that may see it.
pub(super) fn busy() -> (Node, String) {
    let home = home("cloud");
    plan(&home);
    let run = describe(&home, &digits("", "simulated = 5"));
    home.run(["fed", "run", &run]).ok();
    let node = gateway(home, &[]);
    let bearer = token(&node, &["--right", "admin", "--right", "flow:count"]);
    let headers = [JSON, ("authorization", &bearer[..])];
    let order = |name: &str| {
        let flow = format!("name = '{name}'\n[task.length]\nrun = 'tiny'\n");
        json!({ "workflow": flow, "input": "12345" }).to_string()
    };
    let server = &node.server;
    let refused = server.post("/flows", &headers, order("other").as_bytes());
    assert_eq!(refused.status, 403, "{refused:?}");
    let taken = server.post("/flows", &headers, order("count").as_bytes());
    assert_eq!(taken.status, 202, "{taken:?}");
    let run = taken.json()["flow"].as_str().unwrap().to_owned();
    let status = format!("/flows/{run}?wait=20s");
    let started = Instant::now();
    while server.send("GET", &status, &headers[1..], b"").json()["state"] != "done" {
        assert!(started.elapsed() < ENDED, "the workflow does not end");
    }
    (node, bearer)
}

#[test]
fn workflows_rounds_and_contacts_are_told_to_who_may_administer() {
    let (node, bearer) = busy();
    let other = token(&node, &["--right", "infer:*"]);
    let ask = |path: &str, bearer: &str| node.server.send("GET", path, &[("authorization", bearer)], b"");
    for path in [
        "/admin/flows",
        "/admin/slos",
        "/admin/rounds",
        "/admin/gpu",
        "/admin/contacts",
    ] {
        assert_eq!(node.server.get(path).status, 401, "{path}");
        assert_eq!(ask(path, &other).status, 403, "{path}");
        assert_eq!(ask(path, &bearer).status, 200, "{path}");
    }
    let flows = ask("/admin/flows", &bearer).json();
    let flow = &flows[0];
    assert_eq!((&flow["name"], &flow["state"]), (&json!("count"), &json!("done")));
    assert_eq!(
        (&flow["steps"][0]["task"], &flow["output"]),
        (&json!("length"), &Value::Null)
    );
    // Whoever may only administer does not see what came out of it; whoever has its id does.
    let path = format!("/flows/{}", flow["flow"].as_str().unwrap());
    assert_ne!(ask(&path, &bearer).json()["output"], Value::Null);

    // Nothing was wanted of it.
    assert_eq!(ask("/admin/slos", &bearer).json()["workflows"], json!([]));
    // It is not looked for before somebody wants it.
    assert_eq!(ask("/admin/gpu", &bearer).json(), json!({ "state": "unasked" }));

    let rounds = ask("/admin/rounds", &bearer).json();
    let run = &rounds[0];
    assert_eq!(
        (&run["name"], &run["state"], &run["version"]),
        (&json!("digits"), &json!("done"), &json!(12))
    );
    let versions = run["versions"].as_array().unwrap();
    assert_eq!(versions.len(), 12, "{run}");
    assert_eq!(versions[11]["accuracy"], run["accuracy"]);
    assert!(run["accuracy"].as_f64().is_some_and(|share| share > 0.5), "{run}");
    // It is the same when it is asked for again, and read no more.
    assert_eq!(ask("/admin/rounds", &bearer).json(), rounds);

    let ahead = ask("/admin/contacts", &bearer).json();
    let to: Vec<&Value> = ahead["contacts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|contact| &contact["to"])
        .collect();
    assert_eq!(
        (to.len(), &ahead["planned"], &ahead["more"]),
        (4, &json!(true), &json!(0)),
        "{ahead}"
    );
    // What has begun comes first, there and back.
    assert!(
        to[..2].contains(&&json!(OPEN)) && to[2..].contains(&&json!(LATER)),
        "{ahead}"
    );
    assert_eq!(ahead["contacts"][0]["rate"], "2 Mbit/s");
}
