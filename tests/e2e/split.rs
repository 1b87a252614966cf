//! A model that runs in parts on three nodes, one process each, made slow so that a part is worth a journey.

mod encoded;

use crate::mesh::{FOUND, Node, home, up};
use crate::support::{Home, root, until};
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const MODEL: &str = "digits-l";
/// Enough of them that a node dies in the middle.
const REQUESTS: usize = 60;
/// A stream of them, after a third of which the node in the middle dies.
const STREAM: usize = 500;
/// Requests of the stream that are under way at once: all stages have something to do when it happens.
const AT_ONCE: usize = 4;
/// Requests that are seen to end by the plan from before, after it has moved.
const KEPT: usize = 20;
/// Different pictures in the stream.
const PICTURES: usize = 20;

/// A node of this tier that is so many times slower than the machine.
fn slow(tier: &str, slowdown: u32) -> Home {
    let home = home(tier);
    let file = home.path().join("config/karman/node.toml");
    let config = std::fs::read_to_string(&file).unwrap();
    let compute = format!("backend = \"tract\"\n{config}\n[compute]\nslowdown = {slowdown}\n");
    std::fs::write(file, compute).unwrap();
    home
}

/// An edge node with the model, and two that help it.
fn three() -> [Node; 3] {
    let home = slow("cloud", 40);
    home.run(["mesh", "init"]).ok();
    let cloud = up(home, &[]);
    let join = |tier: &str, slowdown| {
        let word = cloud.invite(&["--tier", tier, "--right", "deploy:*"]);
        up(slow(tier, slowdown), &["--join", &word])
    };
    let (edge, fog) = (join("edge", 40), join("fog", 40));
    let file = root().join(format!("tests/models/{MODEL}.onnx"));
    edge.run(&["model", "add", MODEL, file.to_str().unwrap()]).ok();
    [edge, fog, cloud]
}

/// A request with one of several pictures that are no digits, but different.
fn request(number: usize) -> Value {
    let pixel = |at: usize| ((at * 7 + number * 13) % 17) as f64 / 16.0;
    let image: Vec<f64> = (0..64).map(pixel).collect();
    json!({ "inputs": [{ "name": "image", "shape": [1, 1, 8, 8], "datatype": "FP32", "data": image }] })
}

fn run(node: &Node, number: usize) -> Value {
    let body = request(number).to_string();
    let path = format!("/models/{MODEL}/run");
    let json = [("content-type", "application/json")];
    let answer = node
        .home
        .ask("POST", &path, &json, body.as_bytes())
        .expect("no node answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn numbers(answer: &Value) -> Vec<f64> {
    let outputs = answer["outputs"].as_array().unwrap();
    let data = outputs
        .iter()
        .flat_map(|output| output["data"].as_array().unwrap());
    data.map(|number| number.as_f64().unwrap()).collect()
}

/// Which nodes ran a part.
fn took_part(answer: &Value) -> Vec<String> {
    let legs = answer["parameters"]["legs"].as_array().unwrap();
    let done = legs.iter().filter(|leg| leg["failed"].is_null());
    done.map(|leg| leg["node"].as_str().unwrap().to_owned()).collect()
}

fn assert_same(got: &Value, wanted: &Value) {
    let (got, wanted) = (numbers(got), numbers(wanted));
    let most = wanted
        .iter()
        .fold(0.0, |most: f64, number| most.max(number.abs()));
    assert_eq!(got.len(), wanted.len());
    for (got, wanted) in got.iter().zip(&wanted) {
        assert!((got - wanted).abs() <= 1e-5 * most, "{got} is not {wanted}");
    }
}

/// Until this node has heard what the other one offers.
fn wait_for(node: &Node, other: &str) {
    let known = || {
        let offers = node.home.control("/mesh/offers");
        let offers = offers.as_array().cloned().unwrap_or_default();
        offers.iter().any(|offer| offer["offer"]["node"] == other)
    };
    until(FOUND, format_args!("{other} is not found"), known);
}

/// The plan of this model goes by a link to one other node, of so many Mbit/s, and by no other.
fn state_link(node: &Node, model: &str, other: &str, rate: f64) {
    let here = node.id();
    let link =
        |from: &str, to: &str| json!({ "from": from, "to": to, "latency_ms": 0.1, "rate_mbit_s": rate });
    let links = json!([link(&here, other), link(other, &here)]).to_string();
    let path = format!("/models/{model}/links");
    let json = [("content-type", "application/json")];
    let answer = node.home.ask("PUT", &path, &json, links.as_bytes());
    let answer = answer.expect("no node answers");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn a_model_runs_in_parts_and_a_part_that_dies_is_run_elsewhere() {
    let [edge, fog, _cloud] = three();
    let whole: Vec<Value> = (0..REQUESTS).map(|number| run(&edge, number)).collect();
    assert_eq!(took_part(&whole[0]), [edge.id()]);

    // What counts is the slowest stage, so every node gets one.
    let plan = ["model", "plan", MODEL, "--over", "all", "--interval", "1"];
    let fog_id = fog.id();
    wait_for(&edge, &fog_id);
    let shown = edge.run(&plan).ok();
    println!("{}", shown.out());
    assert!(shown.out().contains(&edge.id()[..8]), "{shown:?}");
    edge.run(&[&plan[..], &["--apply"]].concat()).ok();
    let split = run(&edge, 0);
    assert_same(&split, &whole[0]);
    let parts = took_part(&split);
    println!("{parts:?}");
    assert!(parts.len() >= 2 && parts.contains(&fog_id), "{split}");

    edge.run(&["model", "plan", MODEL, "--over", "tier=mars"])
        .fails(2, "--over tier=edge");

    // What its radio takes is counted nowhere and stated by none of them: such a node would look as if sending were free.
    edge.run(&["model", "plan", MODEL, "--over", "all", "--energy", "1"])
        .fails(4, "[power]");

    // An SLO gives the weights; it bounds what depends on the cut, and nothing else.
    let within = |limit: &str| {
        let plan = ["model", "plan", MODEL, "--over", "all", "--slo", limit];
        edge.run(&plan)
    };
    within("energy=1").fails(4, "[power]");
    within("cost=1").fails(2, "`cost` is nothing that a cut keeps: p95, energy or requests");
    let (kept, broken) = (within("p95=1h").ok().out(), within("p95=1us").ok().out());
    assert!(kept.contains("of 3600000.000 ms: kept"), "{kept}");
    assert!(broken.contains("of 0.001 ms: broken"), "{broken}");

    // The quickest of those that draw little enough, or the most frugal of the quick ones: without watts, neither is told.
    let least = |limits: [&str; 2]| {
        let plan = [
            "model", "plan", MODEL, "--over", "all", "--slo", limits[0], "--slo", limits[1],
        ];
        edge.run(&plan)
    };
    least(["p95=1h", "energy=min"]).fails(4, "[power]");
    least(["p95=1h", "p95=min"]).fails(2, "state one of the two");
    least(["p95=min", "energy=min"]).fails(2, "two things cannot both be `min`");
    assert!(within("p95=min").ok().out().contains(&edge.id()[..8]));

    // Who calls the model does not know.
    let picture = root().join("tests/data/seven.png");
    let classify = crate::support::guest("classify");
    edge.run(&["deploy", classify.to_str().unwrap()]).ok();
    let answer = edge
        .run(&[
            "call",
            "classify",
            picture.to_str().unwrap(),
            "--meta",
            &format!("model={MODEL}"),
        ])
        .ok();
    assert!(answer.out().contains('7'), "{answer:?}");

    let mut server = Some(fog.server);
    for (number, wanted) in whole.iter().enumerate() {
        if number == REQUESTS / 3 {
            server.take().unwrap().signal_kill();
        }
        assert_same(&run(&edge, number), wanted);
    }
    let after = took_part(&run(&edge, 0));
    assert!(!after.contains(&fog_id), "{after:?}");

    // What has another file by now does not go on with parts of the old one.
    let other = root().join("tests/models/digits-s.onnx");
    edge.run(&["model", "add", MODEL, other.to_str().unwrap()]).ok();
    let (before, after) = (numbers(&whole[0]), numbers(&run(&edge, 0)));
    let differ = |(one, other): (&f64, &f64)| (one - other).abs() > 0.01;
    assert!(
        before.len() != after.len() || before.iter().zip(&after).any(differ),
        "{after:?}"
    );

    // With the model its plan goes.
    edge.run(&["model", "remove", MODEL]).ok();
    edge.run(&["model", "add", MODEL, other.to_str().unwrap()]).ok();
    assert_eq!(edge.home.control(&format!("/models/{MODEL}/plan")), Value::Null);
    assert_eq!(took_part(&run(&edge, 0)), [edge.id()]);
}

/// What the model says whole, of each picture.
fn expected(node: &Node) -> Vec<Value> {
    (0..PICTURES).map(|picture| run(node, picture)).collect()
}

#[test]
fn a_stream_of_500_outlives_the_node_in_the_middle() {
    let [edge, fog, cloud] = three();
    let whole = expected(&edge);
    let ids = [edge.id(), fog.id(), cloud.id()];
    ids[1..].iter().for_each(|id| wait_for(&edge, id));
    // A stage for each node, the slowest of which is as quick as can be.
    let plan = [
        "model",
        "plan",
        MODEL,
        "--over",
        "all",
        "--interval",
        "1",
        "--apply",
    ];
    println!("{}", edge.run(&plan).ok().out());
    assert_eq!(took_part(&run(&edge, 0)), ids);

    let middle = Mutex::new(Some(fog.server));
    let (next, of_three) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let stream = || loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= STREAM {
            return;
        }
        if number == STREAM / 3 {
            middle.lock().unwrap().take().unwrap().signal_kill();
        }
        let answer = run(&edge, number % PICTURES);
        assert_same(&answer, &whole[number % PICTURES]);
        if took_part(&answer) == ids {
            of_three.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(stream);
        }
    });
    // The cuts may move while it is there, and its part runs on the others when it is not.
    let of_three = of_three.into_inner();
    println!("{of_three} of {STREAM} ran on all three");
    assert!(
        (STREAM / 10..=STREAM / 3 + AT_ONCE).contains(&of_three),
        "{of_three}"
    );
    let after = run(&edge, 0);
    assert_same(&after, &whole[0]);
    assert!(!took_part(&after).contains(&ids[1]), "{after}");
}

/// The one of these nodes that the plan of a request names, which is the first that was asked for a stage: others may have stood in. No plan
/// names both, since it knows a link to one of them alone.
fn helper_of<'a>(answer: &Value, others: &'a [String]) -> Option<&'a String> {
    let mut legs = answer["parameters"]["legs"].as_array().unwrap().clone();
    legs.dedup_by_key(|leg| leg["stage"].as_u64());
    let named = |other: &&String| legs.iter().any(|leg| leg["node"] == ***other);
    let mut named = others.iter().filter(named);
    let helper = named.next();
    assert_eq!(named.next(), None, "{answer}");
    helper
}

#[test]
fn a_request_keeps_the_plan_it_started_with() {
    let [edge, fog, cloud] = three();
    let whole = expected(&edge);
    let others = [fog.id(), cloud.id()];
    others.iter().for_each(|id| wait_for(&edge, id));
    let plan = [
        "model",
        "plan",
        MODEL,
        "--over",
        "all",
        "--interval",
        "1",
        "--apply",
    ];
    edge.run(&plan).ok();
    // The links that it goes by are stated: to one of the two others alone, then to the other one. It has to move each time.
    let move_to = |other: &str| state_link(&edge, MODEL, other, 1e3);
    move_to(&others[1]);
    for other in &others {
        move_to(other);
        assert_eq!(helper_of(&run(&edge, 0), &others), Some(other));
    }

    let (next, moves, kept) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let goes_on = || next.load(Ordering::SeqCst) < STREAM && kept.load(Ordering::SeqCst) < KEPT;
    let stream = || {
        while goes_on() {
            let number = next.fetch_add(1, Ordering::SeqCst);
            let before = moves.load(Ordering::SeqCst);
            let answer = run(&edge, number % PICTURES);
            let has_moved = moves.load(Ordering::SeqCst) != before;
            assert_same(&answer, &whole[number % PICTURES]);
            // How fast nodes are is still measured, so where a plan cuts is not said here: who took part is.
            let helper = helper_of(&answer, &others);
            if has_moved && helper == Some(&others[(before + 1) % 2]) {
                kept.fetch_add(1, Ordering::SeqCst);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(stream);
        }
        while goes_on() {
            move_to(&others[moves.load(Ordering::SeqCst) % 2]);
            moves.fetch_add(1, Ordering::SeqCst);
        }
    });
    let (kept, moves) = (kept.into_inner(), moves.into_inner());
    println!("{kept} requests kept their plan over {moves} moves");
    assert!(kept >= KEPT, "{kept} over {moves} moves");
}

#[test]
fn a_part_that_hangs_is_overtaken_by_the_node_that_holds_the_data() {
    let home = home("cloud");
    home.run(["mesh", "init"]).ok();
    let cloud = up(home, &[]);
    let word = cloud.invite(&["--tier", "edge", "--right", "deploy:*"]);
    let edge = up(slow("edge", 200), &["--join", &word]);
    let file = root().join(format!("tests/models/{MODEL}.onnx"));
    edge.run(&["model", "add", MODEL, file.to_str().unwrap()]).ok();
    let whole = run(&edge, 0);
    let far = cloud.id();
    wait_for(&edge, &far);
    let plan = ["model", "plan", MODEL, "--over", "tier=cloud", "--apply"];
    println!("{}", edge.run(&plan).ok().out());
    // Meanwhile the edge makes the part of the other ready as well.
    for _ in 0..REQUESTS {
        assert_same(&run(&edge, 0), &whole);
    }
    assert!(took_part(&run(&edge, 0)).contains(&far));
    cloud.server.signal_stop();
    let answer = run(&edge, 0);
    assert_same(&answer, &whole);
    let legs = answer["parameters"]["legs"].as_array().unwrap();
    let late = legs.iter().find(|leg| leg["node"] == far.as_str()).unwrap();
    assert_eq!(late["overtaken"], true, "{answer}");
    assert_eq!(took_part(&answer).last(), Some(&edge.id()));
}

#[test]
fn a_part_that_times_out_is_asked_last_for_a_while() {
    let [edge, fog, _cloud] = three();
    let whole = run(&edge, 0);
    let far = fog.id();
    wait_for(&edge, &far);
    let plan = [
        "model", "plan", MODEL, "--over", "tier=fog", "--cut", "5", "--apply",
    ];
    println!("{}", edge.run(&plan).ok().out());
    assert!(took_part(&run(&edge, 0)).contains(&far));
    fog.server.signal_stop();
    let names_it = |answer: &Value| {
        assert_same(answer, &whole);
        let legs = answer["parameters"]["legs"].as_array().unwrap();
        legs.iter().any(|leg| leg["node"] == far.as_str())
    };
    // The second one may be on its way before the first has told.
    let asked: Vec<bool> = (0..4).map(|_| names_it(&run(&edge, 0))).collect();
    assert!(asked[0] && !asked[2] && !asked[3], "{asked:?}");
}

#[test]
fn a_plan_goes_by_predicted_times_and_says_so() {
    let [edge, fog, _cloud] = three();
    let file = root().join("tests/models/digits-s.onnx");
    for node in [&edge, &fog] {
        node.run(&["model", "add", "digits-s", file.to_str().unwrap()])
            .ok();
    }
    wait_for(&edge, &fog.id());
    let plan = |more: &[&str]| {
        let fog = fog.id();
        let plan = ["model", "plan", MODEL, "--over", &fog, "--json"];
        let planned = edge.run(&[&plan[..], more].concat()).ok().out();
        let planned: Value = serde_json::from_str(&planned).unwrap();
        planned["predicted"].clone()
    };
    // Only the edge has timed anything: the fog times the model.
    edge.run(&["model", "profile", "digits-s"]).ok();
    assert_eq!(plan(&["--predict"]), json!([edge.id()]));
    // It is timed where nothing is to be predicted, and then there is nothing to predict any more.
    assert_eq!(plan(&[]), json!([]));
    assert_eq!(plan(&["--predict"]), json!([]));
}

#[test]
fn times_are_kept_until_they_are_measured_again() {
    let [edge, _fog, _cloud] = three();
    let profile = |more: &[&str]| {
        let told = edge.run(&[&["model", "profile", MODEL, "--json"], more].concat());
        let told: Value = serde_json::from_str(&told.ok().out()).unwrap();
        told["profile"].clone()
    };
    let first = profile(&[]);
    assert_eq!(profile(&[]), first);
    let second = profile(&["--again"]);
    assert_ne!(second, first, "no two measurements of all layers are the same");
    assert_eq!(profile(&[]), second);
}
