//! New versions take over while calls go on; state moves, or the upgrade says that it does not.

use crate::support::{Home, Server, guest};

fn deploy(home: &Home, name: &str, more: &[&str]) -> crate::support::Ran {
    let guest = guest(name);
    let mut arguments = vec!["deploy", guest.to_str().unwrap()];
    arguments.extend(more);
    home.run(arguments)
}

fn count(server: &Server) -> String {
    server.post("/tasks/counter", &[], b"").text()
}

#[test]
fn warm_state_moves_to_the_next_version() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "warm", &[]).ok();
    assert_eq!(
        (count(&server).as_str(), count(&server).as_str()),
        ("v1 1", "v1 2")
    );
    deploy(&home, "warm-v2", &[]).ok();
    assert_eq!(count(&server), "v2 3");
}

#[test]
fn a_version_whose_check_fails_is_rolled_back() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "warm", &[]).ok();
    count(&server);
    deploy(&home, "warm-broken", &[]).fails(1, "broken on purpose");
    assert_eq!(count(&server), "v1 2");
}

#[test]
fn an_instance_that_traps_when_it_saves_serves_no_more() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "warm", &[]).ok();
    count(&server);
    assert_eq!(server.post("/tasks/counter", &[], b"save traps").text(), "v1 2");
    deploy(&home, "warm-v2", &[]).fails(1, "what it knew is lost");
    // A new one does, from the start.
    assert_eq!(
        (count(&server).as_str(), count(&server).as_str()),
        ("v1 1", "v1 2")
    );
}

#[test]
fn a_grant_is_taken_back_whatever_the_plugin_says() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "warm", &[]).ok();
    let grant = ["node", "grant", "counter", "http:tiles.example"];
    let granted = home.run(grant).ok();
    let note = "counter does not ask for http:tiles.example";
    assert!(granted.stderr.contains(note), "{granted:?}");
    count(&server);
    // It will not let its state go.
    assert_eq!(server.post("/tasks/counter", &[], b"save traps").text(), "v1 2");
    let mut revoke = grant.to_vec();
    revoke.push("--revoke");
    home.run(revoke).ok();
    assert_eq!(count(&server), "v1 1");
}

#[test]
fn no_call_fails_while_versions_change() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "warm", &[]).ok();
    std::thread::scope(|scope| {
        let calls = scope.spawn(|| {
            for _ in 0..200 {
                let answer = server.post("/tasks/counter", &[], b"");
                assert_eq!(answer.status, 200, "{answer:?}");
            }
        });
        for name in ["warm-v2", "warm", "warm-v2"] {
            deploy(&home, name, &[]).ok();
        }
        calls.join().unwrap();
    });
    assert_eq!(count(&server), "v2 201");
}

#[test]
fn plugins_are_back_after_a_power_cut() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    deploy(&home, "tiny", &[]).ok();
    server.kill();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    let answer = server.post("/tasks/tiny", &[], b"12345");
    assert_eq!((answer.status, answer.text().as_str()), (200, "5"));
}
