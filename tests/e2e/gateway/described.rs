//! The description of the routes as others read it: schemathesis makes requests of it, right ones and wrong ones, and none of them may fail
//! in the gateway.

use super::*;

/// Requests for each route that are drawn, besides those that the description itself leads to.
const DRAWN: &str = "10";
/// Equal for every run, and so are its requests.
const SEED: &str = "20";
/// Who asks to be answered within microseconds (`timeout`) is told that nobody could.
const LATE: &str = "[checks]\nnot_a_server_error = { expected-statuses = ['2xx', '3xx', '4xx', 504] }\n";

/// Runs schemathesis, unmodified, on what this gateway says of itself, with these names of what is there.
fn schemathesis(node: &Node, bearer: &str, names: &str, phases: &str) {
    let tool = root().join("target/tools/schemathesis/bin/schemathesis");
    assert!(
        tool.exists(),
        "{} is missing: `cargo xtask setup` installs it",
        tool.display()
    );
    let config = node.home.path().join("schemathesis.toml");
    std::fs::write(&config, format!("{LATE}{names}")).unwrap();
    let mut command = Command::new(tool);
    command
        .arg("--config-file")
        .arg(config)
        .arg("run")
        .arg(format!("http://{}/openapi.json", node.server.address))
        .args(["--checks", "not_a_server_error", "--phases", phases])
        .args(["--max-examples", DRAWN, "--seed", SEED, "--no-shrink"])
        // Nothing is to be found but answers: how long it takes to make a request says nothing of the gateway.
        .args(["--suppress-health-check", "all", "--generation-database", "none"])
        .args(["--request-timeout", "60", "--header"])
        .arg(format!("Authorization: {bearer}"))
        // Who comes without a token, or with another one, gets no further than that.
        .args(["--generation-with-security-parameters", "false"])
        // A node that is taken out of service says 503 from then on, and has to.
        .args(["--exclude-path", "/admin/drain"])
        // It makes up no components, nor takes away those that the others ask for.
        .args(["--exclude-path", "/admin/plugins/{name}"])
        // It leaves what it found where it is run.
        .current_dir(node.home.path())
        .env("NO_PROXY", "127.0.0.1")
        .env("PYTHONUTF8", "1");
    let output = command.output().unwrap();
    let (said, wrong) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{}: {said}\n{wrong}", output.status);
    assert_eq!(node.server.get("/readyz").status, 200);
}

/// What the description does not say: names of what is there. A task and a run that have ended, a model, its version, two plugins.
fn names(node: &Node, bearer: &str) -> String {
    let bearer = ("authorization", bearer);
    let version = node
        .server
        .send("GET", &format!("/v2/models/{MODEL}"), &[bearer], b"");
    let version = version.json()["versions"][0].as_str().unwrap().to_owned();
    let accepted = [bearer, ("karman-accept", "local")];
    let task = node.server.post("/tasks/tiny", &accepted, b"12345").json();
    let task = task["task"].as_str().unwrap().to_owned();
    let order = json!({ "workflow": "name = 'one'\n[task.tiny]", "input": "12345" }).to_string();
    let run = node
        .server
        .post("/flows", &[bearer, JSON], order.as_bytes())
        .json();
    let run = run["flow"].as_str().unwrap().to_owned();
    for ended in [
        format!("/accepted/{task}/result?wait=60s"),
        format!("/flows/{run}?wait=60s"),
    ] {
        assert_eq!(node.server.send("GET", &ended, &[bearer], b"").status, 200);
    }
    format!(
        "[parameters]\nmodel = '{MODEL}'\nversion = '{version}'\nname = 'tiny'\npath = 'a'\ntask = '{task}'\nrun = '{run}'\n\
         [[operations]]\ninclude-path = '/http/{{name}}/{{path}}'\nparameters = {{ name = 'hello-http02' }}\n"
    )
}

#[test]
fn no_request_that_the_description_leads_to_fails_in_the_gateway() {
    let node = gateway(home("cloud"), &[]);
    let plugin = guest("hello-http02");
    node.run(&["deploy", plugin.to_str().unwrap()]).ok();
    let rights = ["infer:*", "call:*", "http:*", "flow:*", "metrics", "admin"];
    let rights: Vec<&str> = rights.into_iter().flat_map(|right| ["--right", right]).collect();
    let bearer = token(&node, &rights);
    // Names that nobody has.
    schemathesis(&node, &bearer, "", "fuzzing");
    let names = names(&node, &bearer);
    schemathesis(&node, &bearer, &names, "examples,coverage,fuzzing");
}
