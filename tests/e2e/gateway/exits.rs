//! A model that is run up to an early exit: by name, and where an exit is chosen as one model is among others.

use super::*;

const CAPABILITY: &str = "vision/classification/digits";

/// How far an answer may be from that of the whole model, as a share of its largest number.
const ROUNDING: f64 = 1e-5;

/// A gateway with a model that says where it may stop.
fn with_exits() -> Node {
    let node = gateway(home("cloud"), &["infer:*"]);
    let exits = ["exit_1=0.9667", "exit_2=0.9889", "probabilities=0.9933"];
    add(&node, &exits).ok();
    node
}

fn add(node: &Node, exits: &[&str]) -> crate::support::Ran {
    let file = root().join("tests/models/digits-l.onnx");
    let does = format!("capability={CAPABILITY}");
    let mut arguments = vec![
        "model",
        "add",
        "digits-l",
        file.to_str().unwrap(),
        "--info",
        &does,
    ];
    exits.iter().for_each(|exit| arguments.extend(["--exit", exit]));
    node.run(&arguments)
}

fn numbers(answer: &Answer, output: &str) -> Vec<f64> {
    let reply = answer.json();
    let mut outputs = reply["outputs"].as_array().unwrap().iter();
    let found = outputs.find(|given| given["name"] == output);
    let data = found.unwrap_or_else(|| panic!("{output}: {reply}"))["data"].as_array();
    data.unwrap()
        .iter()
        .map(|number| number.as_f64().unwrap())
        .collect()
}

#[test]
fn a_model_up_to_an_exit_answers_what_the_whole_model_has_there() {
    let node = with_exits();
    let server = &node.server;
    let whole = infer(server, "digits-l", &[]);
    assert_eq!(
        (whole.status, header(&whole, "karman-exit")),
        (200, None),
        "{whole:?}"
    );
    for (depth, output) in [("1", "exit_1"), ("2", "exit_2")] {
        let name = format!("digits-l:{depth}");
        let about = server.get(&format!("/v2/models/{name}")).json();
        assert_eq!(about["outputs"].as_array().unwrap().len(), 1, "{about}");
        let answer = infer(server, &name, &[]);
        assert_eq!(
            (answer.status, header(&answer, "karman-exit")),
            (200, Some(depth)),
            "{answer:?}"
        );
        let why = header(&answer, "karman-why").unwrap();
        assert!(why.contains(&format!("early exit {depth}")), "{why}");
        let reply = answer.json();
        assert_eq!(
            reply["parameters"]["legs"][0]["exit"].to_string(),
            depth,
            "{reply}"
        );
        assert_eq!(reply["outputs"].as_array().unwrap().len(), 1, "{reply}");
        let (early, there) = (numbers(&answer, "probabilities"), numbers(&whole, output));
        assert_eq!(early.len(), there.len());
        let largest = there.iter().copied().fold(0.0, f64::max);
        let mut pairs = early.iter().zip(&there);
        assert!(
            pairs.all(|(one, other)| (one - other).abs() <= ROUNDING * largest),
            "{early:?} {there:?}"
        );
    }
    // The last of them is the whole model, and has no other name.
    for none in ["digits-l:3", "digits-l:0", "digits-s:1"] {
        assert_eq!(infer(server, none, &[]).status, 404, "{none}");
    }
    add(&node, &["exit_9=0.9", "probabilities=0.99"]).fails(2, "exit_9");
    // Without a word of them there are none.
    add(&node, &[]).ok();
    assert_eq!(infer(server, "digits-l:1", &[]).status, 404);
}

#[test]
fn exits_are_measured_and_chosen_as_models_are() {
    let node = with_exits();
    let flow = node.home.path().join("digits.toml");
    let contract = r#"inputs = [{ name = "image", type = "f32", shape = [1, 1, 8, 8] }]
outputs = [{ name = "probabilities", type = "f32", shape = [1, 10] }]"#;
    let text = format!("name = \"digits\"\n[task.classify]\ncapability = \"{CAPABILITY}\"\n{contract}\n");
    std::fs::write(&flow, text).unwrap();
    let data = node.home.path().join("examples.jsonl");
    let digits = crate::choose::digits();
    let examples = digits
        .iter()
        .map(|(input, label)| json!({ "input": input, "output": { "probabilities": label } }).to_string());
    std::fs::write(&data, examples.collect::<Vec<_>>().join("\n")).unwrap();
    let here = node.id()[..8].to_owned();
    let prices = [
        format!("digits-l@{here}=0.003"),
        format!("digits-l:2@{here}=0.002"),
        format!("digits-l:1@{here}=0.001"),
    ];
    let (flow, data) = (flow.to_str().unwrap(), data.to_str().unwrap());
    let mut measure = vec!["flow", "measure", flow, "classify", "--data", data];
    prices.iter().for_each(|price| measure.extend(["--cost", price]));
    node.run(&measure).ok();

    // The most accurate of those that are cheap enough.
    let task = CAPABILITY.replace('/', "%2F");
    for (most, model, exit) in [
        ("0.003", "digits-l", None),
        ("0.002", "digits-l:2", Some("2")),
        ("0.001", "digits-l:1", Some("1")),
    ] {
        let answer = infer(&node.server, &task, &[("karman-cost", most)]);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert_eq!(
            (header(&answer, "karman-model"), header(&answer, "karman-exit")),
            (Some(model), exit),
            "{answer:?}"
        );
    }
}
