//! Federated runs: clients in one process, on nodes that are killed, and clients that lie.

use crate::mesh::{Node, first, path, up};
use crate::support::{Home, Ran, pause};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Within which a run of five nodes is over, and those that were killed are back.
const OVER: Duration = Duration::from_secs(240);

/// Five clients whose labels are dealt by a Dirichlet distribution of 0.5.
pub(crate) fn digits(more: &str, clients: &str) -> String {
    format!(
        "name = 'digits'\nrounds = 12\nstart-with = 5\n{more}\n[clients]\nplugin = '{}'\n{clients}\n\
         [clients.properties]\nmodel = 'convolution'\nalpha = '0.5'\n\
         [pace]\nmode = 'synchronous'\nclients = 5\n[training]\nepochs = 5\nbatch = 8\nlearning-rate = 0.3\n\
         [evaluation]\nclients = 5\n",
        if clients.starts_with("simulated") {
            path("fed-digits")
        } else {
            "fed-digits".into()
        },
    )
}

pub(crate) fn describe(home: &Home, description: &str) -> String {
    let file = home.path().join("fed.toml");
    std::fs::write(&file, description).unwrap();
    file.to_str().unwrap().to_owned()
}

pub(crate) fn events(ran: &Ran) -> Vec<Value> {
    ran.out()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// The accuracy after the last version.
pub(crate) fn accuracy(events: &[Value]) -> f64 {
    let last = events.iter().rev().find(|event| event["event"] == "judged");
    last.unwrap_or_else(|| panic!("nobody judged: {events:?}"))["accuracy"]
        .as_f64()
        .unwrap()
}

pub(crate) fn troubles(events: &[Value]) -> String {
    let troubles = events.iter().filter(|event| event["event"] == "trouble");
    troubles
        .map(|event| format!("{} {}\n", event["client"], event["what"]))
        .collect()
}

pub(crate) fn export(home: &Home) -> Vec<u8> {
    home.run(["fed", "export", "digits", "-o", "-"]).ok().stdout
}

#[test]
fn one_process_plays_all_clients_and_goes_on_where_it_was_killed() {
    let whole = Home::new();
    let file = describe(&whole, &digits("", "simulated = 5"));
    let ran = whole.run(["fed", "run", &file, "--json"]).ok();
    let seen = events(&ran);
    assert!(accuracy(&seen) >= 0.95, "{seen:?}");
    assert_eq!(troubles(&seen), "");

    // The same with eight bits, whose losses clients keep: killed once it has made versions, it comes to the same model.
    let coarse = digits("", "simulated = 5") + "[encoding]\nfixed = 'int8'\n";
    let (one, other) = (Home::new(), Home::new());
    let file = describe(&one, &coarse);
    let thrifty = events(&one.run(["fed", "run", &file, "--json"]).ok());
    assert!(accuracy(&thrifty) >= 0.95, "{thrifty:?}");
    let bytes = |seen: &[Value]| {
        seen.iter()
            .filter_map(|event| event["bytes_up"].as_u64())
            .sum::<u64>()
    };
    assert!(
        3 * bytes(&thrifty) < bytes(&seen),
        "{} {}",
        bytes(&thrifty),
        bytes(&seen)
    );

    let file = describe(&other, &coarse);
    let mut killed = other
        .command(["fed", "run", &file, "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(killed.stdout.take().unwrap()));
    let third = |line: std::io::Result<String>| line.unwrap().contains("\"version\":3");
    assert!(lines.any(third));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let listed = other.run(["fed", "status"]).ok().out();
    assert!(listed.contains("goes on when it is run again"), "{listed}");
    other.run(["fed", "run", &file]).ok();
    assert_eq!(export(&one), export(&other));

    // With noise the same clients learn less, and each round says what it has cost.
    let private = digits("weights = 'uniform'", "simulated = 5").replace("'digits'", "'private'")
        + "[privacy]\nnoise-multiplier = 0.5\nclipping = { kind = 'fixed', norm = 1 }\nrate = 0.8\n";
    let noisy = describe(&one, &private);
    let ran = one.run(["fed", "run", &noisy]).ok().out();
    assert_eq!(ran.matches("   ε ").count(), 12, "{ran}");

    // It is over: it begins anew only when that is said.
    other.run(["fed", "run", &file]).fails(2, "--again");
    let shown = other.run(["fed", "status", "digits"]).ok().out();
    assert!(shown.contains("12/12") && shown.contains("done"), "{shown}");
    let page = other.run(["fed", "report", "digits", "-o", "-"]).ok().out();
    assert!(
        page.contains("<svg") && page.contains("after version 12"),
        "{page}"
    );
    assert_eq!(
        other.run(["fed", "rm", "digits", "--json"]).ok().out(),
        r#"{"name":"digits"}"#
    );
    other.run(["fed", "rm", "digits"]).fails(2, "no federated run");
}

/// What is on board is bettered by what two boards know of their valley, and is an ONNX file again.
#[test]
fn a_run_begins_with_a_model_and_ends_as_one() {
    let home = Home::new();
    let described = |model: &str| {
        let text = format!(
            "name = 'water'\nrounds = 1\n{model}\n[clients]\nplugin = '{}'\nsimulated = 2\n\
             [clients.properties]\npictures = '8'\nheld = '2'\n\
             [pace]\nmode = 'synchronous'\nclients = 2\n\
             [training]\nepochs = 1\nbatch = 16\nlearning-rate = 0.001\n",
            path("fed-flood")
        );
        describe(&home, &text)
    };
    let file = described("model = 'flood-s'");
    home.run(["fed", "run", &file])
        .fails(4, "karman model add flood-s");
    let model = crate::support::root().join("plugins/flood/models/flood-s.onnx");
    home.run(["model", "add", "flood-s", model.to_str().unwrap()])
        .ok();
    let seen = events(&home.run(["fed", "run", &file, "--json"]).ok());
    assert!(accuracy(&seen) > 0.8, "{seen:?}");
    assert_eq!(troubles(&seen), "");
    let bettered = home.path().join("bettered.onnx");
    let bettered = bettered.to_str().unwrap();
    home.run(["fed", "export", "water", "--onnx", "-o", bettered])
        .ok();
    let (before, after) = (std::fs::read(model).unwrap(), std::fs::read(bettered).unwrap());
    assert!(before != after && before.len() == after.len());
    let ran = home.run(["model", "add", "flood-s", bettered]).ok();
    assert!(
        ran.out().contains("image u8 [N, 3, 32, 32] -> water u8"),
        "{ran:?}"
    );

    // A client that needs a model says so, and there is nothing to export that did not begin with one.
    let file = described("");
    home.run(["fed", "run", &file, "--again"])
        .fails(2, "model = \"flood-s\"");
    home.run(["fed", "run", &describe(&home, &digits("", "simulated = 5"))])
        .ok();
    let nowhere = ["fed", "export", "digits", "--onnx", "-o", "-"];
    home.run(nowhere).fails(2, "did not begin with a model");
}

/// Vehicles that are not alike train the net of the pothole study: each seed has one model.
#[test]
fn vehicles_learn_together_what_lies_on_their_roads() {
    let learnt = |fleet: u32| {
        let home = Home::new();
        let text = format!(
            "name = 'pothole'\nrounds = 2\nseed = 1\n[clients]\nplugin = '{}'\nsimulated = 3\n\
             [clients.properties]\nfleet = '{fleet}'\nwindows = '4'\nheld = '3'\n\
             [pace]\nmode = 'synchronous'\nclients = 3\n\
             [training]\nepochs = 1\nbatch = 2\nlearning-rate = 0.003\n",
            path("fed-pothole")
        );
        let seen = events(&home.run(["fed", "run", &describe(&home, &text), "--json"]).ok());
        assert_eq!(troubles(&seen), "");
        assert!((0.0..=1.0).contains(&accuracy(&seen)), "{seen:?}");
        home.run(["fed", "export", "pothole", "-o", "-"]).ok().stdout
    };
    let model = learnt(1);
    // 18,798 numbers.
    assert!(model.len() > 4 * 18_798, "{}", model.len());
    assert_eq!(model, learnt(1));
    assert_ne!(model, learnt(2));
}

#[test]
fn clients_that_lie_are_named_and_do_no_harm() {
    let home = Home::new();
    let description = format!(
        "name = 'lies'\nrounds = 4\n[clients]\nplugin = '{}'\nsimulated = 10\n\
         [pace]\nmode = 'synchronous'\nclients = 10\n[limits]\nmagnitude = 10\n",
        path("bad-clients")
    );
    let file = describe(&home, &description);
    let seen = events(&home.run(["fed", "run", &file, "--json"]).ok());
    let said = troubles(&seen);
    for (client, what) in [
        (0, "number 3 of the array is NaN"),
        (1, "in place of `weight` [2, 2]"),
        (2, "it declares 18446744073709551615 samples"),
        (3, "the limit `magnitude` is 10"),
        (4, "trapped"),
        (5, "did not finish within"),
        (6, "not today"),
    ] {
        let named = said
            .lines()
            .any(|line| line.starts_with(&format!("{client} ")) && line.contains(what));
        assert!(named, "client {client}: `{what}` is not in\n{said}");
    }
    // Who sends what is refused three times is not asked a fourth time.
    assert!(
        said.contains("2 \"excluded") && said.contains("3 \"excluded"),
        "{said}"
    );
    assert_eq!(accuracy(&seen), 1.0, "{seen:?}");
    let honest = seen.iter().filter(|event| event["event"] == "round");
    for round in honest {
        assert_eq!(round["clients"], serde_json::json!([7, 8, 9]), "{round}");
    }
}

#[test]
fn a_description_that_cannot_be_followed_is_refused() {
    let home = Home::new();
    let says = |description: &str| {
        let file = describe(&home, description);
        home.run(["fed", "run", &file])
    };
    says("name = 'x'\nruonds = 3\n").fails(2, "did you mean `rounds`");
    says("name = 'x'\nrounds = 3\n[clients]\nsimulated = 3\n").fails(2, "plugin");
    says("name = 'x'\nrounds = 3\n[secure-sum]\n[clients]\nplugin = 'y'\nsimulated = 9\n")
        .fails(2, "clients on nodes");
    says("name = 'x'\nrounds = 3\n[swarm]\nslot = '5 ms'\n[clients]\nplugin = 'y'\n").fails(2, "swarm.slot");
    says("name = 'x'\nrounds = 3\n[swarm]\n[secure-sum]\n[clients]\nplugin = 'y'\n").fails(2, "not both");
    says("name = '../x'\nrounds = 3\n[clients]\nplugin = 'y'\n").fails(2, "a run's name");
    says("name = 'x'\nrounds = 3\n[clients]\nplugin = 'y'\n").fails(4, "no node runs");
    let guest = path("tiny");
    says(&format!(
        "name = 'x'\nrounds = 3\n[clients]\nplugin = '{guest}'\nsimulated = 3\n"
    ))
    .fails(2, "karman:federated/client");
    home.run(["fed", "status", "x"]).fails(2, "no federated run");
}

/// A node with the client in a mesh of five.
pub(crate) fn five() -> Vec<Node> {
    let cloud = first();
    let mut nodes: Vec<Node> = (0..4).map(|_| cloud.joined("edge", &[])).collect();
    nodes.insert(0, cloud);
    nodes[0].finds(5);
    nodes[0].run(&["deploy", &path("fed-digits"), "--on", "all"]).ok();
    nodes
}

pub(crate) fn wait_for(node: &Node, reached: impl Fn(&Value) -> bool) -> Value {
    let started = Instant::now();
    let mut events = 0;
    loop {
        let look = |after: u64| {
            let path = format!("/fed/digits?after={after}&wait_ms=500");
            let answer = node.home.ask("GET", &path, &[], b"");
            answer
                .filter(|answer| answer.status == 200)
                .map(|answer| answer.json())
        };
        if let Some(status) = look(events) {
            if reached(&status) {
                return look(0).unwrap();
            }
            events = status["events"].as_u64().unwrap();
        }
        assert!(started.elapsed() < OVER, "the run does not get there");
        pause();
    }
}

pub(crate) fn log(status: &Value) -> Vec<Value> {
    status["log"].as_array().unwrap().clone()
}

#[test]
fn five_nodes_learn_and_a_driver_that_is_killed_comes_to_the_same() {
    let nodes = five();
    let file = describe(&nodes[0].home, &digits("", "shares = 5"));
    let seen = events(&nodes[0].run(&["fed", "run", &file, "--json"]).ok());
    assert!(accuracy(&seen) >= 0.95, "{seen:?}");
    let whole = export(&nodes[0].home);
    drop(nodes);

    let mut nodes = five();
    let file = describe(&nodes[0].home, &digits("", "shares = 5"));
    nodes[0].run(&["fed", "run", &file, "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(4)
    });
    let cloud = nodes.remove(0);
    cloud.server.kill();
    let cloud = up(cloud.home, &[]);
    let status = wait_for(&cloud, |status| status["running"] == false);
    assert!(accuracy(&log(&status)) >= 0.95, "{status}");
    assert_eq!(export(&cloud.home), whole, "{}", troubles(&log(&status)));
}

#[test]
fn a_driver_and_two_clients_are_killed_and_the_run_gets_there() {
    let mut nodes = five();
    // Who is killed misses rounds, so there are more of them.
    let description = digits("", "shares = 5").replace("rounds = 12", "rounds = 24");
    let file = describe(&nodes[0].home, &description);
    nodes[0].run(&["fed", "run", &file, "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(3)
    });
    // Two of the four others, whichever these are.
    let victims = [fastrand::usize(1..3), fastrand::usize(3..5)];
    for at in [victims[1], victims[0], 0] {
        // The driver knows where the client is now before it goes itself: two that have both moved unseen meet late.
        let node = nodes.remove(at);
        node.server.kill();
        nodes.insert(at, up(node.home, &[]));
        if at > 0 {
            let id = nodes[at].id();
            nodes[0].soon(&["mesh", "ping", &id], b"");
        }
    }
    let status = wait_for(&nodes[0], |status| status["running"] == false);
    let seen = log(&status);
    assert_eq!(status["status"]["version"], 24, "{status}");
    assert!(accuracy(&seen) >= 0.95, "{}", troubles(&seen));
}

#[test]
fn updates_that_nobody_sees_make_the_same_model_and_a_client_may_be_killed() {
    let mut nodes = five();
    let plain = describe(&nodes[0].home, &digits("", "shares = 5"));
    nodes[0].run(&["fed", "run", &plain]).ok();
    let model = export(&nodes[0].home);
    let secret = digits("", "shares = 5") + "[secure-sum]\n";
    let file = describe(&nodes[0].home, &secret);
    let seen = events(&nodes[0].run(&["fed", "run", &file, "--again", "--json"]).ok());
    assert_eq!(troubles(&seen), "");
    assert_eq!(export(&nodes[0].home), model);

    // One that is killed in the middle is done without, and what the others make is as good.
    let longer = describe(&nodes[0].home, &secret.replace("rounds = 12", "rounds = 24"));
    nodes[0].run(&["fed", "run", &longer, "--again", "--detach"]).ok();
    wait_for(&nodes[0], |status| {
        status["status"]["version"].as_u64() >= Some(3)
    });
    let node = nodes.remove(2);
    node.server.kill();
    let of_four = |event: &Value| {
        event["clients"]
            .as_array()
            .is_some_and(|clients| clients.len() == 4)
    };
    wait_for(&nodes[0], |status| log(status).iter().any(of_four));
    nodes.push(up(node.home, &[]));
    let status = wait_for(&nodes[0], |status| status["running"] == false);
    let seen = log(&status);
    assert_eq!(status["status"]["version"], 24, "{}", troubles(&seen));
    assert!(accuracy(&seen) >= 0.95, "{}", troubles(&seen));
    let sizes: Vec<usize> = seen
        .iter()
        .filter_map(|event| Some(event["clients"].as_array()?.len()))
        .collect();
    assert!(sizes.iter().all(|size| (4..=5).contains(size)), "{sizes:?}");
}
