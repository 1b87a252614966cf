//! The demonstration: five processes, shaped links, real passes; a node that is killed, an uplink that is gone, a tighter SLO.

use crate::support::{self, Home, exchange, root};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Stdio};
use std::time::Duration;

/// How right the answers of each model are at least, by the pictures that are made of the part of the terrain that it never saw.
const LEAST_IOU: f64 = 0.7;

/// A demonstration that stays up; killed when dropped.
struct Kept {
    demo: Child,
    says: BufReader<ChildStdout>,
}

impl Kept {
    fn start(home: &Home) -> Self {
        let plugins = root().join("target/guests");
        let arguments = ["demo", "flood", "--keep", "--json", "--plugins"];
        let mut demo = home
            .command(arguments)
            .arg(plugins)
            .env("TMPDIR", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let says = BufReader::new(demo.stdout.take().unwrap());
        Self { demo, says }
    }

    /// The next object that it prints.
    fn says(&mut self) -> Value {
        let mut line = String::new();
        self.says.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: it said `{line}`"))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
    }
}

/// Degrees between two places on the Earth, seen from its middle.
fn apart(one: &Value, other: &Value) -> f64 {
    let of = |place: &Value| {
        let [latitude, longitude] =
            ["latitude", "longitude"].map(|key| place[key].as_f64().unwrap().to_radians());
        let level = latitude.cos();
        [level * longitude.cos(), level * longitude.sin(), latitude.sin()]
    };
    let product: f64 = of(one)
        .iter()
        .zip(of(other))
        .map(|(one, other)| one * other)
        .sum();
    product.clamp(-1.0, 1.0).acos().to_degrees()
}

/// The dashboard's map has the satellite on its orbit, the dish, and the contacts of the two that come; while one is open, it is over the
/// dish.
fn the_dashboard_shows_the_sky(shown: &Value) {
    let text = |field: &str| shown[field].as_str().unwrap();
    let address = text("dashboard")
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let bearer = format!("Bearer {}", text("token"));
    let ahead = || {
        let stream = TcpStream::connect(address).unwrap();
        let told = exchange(
            stream,
            "GET",
            "/admin/contacts",
            &[("authorization", &bearer[..])],
            b"",
        );
        assert_eq!(told.status, 200, "{told:?}");
        told.json()
    };
    until("a satellite on its orbit with contacts that come", || {
        let ahead = ahead();
        let track = ahead["satellites"][0]["track"].as_array();
        track.is_some_and(|track| track.len() > 1) && ahead["contacts"][0].is_object()
    });
    let seen = ahead();
    let (satellite, station) = (&seen["satellites"][0], &seen["stations"][0]);
    assert_eq!(satellite["name"], "CBERS 2", "{seen}");
    for contact in seen["contacts"].as_array().unwrap() {
        let ends = [&contact["from"], &contact["to"]];
        assert!(
            ends.contains(&&satellite["node"]) && ends.contains(&&station["node"]),
            "{contact}"
        );
    }
    until("a pass", || {
        let seen = ahead();
        let now = seen["now_ms"].as_i64();
        let is_open = seen["contacts"][0]["start_ms"]
            .as_i64()
            .is_some_and(|start| Some(start) <= now);
        let (above, dish) = (&seen["satellites"][0]["track"][0], &seen["stations"][0]["place"]);
        // 780 km up it is seen from 10 degrees of elevation on where it is nearer than a quarter of a right angle.
        assert!(!is_open || apart(above, dish) < 22.5, "{seen}");
        is_open
    });
}

#[test]
fn a_flood_is_found_also_when_nodes_and_links_fail() {
    let home = Home::new();
    let mut demo = Kept::start(&home);
    let report = demo.says();
    let list = |field: &str| report[field].as_array().unwrap().clone();

    // Both models are measured where they run, with pictures that neither was trained on.
    let measured = list("measured");
    let names: Vec<&str> = measured.iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(names.len(), 2, "{measured:?}");
    assert!(
        names[0].starts_with("flood-l@") && names[1].starts_with("flood-s@"),
        "{names:?}"
    );
    for one in &measured {
        let accuracy = one["implementation"]["profile"]["accuracy"].as_f64().unwrap();
        assert!(accuracy > LEAST_IOU, "{one}");
    }

    // Alone the satellite does it by itself, and the alert goes with the next pass.
    let runs = list("runs");
    let served = |run: &Value, by: &str| run["by"].as_object().unwrap().contains_key(by);
    let taken = |how: &str| -> Vec<&Value> { runs.iter().filter(|run| run["taken"] == how).collect() };
    let alone = taken("alone");
    assert!(!alone.is_empty(), "{report}");
    for run in alone.iter().filter(|run| run["error"].is_null()) {
        assert!(
            served(run, "flood-s@sat") && !served(run, "flood-l@dish"),
            "{run}"
        );
        assert!(
            run["why"].to_string().contains("no other can be reached"),
            "{run}"
        );
    }
    // There is one before each pass, or it is told why not.
    let acts = list("acts");
    let missing = acts.iter().flat_map(|act| act["missing"].as_array().unwrap());
    let told = missing.filter(|why| why.as_str().unwrap().contains("capture alone"));
    assert_eq!(alone.len() + told.count(), acts.len(), "{report}");
    // In reach of the dish the large model is worth the journey.
    assert!(runs.iter().any(|run| served(run, "flood-l@dish")), "{runs:?}");
    let found: Vec<&Value> = runs.iter().filter(|run| run["overlap"].is_number()).collect();
    assert!(found.len() * 2 > runs.len(), "{runs:?}");
    for run in &found {
        assert!(run["overlap"].as_f64().unwrap() > 0.6, "{run}");
        let siren = run["siren"]["node"].as_str();
        assert!(
            siren.is_some() || run["flooded-km2"].as_f64().unwrap() < 1.0,
            "{run}"
        );
    }
    // What the acts are called is what was done in them.
    let done = |act: usize| acts[act]["done"].as_str().unwrap_or_default();
    assert_eq!(acts[0]["done"], Value::Null);
    assert!(done(1).starts_with("the fog node was killed"), "{}", acts[1]);
    assert!(done(2).contains("were cut"), "{}", acts[2]);
    assert!(
        done(3).starts_with("the SLO was tightened") && acts[3]["slo"] != acts[2]["slo"],
        "{}",
        acts[3]
    );
    // The siren sounds without an uplink, too.
    let act = |name: &str| acts.iter().position(|act| act["title"] == name).unwrap();
    let gone = act("the uplink is gone");
    let sounded = |run: &&Value| run["act"] == gone && run["siren"]["node"].is_string();
    assert!(runs.iter().any(|run| sounded(&run)), "{runs:?}");

    // Two boards have bettered the model on board, which went up by the link that there is, and is measured anew.
    let round = &report["round"];
    let number = |field: &str| {
        round[field]
            .as_f64()
            .unwrap_or_else(|| panic!("{field}: {report}"))
    };
    assert_eq!(round["clients"].as_array().unwrap().len(), 2, "{round}");
    assert!(number("after") > number("before"), "{round}");
    let weights = 881.0 * 4.0;
    assert!(
        number("bytes-down") >= 2.0 * weights
            && number("bytes-up") > 2.0 * weights
            && number("model-bytes") > weights,
        "{round}"
    );
    let anew = &round["measured"]["implementation"]["profile"];
    assert!(anew["accuracy"].as_f64().unwrap() > LEAST_IOU, "{round}");

    // The gateway's answers say who was chosen for the bounds of a request; what nobody keeps is refused by its name.
    let asked = list("asked");
    assert!(asked.len() >= 3, "{asked:?}");
    for answered in asked.iter().filter(|asked| asked["status"] == 200) {
        assert_eq!(answered["model"], "flood-l", "{answered}");
        assert!(
            answered["decision"].is_string() && answered["why"].is_string(),
            "{answered}"
        );
        assert!(answered["overlap"].as_f64().unwrap() > 0.5, "{answered}");
    }
    assert_eq!(
        (&asked[0]["status"], &asked[0]["act"]),
        (&json!(200), &json!(0)),
        "{asked:?}"
    );
    let unmet = asked
        .iter()
        .find(|asked| asked["bounds"]["karman-accuracy"] == "0.999");
    assert_eq!(unmet.unwrap()["status"], 412, "{asked:?}");

    // The satellite speaks to nobody but the dish, and every decision can be made again.
    let links = list("sent");
    let bytes = |from: &str, to: &str| {
        let of = |link: &&Value| link["from"] == from && link["to"] == to;
        links
            .iter()
            .find(of)
            .and_then(|link| link["bytes"].as_u64())
            .unwrap_or(0)
    };
    assert!(
        bytes("sat", "dish") > 1000 && bytes("dish", "siren") > 0,
        "{links:?}"
    );
    assert_eq!(report["replayed"]["different"], json!([]), "{report}");
    assert!(report["replayed"]["same"].as_u64().unwrap() > 0, "{report}");

    the_dashboard_shows_the_sky(&demo.says());
    // All was told: whoever ends it now has seen all of it.
    kill_process(Pid::from_child(&demo.demo), Signal::TERM).unwrap();
    assert_eq!(demo.demo.wait().unwrap().code(), Some(0));
}

#[test]
fn without_its_plugins_it_says_how_to_build_them() {
    let home = Home::new();
    let refused = home.run(["demo", "flood", "--plugins", "nowhere"]);
    refused.fails(4, "cargo xtask demo");
}

/// The nodes of a demonstration whose temporary folder is below this one.
fn nodes(below: &Path) -> usize {
    let below = below.to_string_lossy();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    lines
        .map(|line| String::from_utf8_lossy(&line).into_owned())
        .filter(|line| line.contains(&*below) && line.contains("--end-with"))
        .count()
}

fn until(what: &str, is: impl Fn() -> bool) {
    let what = format_args!("{what} does not come about");
    support::until(Duration::from_secs(60), what, is);
}

/// However it is ended, no node stays; and where it is asked to end, no folder either.
#[test]
fn a_demonstration_that_is_ended_leaves_nothing_running() {
    for (signal, code) in [(Signal::TERM, Some(1)), (Signal::KILL, None)] {
        let home = Home::new();
        // It is ended before it looks into them.
        for name in [
            "flood-capture",
            "flood-tiles",
            "flood-screen",
            "flood-alert",
            "siren",
            "fed-flood",
        ] {
            std::fs::write(home.path().join(format!("{name}.wasm")), "").unwrap();
        }
        let mut demo = home
            .command(["demo", "flood", "--plugins", home.path().to_str().unwrap()])
            .env("TMPDIR", home.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        until("a node", || nodes(home.path()) > 0);
        kill_process(Pid::from_child(&demo), signal).unwrap();
        assert_eq!(demo.wait().unwrap().code(), code);
        until("the end of all nodes", || nodes(home.path()) == 0);
        let mut left = home.path().read_dir().unwrap().flatten();
        let folder = left.find(|entry| entry.file_name().to_string_lossy().starts_with("karman-demo-"));
        assert_eq!(folder.is_some(), signal == Signal::KILL);
    }
}
