//! The digit models on both back-ends, from inside the sandbox.

use crate::mesh::first;
use crate::support::{Home, guest, root};

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
}
