//! A quantised model split inside its layers over three nodes, one process each, none with the memory for its largest layer.

use crate::mesh::{FOUND, Node, home, path, up};
use crate::support::{Home, Ran, pause};
use karman_infer::graph::Graph;
use karman_infer::integer::Integer;
use karman_infer::zoo::{Architecture, Variant};
use karman_infer::{Backend, LoadOptions, ModelLimits, Tract};
use karman_tensor::Tensor;
use serde_json::{Value, json};
use std::time::Instant;

const MODEL: &str = "mobilenet-int8";
/// What a piece may take on a node, in KiB: less than half of what the largest layer does.
const MEMORY_KIB: u64 = 24;

/// A node whose models run on tract, so that what comes after the layers in whole numbers gives the same bits here as there.
fn on_tract(tier: &str) -> Home {
    let home = home(tier);
    let file = home.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    std::fs::write(file, format!("backend = \"tract\"\n{config}")).unwrap();
    home
}

/// An edge node, and two others of its mesh.
fn three() -> [Node; 3] {
    let home = on_tract("cloud");
    home.run(["mesh", "init"]).ok();
    let cloud = up(home, &[]);
    let join = |tier: &str| {
        let word = cloud.invite(&["--tier", tier]);
        up(on_tract(tier), &["--join", &word])
    };
    [join("edge"), join("fog"), cloud]
}

/// A model in 8 bits, and the picture that it is asked about.
struct Asked {
    model: &'static str,
    file: Vec<u8>,
    channels: u32,
    side: u32,
}

impl Asked {
    /// One of the zoo, the scores in real numbers.
    fn of_zoo(model: &'static str, architecture: Architecture) -> Self {
        let (channels, side) = (3, 64);
        let variant = Variant {
            input: side,
            narrower: 4,
            classes: 10,
            quantized: true,
            ..Variant::default()
        };
        Self {
            model,
            file: architecture.generate(&variant).to_vec(),
            channels,
            side,
        }
    }

    fn image(&self) -> Vec<f32> {
        (0..self.channels * self.side * self.side)
            .map(|at| ((at * 7) % 17) as f32 / 8.0 - 1.0)
            .collect()
    }

    /// What the layers give whole, in this process, without a node or a plugin.
    fn expected(&self) -> Vec<Vec<f32>> {
        let graph = Graph::read(self.file.clone(), &ModelLimits::default()).unwrap();
        let integer = Integer::read(&graph).unwrap();
        let shape = [1, self.channels, self.side, self.side];
        let image = Tensor::from_slice(shape, &self.image()).unwrap();
        let items = integer.quantise(&[("image".to_owned(), image)]).unwrap();
        let whole = integer.network().activations(&items[0]).unwrap();
        let given = integer.gives().into_iter().map(|at| whole[at].clone());
        let handed = integer.hand_over(&[given.collect()]).unwrap();
        let rest = Tract.load(&integer.rest().model, &LoadOptions::default());
        let results = rest.unwrap().run(handed).unwrap();
        let of = |name: &String| {
            let result = results.iter().find(|(result, _)| result == name);
            result.unwrap().1.view::<f32>().unwrap().to_vec()
        };
        integer.results().iter().map(of).collect()
    }

    fn add_to(&self, node: &Node) {
        let onnx = node.home.path().join("model.onnx");
        std::fs::write(&onnx, &self.file).unwrap();
        node.run(&["model", "add", self.model, onnx.to_str().unwrap()])
            .ok();
    }

    fn ask(&self, node: &Node) -> (u16, Value) {
        let shape = [1, self.channels, self.side, self.side];
        let input = json!({ "name": "image", "shape": shape, "datatype": "FP32", "data": self.image() });
        let body = json!({ "inputs": [input] }).to_string();
        let json = [("content-type", "application/json")];
        let path = format!("/models/{}/run", self.model);
        let answer = node.home.ask("POST", &path, &json, body.as_bytes());
        let answer = answer.expect("no node answers");
        (answer.status, answer.json())
    }

    fn run(&self, node: &Node) -> Value {
        let (status, answer) = self.ask(node);
        assert_eq!(status, 200, "{answer}");
        answer
    }
}

/// Each output.
fn results(answer: &Value) -> Vec<Vec<f32>> {
    let outputs = answer["outputs"].as_array().unwrap().iter();
    let numbers = |output: &Value| {
        let data = output["data"].as_array().unwrap().iter();
        data.map(|number| number.as_f64().unwrap() as f32).collect()
    };
    outputs.map(numbers).collect()
}

/// Which nodes computed pieces, or the rest.
fn took_part(answer: &Value) -> Vec<String> {
    let legs = answer["parameters"]["legs"].as_array().unwrap();
    let done = legs.iter().filter(|leg| leg["failed"].is_null());
    let mut nodes: Vec<String> = done.map(|leg| leg["node"].as_str().unwrap().to_owned()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    nodes
}

fn plan(node: &Node, model: &str, on: &str, more: &[&str]) -> Ran {
    let plan = ["model", "plan", model, "--inside", "--on", on];
    node.run(&[&plan[..], more].concat())
}

/// Plans until that works: the nodes have to hear of each other's plugins.
fn planned(node: &Node, model: &str, on: &str, more: &[&str]) -> Value {
    let command = ["model", "plan", model, "--inside", "--on", on, "--json"];
    let shown = node.soon(&[&command[..], more].concat(), b"");
    serde_json::from_str(&shown.out()).unwrap()
}

#[test]
fn layers_in_pieces_on_three_nodes_give_the_bits_of_the_whole() {
    let [edge, fog, cloud] = three();
    let ids = [edge.id(), fog.id(), cloud.id()];
    // Convolutions of every kind, additions, a mean.
    let asked = Asked::of_zoo(MODEL, Architecture::MobileNetV2);
    let wanted = asked.expected();
    asked.add_to(&edge);
    let by_back_end = asked.run(&edge);

    // A node without the plugin cannot take part, and is named.
    for node in [&edge, &fog] {
        node.run(&["deploy", &path("split-worker")]).ok();
    }
    let started = Instant::now();
    let lacking = format!("node {} does not run `split-worker`", &ids[2][..8]);
    while !plan(&edge, MODEL, &ids[2], &[]).stderr.contains(&lacking) {
        assert!(
            started.elapsed() < FOUND,
            "{:?}",
            plan(&edge, MODEL, &ids[2], &[])
        );
        pause();
    }
    cloud.run(&["deploy", &path("split-worker")]).ok();

    // One node alone takes more than any of the three may.
    let alone = planned(&edge, MODEL, &ids[0], &["--apply"]);
    let needs = alone["nodes"][0]["peak"].as_u64().unwrap();
    assert!(needs > 2 * (MEMORY_KIB << 10), "{alone}");
    assert_eq!(alone["alone"].as_u64(), Some(needs));
    assert_eq!(results(&asked.run(&edge)), wanted);
    let too_little = plan(&edge, MODEL, &ids[0], &["--memory", "100B"]);
    too_little.fails(5, &ids[0][..8]);

    let (all, memory) = (ids.join(","), format!("{MEMORY_KIB}KiB"));
    let split = planned(&edge, MODEL, &all, &["--memory", &memory, "--apply"]);
    println!("{}", plan(&edge, MODEL, &all, &["--memory", &memory]).ok().out());
    let nodes = split["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 3);
    for node in nodes {
        assert!(node["peak"].as_u64().unwrap() <= MEMORY_KIB << 10, "{node}");
        assert!(node["calls"].as_u64().unwrap() > 0, "{node}");
    }
    let answer = asked.run(&edge);
    assert_eq!(results(&answer), wanted);
    let mut everyone = ids.to_vec();
    everyone.sort_unstable();
    assert_eq!(took_part(&answer), everyone, "{answer}");
    // What travelled is what was foreseen, or less where numbers are written shorter.
    for leg in answer["parameters"]["legs"].as_array().unwrap() {
        let Some(node) = nodes
            .iter()
            .find(|node| node["node"] == leg["node"] && leg["bytes_in"] != 0)
        else {
            continue;
        };
        assert!(leg["bytes_in"].as_u64() <= node["sent"].as_u64(), "{leg} {node}");
        assert_eq!(leg["bytes_out"], node["received"], "{leg} {node}");
    }
    assert!(edge.run(&["model", "list"]).ok().out().contains("in pieces of"));

    // The pieces of a node that dies are computed by the others.
    fog.server.signal_kill();
    let answer = asked.run(&edge);
    assert_eq!(results(&answer), wanted);
    assert!(!took_part(&answer).contains(&ids[1]), "{answer}");
    let legs = answer["parameters"]["legs"].as_array().unwrap();
    let dead = legs.iter().find(|leg| leg["node"] == ids[1].as_str()).unwrap();
    assert!(dead["failed"].as_str().unwrap().contains(&ids[1][..8]), "{dead}");

    // Where there are no others, the request is refused by the name of the node.
    planned(&edge, MODEL, &ids[2], &["--apply"]);
    assert_eq!(results(&asked.run(&edge)), wanted);
    cloud.server.signal_kill();
    let (status, refused) = asked.ask(&edge);
    assert!([503, 504].contains(&status), "{status}: {refused}");
    assert!(refused.to_string().contains(&ids[2][..8]), "{refused}");

    edge.run(&["model", "plan", MODEL, "--whole"]).ok();
    assert_eq!(results(&asked.run(&edge)), results(&by_back_end));
}

#[test]
fn maxima_and_layers_side_by_side_are_in_pieces_too() {
    let nodes = three();
    for node in &nodes {
        node.run(&["deploy", &path("split-worker")]).ok();
    }
    let (edge, all) = (&nodes[0], nodes.each_ref().map(Node::id).join(","));
    let exits = Asked {
        model: "digits-int8",
        file: std::fs::read(crate::support::root().join("tests/models/digits-l-int8.onnx")).unwrap(),
        channels: 1,
        side: 8,
    };
    let shortcuts = Asked::of_zoo("resnet-int8", Architecture::ResNet50);
    for (asked, layers) in [(shortcuts, 71), (exits, 10)] {
        asked.add_to(edge);
        let plan = planned(edge, asked.model, &all, &["--apply"]);
        assert_eq!(plan["layers"].as_array().unwrap().len(), layers, "{plan}");
        let answer = asked.run(edge);
        assert_eq!(results(&answer), asked.expected(), "{}", asked.model);
        assert_eq!(took_part(&answer).len(), 3, "{answer}");
    }
}

#[test]
fn a_model_without_whole_numbers_is_not_split_inside() {
    let home = on_tract("edge");
    home.run(["mesh", "init"]).ok();
    let node = up(home, &[]);
    node.run(&["deploy", &path("split-worker")]).ok();
    let file = crate::support::root().join("tests/models/digits-m.onnx");
    node.run(&["model", "add", MODEL, file.to_str().unwrap()]).ok();
    plan(&node, MODEL, "all", &[]).fails(4, "whole numbers");
}
