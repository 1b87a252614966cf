//! Models of a node that its operator has run on the GPU.

use super::hostile::has_vulkan;
use crate::gateway::infer;
use crate::support::{Home, Ran, guest, root};
use serde_json::Value;

/// A node with this `[gpu]`.
fn home(gpu: &str) -> Home {
    let home = Home::new();
    configure(&home, gpu);
    home
}

fn configure(home: &Home, gpu: &str) {
    let folder = home.path().join("config/karman");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("node.toml"), format!("[gpu]\n{gpu}\n")).unwrap();
}

fn add(home: &Home, model: &str) -> Ran {
    let file = root().join(format!("tests/models/{model}.onnx"));
    home.run(["model", "add", model, file.to_str().unwrap()])
}

/// What a plugin is told that loads the model by its name.
fn classified(home: &Home, model: &str) -> Ran {
    let (classify, seven) = (guest("classify"), root().join("tests/data/seven.png"));
    let meta = format!("model={model}");
    let picture = seven.to_str().unwrap();
    home.run([
        "run",
        classify.to_str().unwrap(),
        picture,
        "--meta",
        &meta,
        "--json",
    ])
}

fn called(home: &Home, model: &str) -> Ran {
    let image = format!("{{\"image\":[[{:?}]]}}", [[0.5; 8]; 8]);
    home.run_with(["call", &format!("model/{model}"), "-"], image.as_bytes())
}

/// Where the running node says that a model runs.
fn runs_on(home: &Home, model: &str) -> String {
    let models = home.control("/models");
    let mut models = models.as_array().unwrap().iter();
    let found = models.find(|known| known["name"] == model).unwrap();
    found["runs_on"].as_str().unwrap().to_owned()
}

/// When it is added, and when it is asked for: never does the processor run it in silence. Its node starts all the same.
#[test]
fn a_model_with_an_operator_without_a_kernel_is_refused_by_its_name_and_its_node_starts() {
    let says = "operator `QuantizeLinear`";
    let home = Home::new();
    add(&home, "digits-l-int8").ok();
    configure(&home, "models = { \"digits-*\" = \"gpu\" }");
    add(&home, "digits-l-int8").fails(4, says);
    is_told(&home, says);
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    is_told(&home, says);
    called(&home, "digits-l-int8").fails(4, says);
    add(&home, "digits-l-int8").fails(4, says);
    drop(server);
    configure(&home, "models = { \"digits-*\" = \"auto\" }");
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    add(&home, "digits-l-int8").ok();
}

/// Who looks at the node or at its models.
#[track_caller]
fn is_told(home: &Home, says: &str) {
    for told in [home.run(["doctor"]), home.run(["model", "list"])] {
        let told = told.ok().out();
        assert!(told.contains(says), "{told}");
    }
}

#[test]
fn without_a_gpu_a_model_for_it_is_unavailable_and_one_for_either_says_where_it_runs() {
    let home =
        home("device = \"off\"\nmodels = { digits-m = \"gpu\", digits-s = \"auto\", nosuch = \"gpu\" }");
    for model in ["digits-s", "digits-m", "digits-l"] {
        add(&home, model).ok();
    }
    let off = "turned GPUs off";
    classified(&home, "digits-m").fails(4, off);
    let ran = classified(&home, "digits-s").ok();
    let line: Value = serde_json::from_str(&ran.out()).unwrap();
    assert!(line["ran_on"].as_str().unwrap().ends_with(", cpu)"), "{line}");
    let listed = home.run(["model", "list"]).ok().out();
    assert!(
        listed.contains("RUNS ON") && listed.contains("gpu or cpu"),
        "{listed}"
    );
    let looked = home.run(["doctor"]).ok().out();
    assert!(
        looked.contains(off) && looked.contains("model nosuch"),
        "{looked}"
    );

    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    called(&home, "digits-m").fails(4, off).fails(4, "\"auto\"");
    is_told(&home, off);
    for model in ["digits-s", "digits-l"] {
        assert!(called(&home, model).ok().out().contains("probabilities"));
    }
    assert_eq!(runs_on(&home, "digits-m"), "gpu");
    assert!(
        runs_on(&home, "digits-s").contains(off),
        "{}",
        runs_on(&home, "digits-s")
    );
    assert!(runs_on(&home, "digits-l").ends_with(", cpu"));
}

#[test]
fn models_by_name_run_on_the_device_that_the_operator_named() {
    let home = home("device = \"vulkan-0\"\nmodels = { \"digits-*\" = \"gpu\", digits-l = \"auto\" }");
    if !has_vulkan(&home) {
        return;
    }
    for model in ["digits-s", "digits-m", "digits-l"] {
        add(&home, model).ok();
    }
    for model in ["digits-s", "digits-m"] {
        let ran = classified(&home, model).ok();
        let line: Value = serde_json::from_str(&ran.out()).unwrap();
        let ran_on = line["ran_on"].as_str().unwrap();
        assert!(
            ran_on.starts_with(model) && ran_on.contains("gpu, vulkan-0"),
            "{ran_on}"
        );
        assert!(
            ran.out().contains("\"label\":7") || ran.out().contains("\\\"label\\\":7"),
            "{ran:?}"
        );
    }

    let server = home.start(["gateway", "--listen", "127.0.0.1:0", "--open", "infer:*"]);
    assert_eq!(runs_on(&home, "digits-m"), "gpu");
    for model in ["digits-m", "digits-l"] {
        assert!(called(&home, model).ok().out().contains("probabilities"));
    }
    assert!(runs_on(&home, "digits-m").starts_with("gpu, vulkan-0"));
    // Which of them was faster is for the machine to say.
    let either = runs_on(&home, "digits-l");
    assert!(
        either.contains("auto: measured") && either.contains(" on the GPU and "),
        "{either}"
    );
    let answer = infer(&server, "digits-m", &[]);
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.head.contains("gpu, vulkan-0"), "{}", answer.head);
    assert_eq!(server.get("/v2/models/digits-m").json()["platform"], "onnx_gpu");
    let profile = home.run(["model", "profile", "digits-m", "--json"]).ok();
    let profile: Value = serde_json::from_str(&profile.out()).unwrap();
    assert!(
        profile["gpu"]["runs_on"]
            .as_str()
            .unwrap()
            .starts_with("gpu, vulkan-0"),
        "{profile}"
    );
    assert!(
        profile["gpu"]["whole"]["seconds"].as_f64().unwrap() > 0.0,
        "{profile}"
    );
    home.run(["model", "plan", "digits-m"])
        .fails(4, "as a whole on the GPU");
}
