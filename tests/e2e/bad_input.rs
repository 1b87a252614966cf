//! Every bad input ends in an error of its own, with its exit code; nothing crashes.

use crate::support::{Home, component, guest};

fn run(home: &Home, bytes: &[u8]) -> crate::support::Ran {
    let path = home.path().join("plugin.wasm");
    std::fs::write(&path, bytes).unwrap();
    home.run_with(["run", path.to_str().unwrap(), "-"], b"x")
}

#[test]
fn files_that_are_no_plugins() {
    let home = Home::new();
    run(&home, b"#!/bin/sh\n").fails(2, "not WebAssembly");
    run(&home, b"").fails(2, "not WebAssembly");
    run(&home, &wat::parse_str("(module)").unwrap()).fails(2, "core module");
    run(&home, &wat::parse_str("(component)").unwrap()).fails(2, "exports nothing");
    let whole = std::fs::read(guest("tiny")).unwrap();
    run(&home, &whole[..whole.len() / 2]).fails(2, "");
    home.run(["run", "no-such-file.wasm", "-"])
        .fails(2, "no-such-file.wasm");
}

#[test]
fn what_a_command_takes_is_looked_at_before_a_node_is() {
    let home = Home::new();
    let file = |name: &str, text: &[u8]| {
        let file = home.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.to_str().unwrap().to_owned()
    };
    let flow = file("flow.toml", b"name = 'f'\n[task.a]\n");
    let cut = home.run_with(["flow", "run", &flow, "--input", "-"], b" {\"tiles\": [1, 2");
    cut.fails(2, "the input is no JSON");
    home.run(["flow", "run", &flow, "--slo", "accuracy=0.9"])
        .fails(2, "no task names a `capability`");
    for log in [&b"a text"[..], b"", b"\xa2\x67entries"] {
        let ran = home.run(["replay", &file("log.cbor", log)]);
        ran.fails(2, "log.cbor: this is no log of decisions, or is cut short");
    }
    home.run(["fed", "stop", "k3"])
        .fails(2, "there is no federated run `k3` here");
}

#[test]
fn another_world_and_a_missing_import() {
    let home = Home::new();
    let other = component(
        &home,
        "other.wasm",
        r#"(component (core module $m (func (export "f"))) (core instance $i (instantiate $m))
            (func $f (canon lift (core func $i "f"))) (instance (export "acme:other/thing@1.0.0") (export "f" (func $f))))"#,
    );
    home.run(["run", other.to_str().unwrap(), "-"])
        .fails(2, "acme:other/thing@1.0.0");
    let needy = component(
        &home,
        "needy.wasm",
        r#"(component (import "acme:gpu/magic@1.0.0" (instance (export "go" (func))))
            (core module $m (func (export "run") (result i32) i32.const 0)) (core instance $i (instantiate $m))
            (func $run (result (result)) (canon lift (core func $i "run")))
            (instance (export "wasi:cli/run@0.2.0") (export "run" (func $run))))"#,
    );
    home.run(["run", needy.to_str().unwrap()])
        .fails(4, "acme:gpu/magic@1.0.0");
}

#[test]
fn manifests_name_the_field_and_the_nearest_key() {
    let home = Home::new();
    let good = "name = \"project\"\nversion = \"0.1.0\"\nworld = \"karman:task/task\"\nasks = [\"nn:*\"]\n\n[limits]\n\
                memory = \"1 MiB\"\n\n[build]\nlang = \"rust\"\n";
    std::fs::create_dir(home.path().join("project")).unwrap();
    for (from, to, says) in [
        ("memory", "memry", "did you mean `memory`?"),
        ("1 MiB", "2 GiB", "1 GiB"),
        ("\"project\"", "\"Not A Name\"", "lower-case"),
        ("nn:*", "htpp:example.org", "did you mean `http`?"),
        ("karman:task/task", "wasi:cli/imports", "wasi:cli/command"),
        ("0.1.0", "one", "version"),
        ("0.1.0", "1", "write `1.0.0`"),
        ("1 MiB", "16", "a size such as `64 MiB`"),
        ("1 MiB", "16 B", "64 KiB"),
        ("nn:*", "http://example.org", "write `http:example.org`"),
        ("karman:task/task", "task", "did you mean `karman:task/task`?"),
        ("\"rust\"", "\"Rust\"", "did you mean `rust`?"),
        ("version", "#", "correct karman.toml"),
    ] {
        std::fs::write(home.path().join("project/karman.toml"), good.replace(from, to)).unwrap();
        home.run(["build", "project"]).fails(2, says);
    }
}

#[test]
fn what_is_missing_is_named_without_what_the_environment_says() {
    let home = Home::new();
    let tiny = guest("tiny");
    home.run(["sign", tiny.to_str().unwrap()])
        .fails(2, "`karman sign --new-key FILE` makes a key");
    home.run(["new", "counter", "--world", "karman:task/warm-task"])
        .fails(2, "include `karman:task/warm-task@0.1.0` in wit/plugin.wit");
    let ran = home.run(["mesh", "revoke"]).fails(2, "karman mesh revoke");
    assert!(!ran.stderr.contains("--state"), "{ran:?}");
}

#[test]
fn requests_over_the_limit_and_text_that_is_none() {
    let home = Home::new();
    let tiny = guest("tiny");
    let big = home.path().join("big.bin");
    let file = std::fs::File::create(&big).unwrap();
    file.set_len(1 << 30).unwrap();
    home.run(["run", tiny.to_str().unwrap(), big.to_str().unwrap()])
        .fails(5, "16 MiB");
    // Bytes are bytes to a task; only who promised text is held to it.
    home.run_with(["run", tiny.to_str().unwrap(), "-"], &[0xff, 0xfe])
        .ok();
    let classify = guest("classify");
    home.run_with(["run", classify.to_str().unwrap(), "-"], &[0xff, 0xfe])
        .fails(2, "");
}

#[test]
fn a_name_that_resolves_to_a_private_address_is_refused() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    // The guest's manifest asks for no host, so even the operator's word lets it reach none.
    let refused = home.hostile(
        &format!("http http://{}/healthz", server.address),
        &["--grant", "http:127.0.0.1"],
    );
    refused.fails(1, "HttpRequestDenied");
}

#[test]
fn hostile_models_are_refused() {
    let home = Home::new();
    let bad = home.path().join("bad.onnx");
    for bytes in [
        &b"not onnx"[..],
        &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
        &[0x3a; 4096],
    ] {
        std::fs::write(&bad, bytes).unwrap();
        let ran = home.run(["model", "add", "bad", bad.to_str().unwrap()]);
        assert!(matches!(ran.code, 2 | 5), "{ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    }
}

#[test]
fn errors_are_two_lines_and_one_object_with_json() {
    let home = Home::new();
    let ran = home.run(["run", "nothing.wasm"]);
    let lines: Vec<_> = ran.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{ran:?}");
    assert!(
        lines[0].starts_with("error: ") && lines[1].trim_start().starts_with("hint: "),
        "{ran:?}"
    );
    let json = home.run(["run", "nothing.wasm", "--json"]);
    let error: serde_json::Value = serde_json::from_str(json.stderr.trim()).unwrap();
    assert_eq!(error["code"], "invalid");
    assert!(error["message"].is_string() && error["hint"].is_string());
}
