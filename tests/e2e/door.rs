//! A mesh whose issuer stands behind a router that nobody gets through from outside: who joins comes over the one member that can
//! be reached.

use crate::internet::{Internet, Place};
use crate::support::{Home, Server, pause};
use std::time::{Duration, Instant};

const ISSUER: Place = Place::Home(1, 2);
const MEMBER: Place = Place::Internet(1);
const NEWCOMER: Place = Place::Home(2, 2);
const PATIENCE: Duration = Duration::from_secs(60);

fn home(config: &str) -> Home {
    let home = Home::new();
    let folder = home.path().join("config/karman");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("node.toml"), config).unwrap();
    home
}

fn up(internet: &Internet, place: Place, home: &Home, more: &[&str]) -> Server {
    let arguments = [&["node", "up", "--listen", "127.0.0.1:0"], more].concat();
    home.started(internet.inside(place, &home.command(arguments)))
}

#[test]
fn a_newcomer_comes_to_an_issuer_that_only_a_member_reaches() {
    let internet = match Internet::new(&[ISSUER, MEMBER, NEWCOMER]) {
        Ok(internet) => internet,
        Err(why) => return eprintln!("SKIPPED: no networks of our own ({why})"),
    };
    let entrance = format!("/ip4/{}/udp/7117/quic-v1", MEMBER.address());
    let issuer = home(&format!("tier = \"fog\"\n[mesh]\nentrances = [\"{entrance}\"]\n"));
    issuer.run(["mesh", "init"]).ok();
    // The first member has its membership in its word: nobody has to be in reach for that.
    let member = home("tier = \"cloud\"\n");
    let said = member.run(["node", "id", "--json"]).ok().out();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap();
    let key = said["key"].as_str().unwrap();
    let word = issuer.run([
        "mesh",
        "invite",
        "--tier",
        "cloud",
        "--for",
        key,
        "--address",
        &entrance,
    ]);
    let _member = up(&internet, MEMBER, &member, &["--join", &word.ok().out()]);
    let _issuer = up(&internet, ISSUER, &issuer, &[]);
    let started = Instant::now();
    let addresses = loop {
        let addresses = issuer.control("/mesh/addresses").to_string();
        if addresses.contains("p2p-circuit") {
            break addresses;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "no relay has a place for it: {addresses}"
        );
        pause();
    };
    println!("the issuer is found at {addresses}");

    let word = issuer.run(["mesh", "invite", "--tier", "edge"]).ok().out();
    let newcomer = home("tier = \"edge\"\n");
    let _newcomer = up(&internet, NEWCOMER, &newcomer, &["--join", &word]);
    let started = Instant::now();
    let issuer_id = issuer.control("/status")["node"].as_str().unwrap().to_owned();
    while newcomer.run(["mesh", "ping", issuer_id.as_str()]).code != 0 {
        assert!(
            started.elapsed() < PATIENCE,
            "the two do not meet: {}",
            newcomer.control("/mesh/diagnosis")
        );
        pause();
    }
    let said = member.control("/logs").to_string();
    assert!(said.contains("a stranger is led to an issuer"), "{said}");
    // It was let in as what its word says.
    let peers = issuer.control("/mesh/peers").to_string();
    assert!(peers.contains("\"tier\":\"edge\""), "{peers}");
}
