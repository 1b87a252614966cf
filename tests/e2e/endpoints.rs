//! A server of others that speaks the Open Inference Protocol does a task: it is measured and chosen as any other, told why, and passed
//! over when it does not answer.

use crate::choose::{add, digits, run, tract, workflow};
use crate::gateway::{infer, token};
use crate::mesh::Node;
use serde_json::{Value, json};

/// What does the task at `node`: the id of the run, and who served it.
fn served(node: &Node, flow: &str) -> (String, String) {
    let run = run(node, flow, &digits()[0].0);
    let told = node.server.get(&format!("/flows/{run}/why")).json();
    let last = told.as_array().unwrap().last().unwrap().clone();
    let chosen = last["why"]["chosen"].as_str().unwrap().to_owned();
    (run, chosen)
}

#[test]
fn a_server_of_others_is_measured_and_chosen_as_any_other() {
    // Another's gateway, in no mesh, which asks for a token.
    let theirs = tract("cloud");
    let server = theirs.start(["gateway", "--listen", "127.0.0.1:0"]);
    let theirs = Node { home: theirs, server };
    add(&theirs, "digits-l");
    let bearer = token(&theirs, &["--right", "infer:digits-l"]);

    let ours = tract("edge");
    let key = ours.path().join("token");
    std::fs::write(&key, bearer.trim_start_matches("Bearer ")).unwrap();
    let file = ours.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let url = format!("http://{}", theirs.server.address);
    let endpoint = format!(
        "[endpoints.rented]\nurl = \"{url}\"\nmodel = \"digits-l\"\ncapability = \"vision/classification/digits\"\ntoken = {key:?}\n"
    );
    std::fs::write(&file, format!("{config}{endpoint}")).unwrap();
    let server = ours.start([
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--open",
        "infer:*",
        "--open",
        "flow:*",
    ]);
    let ours = Node { home: ours, server };
    add(&ours, "digits-s");

    let flow = ours.home.path().join("digits.toml");
    std::fs::write(&flow, workflow(0.9)).unwrap();
    let examples = digits();
    let examples = examples
        .iter()
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string());
    let data = ours.home.path().join("examples.jsonl");
    std::fs::write(&data, examples.collect::<Vec<_>>().join("\n")).unwrap();
    let (flow, data) = (flow.to_str().unwrap(), data.to_str().unwrap());
    let measured = ours
        .run(&["flow", "measure", flow, "classify", "--data", data, "--json"])
        .ok()
        .out();
    let accuracy = |name: &str| {
        let line = measured.lines().find(|line| line.contains(name));
        let line: Value = serde_json::from_str(line.unwrap_or_else(|| panic!("{measured}"))).unwrap();
        line["implementation"]["profile"]["accuracy"].as_f64().unwrap()
    };
    let rented = format!("rented@{}", theirs.server.address);
    let (small, large) = (accuracy("digits-s@"), accuracy(&rented));
    assert!(small > 0.9 && large > small, "{small} {large}");
    let strict = (small + large) / 2.0;

    // It serves a workflow that nobody else is accurate enough for, and a request with tensors.
    let (first, by) = served(&ours, &workflow(strict));
    assert_eq!(by, rented);
    let why = ours.run(&["why", &first]).ok().out();
    assert!(why.contains(&format!("who serves `classify`: {rented}")), "{why}");
    let capability = "vision%2Fclassification%2Fdigits";
    let answer = infer(
        &ours.server,
        capability,
        &[("karman-accuracy", &strict.to_string())],
    );
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.head.contains("karman-model: rented"), "{}", answer.head);
    assert!(
        answer.head.contains(&format!("digits-l at {url}")),
        "{}",
        answer.head
    );

    let doctor = |works: &str| {
        let says = ours.run(&["doctor", "--json"]).out();
        let line = says.lines().find(|line| line.contains("endpoint rented"));
        assert!(line.is_some_and(|line| line.contains(works)), "{says}");
    };
    doctor("\"ok\":true");

    // It does not answer any more: the other one does.
    drop(theirs);
    let (_, by) = served(&ours, &workflow(0.9));
    assert!(by.starts_with("digits-s@"), "{by}");
    doctor("\"ok\":false");
    let replayed = ours.run(&["replay", "--json"]).ok().out();
    let replayed: Value = serde_json::from_str(&replayed).unwrap();
    assert_eq!(replayed["different"], json!([]), "{replayed}");
}

#[test]
fn a_token_that_everybody_could_read_is_refused_by_the_key() {
    let home = tract("edge");
    let endpoint = "[endpoints.far]\nurl = \"http://inference.example\"\nmodel = \"a\"\ncapability = \"b\"\ntoken = \"token\"\n";
    home.configure(endpoint);
    home.run(["node", "up", "--listen", "127.0.0.1:0"])
        .fails(2, "inference.example");
}
