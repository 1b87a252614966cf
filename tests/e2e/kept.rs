//! Kept tasks: three keepers agree on them, they outlive their owner, and no effect happens twice.

mod away;
mod drained;
mod forged;
mod old;
mod rotated;
mod sites;
mod storm;

use self::sites::{Sites, networks};
use crate::internet::Place;

#[test]
fn a_kept_task_outlives_its_owner() {
    let mut sites = Sites::new(4, None);
    sites[3].deploy("hostile");
    sites.name_keepers();
    sites[0].soon(|site| site.home.run(["mesh", "keepers"]).out().contains("leads"));
    // Neither the caller nor the provider owns it: the third keeper does, and is gone before there is an answer.
    let accept = [
        "call",
        "hostile",
        "-",
        "--accept",
        "kept",
        "--meta",
        "do=sleep 1000",
    ];
    let task = sites[2].home.run(accept).ok().out();
    sites[2].soon(|site| site.state(&task).as_deref() == Some("running"));
    sites.kill(2);
    let waited = ["task", "result", &task, "--wait", "60s"];
    let answered = sites[1].home.run(waited).ok().out();
    assert!(!answered.is_empty());
    // A node that is no keeper is told as well, and a repetition of what it forgets is not.
    let status = sites[3].home.run(["task", "status", &task, "--json"]).ok().out();
    assert!(status.contains("\"done\""), "{status}");
    sites[3].home.run(["task", "result", &task, "--forget"]).ok();
    // Its owner tells the keepers, which agree on it in their own time.
    sites[0].soon(|site| {
        let ran = site.home.run(["task", "result", &task]);
        ran.code == 4 && ran.stderr.contains("kept no longer")
    });
}

#[test]
fn two_keepers_that_are_gone_are_named_and_one_of_them_brings_everything_back() {
    let mut sites = Sites::new(4, None);
    for site in &sites.sites {
        site.deploy("tally");
    }
    sites.name_keepers();
    let task = sites.keep("before");
    let ids: Vec<String> = sites.sites.iter().map(|site| site.id.clone()).collect();
    let others = ["mesh", "keepers", &ids[0], &ids[1], &ids[3]];
    sites.kill(1);
    sites.kill(2);
    let refused = sites[0].home.run(others).fails(4, "are missing");
    for gone in &ids[1..3] {
        assert!(refused.stderr.contains(&gone[..8]), "{refused:?}");
    }
    assert!(refused.stderr.contains("with its own folder"), "{refused:?}");
    assert_eq!(sites[0].accept("meanwhile", "0"), None);
    sites.up(1, None);
    // The one that is back and the one that stayed hand over, and the third is never seen again.
    sites[0].soon(|site| site.home.run(others).code == 0);
    sites[3].soon(|site| site.state(&task).as_deref() == Some("done"));
    sites.keep("after");
}

#[test]
fn what_is_too_long_for_any_message_between_keepers_is_told_so() {
    let sites = Sites::new(4, None);
    sites[3].deploy("hostile");
    sites.name_keepers();
    sites[0].soon(|site| site.home.run(["mesh", "keepers"]).out().contains("leads"));
    // From each of the keepers, of which one leads, and from a node that is none.
    for site in &sites.sites {
        let accept = ["call", "hostile", "-", "--accept", "kept"];
        let long = vec![b'a'; 6 << 20];
        site.home.run_with(accept, &long).fails(5, "keepers.entry");
        let told = [&accept[..], &["--meta", "do=output 6291456"]].concat();
        let task = site.home.run(told).ok().out();
        let waited = ["task", "result", &task, "--wait", "60s"];
        site.home.run(waited).fails(5, "keepers.entry");
    }
}

#[test]
fn without_keepers_nothing_is_kept() {
    let sites = Sites::new(1, None);
    sites[0].deploy("tally");
    let refused = sites[0].home.run(["call", "tally", "-", "--accept", "kept"]);
    let refused = refused.fails(4, "three keepers");
    assert!(
        refused.stderr.contains("karman mesh keepers NODE NODE NODE"),
        "{refused:?}"
    );
    assert!(refused.stderr.contains("--accept local"), "{refused:?}");
    let answer = sites[0].ask("POST", "/tasks/tally", &[("karman-accept", "kept")], b"a");
    let answer = answer.unwrap();
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (503, &"unavailable".into())
    );
    sites[0].home.run(["mesh", "keepers"]).fails(4, "no keepers");
    let twice = [sites[0].id.as_str(); 3];
    let arguments = [&["mesh", "keepers"][..], &twice].concat();
    sites[0].home.run(arguments).fails(2, "three different");
    sites[0]
        .home
        .run(["mesh", "keepers", "9c01d2e7"])
        .fails(2, "three keep");
}

#[test]
fn the_side_without_a_majority_keeps_nothing() {
    let Some(internet) = networks(3) else { return };
    let sites = Sites::new(3, Some(internet));
    sites[0].deploy("tally");
    sites.name_keepers();
    let internet = sites.internet.as_ref().unwrap();
    let places: Vec<Place> = sites.sites.iter().map(|site| site.place).collect();
    internet.cut(&places[..2], &places[2..]).unwrap();
    let accept = ["call", "tally", "-", "--accept", "kept", "--key", "here"];
    sites[2].home.run(accept).fails(4, "no majority");
    // The others may have to elect a leader first.
    sites[1].soon(|site| site.home.run_with(accept, b"here").code == 0);
    let task = sites[1].home.run_with(accept, b"here").ok().out();
    sites[2]
        .home
        .run(["task", "status", &task])
        .fails(4, "no majority");
    internet.mend().unwrap();
    sites[2].soon(|site| site.state(&task).as_deref() == Some("done"));
    assert_eq!(sites[2].home.run(["task", "result", &task]).ok().out(), "1");
}

#[test]
fn a_keeper_that_is_lost_gives_its_place_to_another() {
    let mut sites = Sites::new(4, None);
    sites[0].deploy("tally");
    sites.name_keepers();
    let accept = |n: usize, key: &str, sites: &Sites| {
        let arguments = ["call", "tally", "-", "--accept", "kept", "--key", key];
        sites[n].home.run_with(arguments, key.as_bytes()).ok().out()
    };
    // More than the log holds: who comes later learns it from a snapshot.
    let before: Vec<String> = (0..12)
        .map(|n| accept(0, &format!("before-{n}"), &sites))
        .collect();
    for task in &before {
        sites[0].soon(|site| site.state(task).as_deref() == Some("done"));
    }
    sites.kill(2);
    let ids = [0, 1, 3].map(|n| sites[n].id.clone());
    let name = [&["mesh", "keepers"][..], &ids.each_ref().map(String::as_str)].concat();
    let denied = sites[1].home.run(&name);
    denied.fails(3, "no issuer");
    let changed = sites[0].home.run(&name).ok();
    assert!(!changed.out().contains("not in reach"), "{changed:?}");
    // Now the new one is needed for a majority.
    sites.kill(1);
    sites[3].soon(|site| {
        site.home
            .run(["mesh", "keepers", "--json"])
            .out()
            .contains("\"majority\":true")
    });
    let after = accept(3, "after", &sites);
    for task in before.iter().chain([&after]) {
        sites[3].soon(|site| site.state(task).as_deref() == Some("done"));
    }
    let result = ["task", "result", &before[0], "--wait", "30s"];
    assert_eq!(sites[3].home.run(result).ok().out(), "1");
}

#[test]
fn a_kept_workflow_goes_on_when_its_coordinator_is_lost() {
    let mut sites = Sites::new(4, None);
    sites[3].deploy("hostile");
    sites.name_keepers();
    let file = sites[2].home.path().join("flow.toml");
    let text = r#"
        name = "relay"
        [task.first]
        run = "hostile"
        with = { do = "sleep 100" }
        [task.second]
        run = "hostile"
        after = ["first"]
        with = { do = "sleep 1000" }
        [task.third]
        run = "hostile"
        after = ["second"]
        with = { do = "sleep 100" }
    "#;
    std::fs::write(&file, text).unwrap();
    let run = ["flow", "run", file.to_str().unwrap(), "--accept", "kept"];
    let run = sites[2].home.run(run).ok().out();
    let status = |site: &sites::Site| {
        let answer = site.ask("GET", &format!("/flows/{run}"), &[], b"")?;
        (answer.status == 200).then(|| answer.json())
    };
    let second =
        |site: &sites::Site| status(site).is_some_and(|status| status["steps"][1]["state"] == "running");
    // A node that has nothing to do with it is told how far it is.
    sites[3].soon(second);
    sites.kill(2);
    sites[1].soon(|site| status(site).is_some_and(|status| status["state"] == "done"));
    let ended = status(&sites[3]).unwrap();
    let attempts: Vec<u64> = (0..3)
        .map(|n| ended["steps"][n]["attempts"].as_u64().unwrap())
        .collect();
    assert_eq!(attempts, [1, 1, 1], "{ended}");
    // What happened is told from its beginning, by whoever is asked.
    let events = format!("/flows/{run}/events");
    let told = sites[3].ask("GET", &events, &[], b"").unwrap().text();
    for event in [
        "id: 1\nevent: begun\n",
        "id: 6\nevent: done\n",
        "id: end\nevent: ended\n",
    ] {
        assert!(told.contains(event), "{told}");
    }
}
