//! The tool in the hand.

use crate::support::{Home, guest, root};

#[test]
fn a_command_runs_unmodified_with_arguments_input_and_exit_code() {
    let home = Home::new();
    let guest = guest("hello-cli");
    let ran = home
        .run_with(
            ["run", guest.to_str().unwrap(), "-", "--", "one", "two"],
            b"three\n",
        )
        .ok();
    assert_eq!(ran.out(), "ONE\nTWO\nTHREE");
    assert_eq!(
        home.run(["run", guest.to_str().unwrap(), "--", "--exit", "3"])
            .code,
        1
    );
}

#[test]
fn inspect_shows_what_is_asked_and_granted() {
    let home = Home::new();
    let out = home
        .run(["inspect", guest("classify").to_str().unwrap()])
        .ok()
        .out();
    for part in ["classify 0.1.0", "karman:task/task", "nn:digits-*", "memory"] {
        assert!(out.contains(part), "`{part}` is not in\n{out}");
    }
}

#[test]
fn the_plugins_of_this_repository_do_their_work() {
    let home = Home::new();
    let road = crate::support::root().join("plugins/event-screen/tests/road.csv");
    let events = home
        .run([
            "run",
            guest("event-screen").to_str().unwrap(),
            road.to_str().unwrap(),
        ])
        .ok()
        .out();
    let found: serde_json::Value = serde_json::from_str(&events).unwrap();
    assert_eq!(found["events"].as_array().map(Vec::len), Some(3), "{events}");
    let csv = "time,temperature\n".to_owned()
        + &(0..200)
            .map(|n| format!("{n},{}\n", if n == 150 { 900 } else { n % 7 }))
            .collect::<String>();
    let ran = home
        .run_with(
            [
                "run",
                guest("timeseries").to_str().unwrap(),
                "-",
                "--content-type",
                "text/csv",
            ],
            csv.as_bytes(),
        )
        .ok();
    assert!(ran.out().contains("temperature"), "{ran:?}");
}

#[test]
fn a_secret_is_never_shown() {
    let home = Home::new();
    home.run_with(["secret", "set", "token"], b"hush-hush").ok();
    let listed = home.run(["secret", "list"]).ok();
    assert!(
        listed.out().contains("token") && !listed.out().contains("hush-hush"),
        "{listed:?}"
    );
    for entry in walk(&home.path().join("state")) {
        let bytes = std::fs::read(&entry).unwrap();
        assert!(
            !bytes.windows(9).any(|window| window == b"hush-hush"),
            "{} holds it in the clear",
            entry.display()
        );
    }
}

#[test]
fn a_secret_is_removed_whether_a_node_runs_or_not() {
    let home = Home::new();
    let lists = |home: &Home| home.run(["secret", "list"]).ok().out();
    let lacks = |home: &Home| {
        let ran = home.run(["secret", "remove", "token"]);
        ran.fails(4, "there is no secret `token` here");
    };
    // Nothing was ever kept here, and a question does not change that.
    assert_eq!(lists(&home), "");
    lacks(&home);
    assert!(!home.path().join("state/state.redb").exists());
    for runs in [false, true] {
        let _server = runs.then(|| home.start(["node", "up", "--listen", "127.0.0.1:0"]));
        home.run_with(["secret", "set", "token"], b"hush-hush").ok();
        assert_eq!(lists(&home), "token");
        home.run(["secret", "remove", "token"]).ok();
        assert_eq!(lists(&home), "");
        lacks(&home);
    }
}

#[test]
fn a_token_is_taken_back_by_its_id_and_it_is_said_whom_that_reaches() {
    let home = Home::new();
    let read = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap();
    let issued = home.run(["token", "issue", "app", "--right", "call:*", "--json"]);
    let issued = read(issued.ok().out());
    let id = issued["id"].as_str().unwrap();
    let revoked = home.run(["token", "revoke", id]).ok();
    assert_eq!(revoked.out(), format!("{id}   revoked"));
    for part in [
        "gateways of this folder take it no more",
        "`token-keys` has a list of its own",
    ] {
        assert!(revoked.stderr.contains(part), "`{part}` is not in {revoked:?}");
    }
    let told = home.run(["token", "revoke", id, "--json"]).ok();
    assert_eq!(read(told.out()), serde_json::json!({ "revoked": id }));
    // A token is no id of one.
    let wrong = home.run(["token", "revoke", issued["token"].as_str().unwrap()]);
    let wrong = wrong.fails(2, "is no token's id: 32 hexadecimal digits");
    assert!(
        wrong.stderr.contains("`karman token inspect TOKEN` shows it"),
        "{wrong:?}"
    );
}

fn walk(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .flat_map(|path| if path.is_dir() { walk(&path) } else { vec![path] })
        .filter(|path| path.is_file())
        .collect()
}

#[test]
fn completions_and_doctor_answer() {
    let home = Home::new();
    for shell in ["bash", "fish", "zsh"] {
        assert!(home.run(["completions", shell]).ok().out().contains("karman"));
    }
    let doctor = home.run(["doctor"]).ok().out();
    for part in ["engine", "pool of", "tract"] {
        assert!(doctor.contains(part), "`{part}` is not in\n{doctor}");
    }
}

#[test]
fn a_new_project_builds_and_runs() {
    let home = Home::new();
    home.run(["new", "hello", "--lang", "rust"]).ok();
    // The bindings generator was compiled with the guests; a user's first build takes longer by that.
    let shared = crate::support::root().join("target/plugins");
    let output = home
        .command(["build", "hello"])
        .env("CARGO_TARGET_DIR", shared)
        .output()
        .unwrap();
    let built = crate::support::Ran::of(output).ok();
    assert!(
        built.out().starts_with("hello 0.1.0   world karman:task/task"),
        "{built:?}"
    );
    let ran = home.run_with(["run", "hello", "-"], br#"{"name":"Ada"}"#).ok();
    assert_eq!(ran.out(), r#"{"greeting":"hello Ada"}"#);
}

#[test]
fn models_and_workflows_come_from_standard_input_too() {
    let home = Home::new();
    let model = std::fs::read(root().join("tests/models/digits-s.onnx")).unwrap();
    let shown = home
        .run_with(["model", "inspect", "-", "--json"], &model)
        .ok()
        .out();
    assert!(shown.contains("\"layers\""), "{shown}");
    home.run_with(["model", "add", "digits", "-"], &model).ok();
    assert!(home.run(["model", "list"]).ok().out().contains("digits"));
    let flow = std::fs::read(root().join("host/karman/src/commands/flow/shapes/vote.toml")).unwrap();
    let drawn = home.run_with(["flow", "graph", "-"], &flow).ok().out();
    assert!(!drawn.is_empty());
    home.run_with(["flow", "run", "-", "--input", "-"], &flow)
        .fails(2, "standard input is only one");
    home.run_with(["model", "inspect", "-"], b"no model").fails(2, "");
}
