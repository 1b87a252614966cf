//! Requests with objectives: who answers is chosen among those that were measured, over REST and gRPC, and said.

use super::clients::python;
use super::*;

const CAPABILITY: &str = "vision/classification/digits";
/// What the large model costs in this test; the small one costs nothing.
const PRICE: &str = "0.002";

/// A gateway with two models that do the same, both measured.
pub(super) fn measured() -> Node {
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

/// Runs a workflow twice that keeps what is wanted of it, and one three times that cannot; a token that may see that.
pub(super) fn ran_with_objectives(node: &Node) -> String {
    let input = node.home.path().join("digit.json");
    std::fs::write(&input, crate::choose::digits()[0].0.to_string()).unwrap();
    let file = node.home.path().join("wanted.toml");
    for (name, within, runs) in [("kept-easily", "10 min", 2), ("always-late", "1 us", 3)] {
        let slo = format!("[slo]\nrequests = 100\nlatency-p95 = \"{within}\"\n");
        let text = format!("name = \"{name}\"\n{slo}[task.classify]\ncapability = \"{CAPABILITY}\"\n");
        std::fs::write(&file, text).unwrap();
        let (file, input) = (file.to_str().unwrap(), input.to_str().unwrap());
        for _ in 0..runs {
            node.run(&["flow", "run", file, "--input", input]).ok();
        }
    }
    token(node, &["--right", "admin"])
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
fn how_far_workflows_keep_their_objectives_is_told_minute_by_minute() {
    let node = measured();
    let bearer = ran_with_objectives(&node);
    let told = node
        .server
        .send("GET", "/admin/slos", &[("authorization", &bearer[..])], b"");
    let told = told.json();
    let counts = |workflow: &Value| {
        let minutes = workflow["minutes"].as_array().unwrap();
        let sum = |what: &str| {
            minutes
                .iter()
                .map(|minute| minute[what].as_u64().unwrap())
                .sum::<u64>()
        };
        [sum("runs"), sum("late"), sum("failed")]
    };
    let (late, kept) = (&told["workflows"][0], &told["workflows"][1]);
    assert_eq!(
        (&late["workflow"], &kept["workflow"]),
        (&json!("always-late"), &json!("kept-easily"))
    );
    assert_eq!([counts(late), counts(kept)], [[3, 3, 0], [2, 0, 0]], "{told}");
    assert_eq!(kept["slo"]["latency-p95"], "600000 ms");
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
