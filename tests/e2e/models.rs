//! The digit models on both back-ends, from inside the sandbox.

use crate::mesh::{first, home, path, up};
use crate::support::{Home, PATIENCE, guest, root, until};

fn with_models() -> Home {
    let home = Home::new();
    for name in ["digits-s", "digits-m", "digits-l"] {
        let file = root().join(format!("tests/models/{name}.onnx"));
        home.run(["model", "add", name, file.to_str().unwrap()]).ok();
    }
    home
}

fn label(ran: &crate::support::Ran) -> (u64, String) {
    let line: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
    let output = match &line["output"] {
        serde_json::Value::String(text) => serde_json::from_str(text).unwrap(),
        value => value.clone(),
    };
    (
        output["label"].as_u64().unwrap(),
        line["ran_on"].as_str().unwrap_or_default().to_owned(),
    )
}

#[test]
fn every_model_classifies_a_digit_and_says_where_it_ran() {
    let home = with_models();
    let (classify, seven) = (guest("classify"), root().join("tests/data/seven.png"));
    for model in ["digits-s", "digits-m", "digits-l"] {
        let meta = format!("model={model}");
        let ran = home
            .run([
                "run",
                classify.to_str().unwrap(),
                seven.to_str().unwrap(),
                "--meta",
                &meta,
                "--json",
            ])
            .ok();
        let (found, ran_on) = label(&ran);
        assert_eq!(found, 7);
        assert!(ran_on.starts_with(model), "{ran_on}");
    }
}

#[test]
fn tract_is_there_without_any_library() {
    let home = with_models();
    let (classify, seven) = (guest("classify"), root().join("tests/data/seven.png"));
    let mut command = home.command([
        "run",
        classify.to_str().unwrap(),
        seven.to_str().unwrap(),
        "--json",
    ]);
    let output = command.env("KARMAN_BACKEND", "tract").output().unwrap();
    let ran = crate::support::Ran::of(output);
    let (found, ran_on) = label(&ran.ok());
    assert_eq!(found, 7);
    assert!(ran_on.contains("tract"), "{ran_on}");
}

#[test]
fn a_model_that_is_not_there_is_unavailable() {
    let home = Home::new();
    let (classify, seven) = (guest("classify"), root().join("tests/data/seven.png"));
    home.run(["run", classify.to_str().unwrap(), seven.to_str().unwrap()])
        .fails(4, "digits-m");
}

/// A plugin's own model is loaded for the processor where that is granted. A GPU that it asks for is never replaced in silence.
#[test]
fn a_model_for_a_target_that_is_not_there_is_refused() {
    let home = Home::new();
    let (infer, model) = (guest("infer"), root().join("tests/models/digits-s.onnx"));
    let load = |target: &str, more: &[&str]| {
        let meta = format!("target={target}");
        let mut arguments = vec!["run", infer.to_str().unwrap(), model.to_str().unwrap()];
        arguments.extend(["--meta", &meta]);
        arguments.extend(more);
        let mut command = home.command(arguments);
        crate::support::Ran::of(command.env("KARMAN_GPU__DEVICE", "off").output().unwrap())
    };
    let granted = ["--grant", "nn-raw:tract"];
    assert_eq!(load("cpu", &granted).ok().out(), "loaded");
    load("gpu", &granted).fails(1, "Security");
    let on_gpu = load("gpu", &["--grant", "nn-raw:tract", "--grant", "gpu:kernels"]);
    on_gpu.fails(
        1,
        "UnsupportedOperation: the model does not run on target `gpu`: the operator has turned GPUs off",
    );
    load("tpu", &granted).fails(1, "target `tpu`");
    load("cpu", &[]).fails(1, "Security");
}

/// All 450 held-out digits, through the node, on each back-end: at least 97 % right, and the same answers.
#[test]
fn held_out_digits_are_right_on_both_back_ends() {
    let folder = root().join("tests/data/digits");
    let mut digits: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    digits.sort();
    let answers = |backend: &str| -> Vec<u64> {
        let home = with_models();
        std::fs::create_dir_all(home.path().join("config/karman")).unwrap();
        std::fs::write(
            home.path().join("config/karman/node.toml"),
            format!("backend = \"{backend}\"\n"),
        )
        .unwrap();
        let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
        home.run(["deploy", guest("classify").to_str().unwrap()]).ok();
        digits
            .iter()
            .map(|path| {
                let answer = server.post(
                    "/tasks/classify",
                    &[("content-type", "image/png")],
                    &std::fs::read(path).unwrap(),
                );
                assert_eq!(answer.status, 200, "{}: {answer:?}", path.display());
                answer.json()["label"].as_u64().unwrap()
            })
            .collect()
    };
    let right = |answers: &[u64]| {
        let truth = digits.iter().map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            name.split('-').nth(1).unwrap().parse::<u64>().unwrap()
        });
        truth
            .zip(answers)
            .filter(|(truth, answer)| truth == *answer)
            .count()
    };
    let tract = answers("tract");
    let share = right(&tract) as f64 / digits.len() as f64;
    println!(
        "{} of {} held-out digits are right ({:.2} %)",
        right(&tract),
        digits.len(),
        share * 100.0
    );
    assert!(share >= 0.97);
    let doctor: String = Home::new().run(["doctor"]).out();
    match doctor
        .lines()
        .any(|line| line.starts_with("ok") && line.contains("onnxruntime"))
    {
        true => assert_eq!(answers("onnxruntime"), tract),
        false => println!("no ONNX Runtime here: only tract was asked"),
    }
}

#[test]
fn a_model_is_brought_to_other_nodes_and_runs_there() {
    let cloud = first();
    let edge = cloud.joined("edge", &[]);
    let file = root().join("tests/models/digits-s.onnx");
    let add = [
        "model",
        "add",
        "digits-s",
        file.to_str().unwrap(),
        "--info",
        "licence=CC0-1.0",
        "--json",
    ];
    let ran = cloud.soon(&[&add[..], &["--on", "tier=edge"]].concat(), b"");
    let added: serde_json::Value = serde_json::from_str(&ran.out()).unwrap();
    assert_eq!(
        (&added["node"], &added["name"]),
        (&edge.id().into(), &"digits-s".into()),
        "{added}"
    );
    // It is there with what is known of it, not here; and from here it is called there.
    let held = |node: &crate::mesh::Node| node.run(&["model", "list", "--json"]).ok().out();
    assert!(held(&edge).contains("CC0-1.0") && !held(&cloud).contains("digits-s"));
    let image = format!("{{\"image\":[[{:?}]]}}", [[0.5; 8]; 8]);
    let ran = cloud.soon(&["call", "model/digits-s", "-"], image.as_bytes());
    assert!(ran.out().contains("probabilities"), "{ran:?}");

    // What may not be deployed may not be brought either; nobody is asked whom nobody names.
    edge.run(&[&add[..], &["--on", "tier=cloud"]].concat())
        .fails(3, "deploy:model/digits-s");
    cloud
        .run(&[&add[..], &["--on", "tier=space"]].concat())
        .fails(4, "tier=space");

    // It goes by the same way and right.
    let remove = |on| ["model", "remove", "digits-s", "--on", on];
    edge.run(&remove("tier=cloud")).fails(3, "deploy:model/digits-s");
    let removed = cloud.run(&remove("tier=edge")).ok().out();
    assert!(removed.contains("digits-s is removed from"), "{removed}");
    assert!(!held(&edge).contains("digits-s"));
    cloud.run(&remove("tier=edge")).fails(4, "has `digits-s`");
}

#[test]
fn a_model_that_is_longer_than_a_node_takes_is_refused_with_the_key_that_says_so() {
    let (cloud, edge) = (first(), home("edge"));
    edge.configure("[models]\nmodel = \"1 KiB\"\n");
    let edge = up(edge, &["--join", &cloud.invite(&["--tier", "edge"])]);
    let file = root().join("tests/models/digits-s.onnx");
    let bytes = std::fs::read(&file).unwrap();
    let refused = edge.home.ask("POST", "/models/digits-s", &[], &bytes).unwrap();
    let error = refused.json();
    assert_eq!(
        (refused.status, &error["field"]),
        (429, &"models.model".into()),
        "{refused:?}"
    );
    let says = |error: &serde_json::Value, key: &str, part: &str| {
        assert!(error[key].as_str().unwrap().contains(part), "{error}");
    };
    says(&error, "message", "larger than 1 KiB, which this node takes");
    says(&error, "hint", "raise `models.model` in node.toml");

    // One that brings it is told the same.
    cloud.finds(2);
    let (file, edge) = (file.to_str().unwrap(), edge.id());
    let ran = cloud.run(&["model", "add", "digits-s", file, "--on", &edge, "--json"]);
    let ran = ran.fails(5, "the model has 19.5 KiB, and this node takes 1 KiB at most");
    let error: serde_json::Value = serde_json::from_str(ran.stderr.trim()).unwrap();
    assert_eq!(
        (&error["code"], &error["field"]),
        (&"limit".into(), &"models.model".into()),
        "{error}"
    );
    says(&error, "hint", "raise `models.model` in that node's node.toml");
}

#[test]
fn an_order_names_the_nodes_that_it_means_and_does_not_reach() {
    let cloud = first();
    let (_fog, edge) = (cloud.joined("fog", &[]), cloud.joined("edge", &[]));
    cloud.finds(3);
    let away = edge.id();
    edge.server.stop();
    until(PATIENCE, "it is taken to be in reach", || {
        let peers = cloud.home.control("/mesh/peers");
        let mut peers = peers.as_array().unwrap().iter();
        peers.any(|peer| peer["node"] == away.as_str() && peer["path"].is_null())
    });
    let file = root().join("tests/models/digits-s.onnx");
    let add = ["model", "add", "digits-s", file.to_str().unwrap(), "--json"];
    let added = cloud.run(&[&add[..], &["--on", "tier=fog,tier=edge"]].concat());
    let added: serde_json::Value = serde_json::from_str(&added.ok().out()).unwrap();
    assert_eq!(added["out_of_reach"], serde_json::json!([away]), "{added}");

    let deploy = |on: &str| {
        let ran = cloud.run(&["deploy", &path("tiny"), "--on", on]);
        ran.ok().stderr
    };
    let said = deploy("all");
    let left_out = format!("out of reach, so without it: {};", &away[..8]);
    assert!(said.contains(&left_out), "{said}");
    let said = deploy("tier=fog");
    assert!(!said.contains("out of reach"), "{said}");
}

/// A field of a message of an ONNX file.
fn field(number: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    assert!(body.len() < 128, "one byte says its length");
    [&[number << 3 | 2, body.len() as u8][..], body].concat()
}

/// A model of these nodes, whose inputs and outputs are lists of f32 of one length.
fn model(nodes: &[Vec<u8>], inputs: &[&str], outputs: &[&str]) -> Vec<u8> {
    let tensor = [vec![1 << 3, 1], field(2, field(1, field(2, "N")))].concat();
    let value =
        |number: u8, name: &str| field(number, [field(1, name), field(2, field(1, &tensor))].concat());
    let inputs = inputs.iter().map(|name| value(11, name));
    let outputs = outputs.iter().map(|name| value(12, name));
    let nodes = nodes.iter().map(|node| field(1, node));
    let graph: Vec<u8> = nodes
        .chain([field(2, "g")])
        .chain(inputs)
        .chain(outputs)
        .flatten()
        .collect();
    [vec![1 << 3, 8], field(7, graph), field(8, [2 << 3, 13_u8])].concat()
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|name| field(1, name));
    inputs.chain(field(2, output)).chain(field(4, operator)).collect()
}

#[test]
fn a_model_that_no_back_end_runs_is_not_added() {
    let home = Home::new();
    let domain = field(7, "com.acme");
    let frobnicate = [node("Frobnicate", &["x"], "y"), domain].concat();
    let version = field(8, [field(1, "com.acme"), vec![2 << 3, 1]].concat());
    let bytes = [model(&[frobnicate], &["x"], &["y"]), version].concat();
    let refused = || {
        home.run_with(["model", "add", "frob", "-"], &bytes)
            .fails(4, "Frobnicate");
        assert_eq!(home.run(["model", "list"]).ok().out(), "");
    };
    refused();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    refused();
}

#[test]
fn a_model_gets_a_name_that_rights_can_have_and_exits_that_it_has() {
    let home = Home::new();
    let file = root().join("tests/models/digits-l.onnx");
    let add = |name: &str, more: &[&str]| {
        home.run([&["model", "add", name, file.to_str().unwrap()][..], more].concat())
    };
    for name in ["größe", "q?w", "a,b", "sp\"ace", "a*"] {
        add(name, &[]).fails(2, "letters, digits and `-_./:@#+~`");
    }
    add("digits-l", &["--exit", "nope=0.9"]).fails(2, "nope");
    add("digits-l", &["--exit", "exit_1=0.9", "--exit", "nope=0.9"]).fails(2, "nope");
    add("digits-l", &["--exit", "probabilities=0.9"]).ok();
    add("v1.0/digits:l@a#b+c~d_e", &[]).ok();
}

#[test]
fn a_drawing_goes_to_standard_output() {
    let file = root().join("tests/models/digits-s.onnx");
    let home = Home::new();
    let mut command = home.command(["model", "inspect", file.to_str().unwrap(), "--svg", "-"]);
    let drawn = crate::support::Ran::of(command.current_dir(home.path()).output().unwrap()).ok();
    assert!(drawn.out().starts_with("<svg"), "{drawn:?}");
    assert!(!home.path().join("-").exists());
}

#[test]
fn a_model_is_removed_from_a_node_that_runs_and_from_one_that_does_not() {
    let home = with_models();
    let remove = |name: &str| home.run(["model", "remove", name]);
    assert_eq!(remove("digits-s").ok().out().trim(), "digits-s is removed");
    remove("digits-s").fails(4, "no model `digits-s`");
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let image = format!("{{\"image\":[[{:?}]]}}", [[0.5; 8]; 8]);
    let call = || home.run_with(["call", "model/digits-m", "-"], image.as_bytes());
    call().ok();
    let removed = home.run(["model", "remove", "digits-m", "--json"]).ok().out();
    let removed: serde_json::Value = serde_json::from_str(&removed).unwrap();
    assert_eq!(removed["name"], "digits-m");
    remove("digits-m").fails(4, "no model `digits-m`");
    call().fails(4, "model/digits-m");
    let listed = home.run(["model", "list"]).ok().out();
    assert!(
        listed.contains("digits-l") && !listed.contains("digits-m"),
        "{listed}"
    );
}

#[test]
fn a_run_gives_the_outputs_that_are_wanted_and_infinity_is_none_of_nan() {
    let home = Home::new();
    let nodes = [node("Div", &["a", "b"], "ratio"), node("Add", &["a", "b"], "sum")];
    let bytes = model(&nodes, &["a", "b"], &["ratio", "sum"]);
    home.run_with(["model", "add", "two", "-"], &bytes).ok();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let input = |name: &str, data: [f32; 4]| serde_json::json!({ "name": name, "shape": [4], "datatype": "FP32", "data": data });
    let run = |outputs: &[&str]| {
        let wanted = |name: &&str| serde_json::json!({ "name": name });
        let outputs: Vec<_> = outputs.iter().map(wanted).collect();
        let inputs = [
            input("a", [1.0, -1.0, 0.0, 0.3]),
            input("b", [0.0, 0.0, 0.0, 3.0]),
        ];
        let request = serde_json::json!({ "inputs": inputs, "outputs": outputs });
        home.run_with(["model", "run", "two", "-"], request.to_string().as_bytes())
    };
    let all = run(&[]).ok().out();
    assert!(all.contains("ratio FP32 [4]: inf, -inf, NaN, 0.1"), "{all}");
    assert!(all.contains("sum FP32 [4]: 1, -1, 0, 3.3"), "{all}");
    let one = run(&["sum"]).ok().out();
    assert!(one.contains("sum") && !one.contains("ratio"), "{one}");
    run(&["sum", "nope"]).fails(2, "no output `nope`");
    run(&["sum", "sum"]).fails(2, "more than once");
}
