//! Requests with objectives: who answers is chosen among those that were measured, over REST and gRPC, and said.

use super::clients::python;
use super::*;

const CAPABILITY: &str = "vision/classification/digits";
/// What the large model costs in this test; the small one costs nothing.
const PRICE: &str = "0.002";

/// A gateway with two models that do the same, both measured.
fn measured() -> Node {
    let home = home("cloud");
    let arguments = ["gateway", "--listen", "127.0.0.1:0", "--open", "infer:*"];
    let server = home.start(arguments);
    let node = Node { home, server };
    for model in ["digits-s", "digits-l"] {
        let file = root().join(format!("tests/models/{model}.onnx"));
        let does = format!("capability={CAPABILITY}");
        node.run(&["model", "add", model, file.to_str().unwrap(), "--info", &does])
            .ok();
    }
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
    let cost = format!("digits-l@{}={PRICE}", &node.id()[..8]);
    let (flow, data) = (flow.to_str().unwrap(), data.to_str().unwrap());
    node.run(&[
        "flow", "measure", flow, "classify", "--data", data, "--cost", &cost,
    ])
    .ok();
    node
}

fn capability() -> String {
    CAPABILITY.replace('/', "%2F")
}

#[test]
fn who_answers_is_chosen_within_what_the_caller_wants() {
    let node = measured();
    let ask = |headers: &[(&str, &str)]| infer(&node.server, &capability(), headers);
    let served = |answer: &Answer| header(answer, "karman-model").map(str::to_owned);

    // Without bounds the most accurate answers, and it is said why and under which name to ask for more.
    let answer = ask(&[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(served(&answer).as_deref(), Some("digits-l"), "{answer:?}");
    assert_eq!(header(&answer, "karman-node"), Some(&node.id()[..]));
    assert!(header(&answer, "karman-cut").is_some(), "{answer:?}");
    let decision = header(&answer, "karman-decision").unwrap();
    assert_eq!(answer.json()["parameters"]["decision"], decision);
    let why = node.run(&["why", decision]).ok().out();
    assert!(
        why.contains(&format!("who serves `{CAPABILITY}`: digits-l@")),
        "{why}"
    );

    // Who is too expensive does not answer, however accurate.
    let free = ask(&[("karman-cost", "0.001")]);
    assert_eq!(served(&free).as_deref(), Some("digits-s"), "{free:?}");
    let accurate = ask(&[("karman-accuracy", "0.98"), ("karman-cost", PRICE)]);
    assert_eq!(served(&accurate).as_deref(), Some("digits-l"), "{accurate:?}");

    // What nobody can do is refused, by the name of the bound; the first of several that cannot be met together.
    for (headers, names) in [
        (&[("karman-accuracy", "0.9999")][..], "karman-accuracy"),
        (
            &[("karman-accuracy", "0.98"), ("karman-cost", "0.001")],
            "karman-cost",
        ),
        (&[("karman-p95", "1 us")], "karman-p95"),
    ] {
        let refused = ask(headers);
        assert_eq!(refused.status, 412, "{refused:?}");
        let error = refused.json()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with(&format!("`{names}` cannot be met")), "{error}");
    }
    for wrong in [
        ("karman-accuracy", "1.5"),
        ("karman-p95", "soon"),
        ("karman-cost", "-1"),
    ] {
        let refused = ask(&[wrong]);
        assert_eq!(refused.status, 400, "{refused:?}");
        assert!(refused.text().contains(wrong.0), "{refused:?}");
    }

    // A model by its name is held to the same bounds, and not replaced by another.
    let small = infer(&node.server, "digits-s", &[("karman-accuracy", "0.9")]);
    assert_eq!(
        (small.status, served(&small).as_deref()),
        (200, Some("digits-s")),
        "{small:?}"
    );
    let refused = infer(&node.server, "digits-s", &[("karman-accuracy", "0.9999")]);
    assert_eq!(refused.status, 412, "{refused:?}");

    // What was decided can be decided again.
    let replayed = node.run(&["replay", "--json"]).ok();
    let replayed: Value = serde_json::from_str(&replayed.out()).unwrap();
    assert_eq!(replayed["different"], json!([]), "{replayed}");
    assert!(replayed["same"].as_u64() >= Some(4), "{replayed}");
}

#[test]
fn objectives_are_metadata_of_grpc() {
    let node = measured();
    let said = python(&node, "objectives.py", &[CAPABILITY]);
    assert_eq!(said.lines().last(), Some("done"), "{said}");
}

#[test]
fn bounds_need_measurements() {
    let node = gateway(home("cloud"), &["infer:*"]);
    let refused = infer(&node.server, MODEL, &[("karman-accuracy", "0.5")]);
    assert_eq!(refused.status, 404, "{refused:?}");
    assert!(refused.text().contains("karman flow measure"), "{refused:?}");
}
