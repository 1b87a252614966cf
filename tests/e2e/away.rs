//! Accepted work for a node that is out of reach: it goes up at the next planned contact, runs there, and what came of it comes
//! back the same way.

mod loopback;

use crate::internet::{Internet, Place};
use crate::mesh::path;
use crate::satellite::{Node, at, now};
use std::time::Duration;

const GROUND: Place = Place::Internet(1);
const ABOVE: Place = Place::Internet(2);
const BETWEEN_THEM: Place = Place::Internet(3);
const PASS: Duration = Duration::from_secs(8);
const BETWEEN: Duration = Duration::from_secs(8);

impl Node {
    fn accept(&self, input: &str, more: &[&str]) -> String {
        self.accept_task("tally", input, more)
    }

    fn accept_task(&self, task: &str, input: &str, more: &[&str]) -> String {
        let arguments = [&["call", task, "-", "--accept", "local"], more].concat();
        self.home.run_with(arguments, input.as_bytes()).ok().out()
    }

    fn state(&self, task: &str) -> String {
        let status = self.home.control(&format!("/accepted/{task}"));
        status["state"].as_str().unwrap_or_default().to_owned()
    }

    /// How many bundles there are with tasks in them, in this state.
    fn tasks_away(&self, state: &str) -> usize {
        let bundles = self.home.control("/mesh/bundles");
        let bundles = bundles.as_array().unwrap().iter();
        bundles
            .filter(|bundle| bundle["label"] == "task tally" && bundle["state"] == state)
            .count()
    }
}

#[test]
fn accepted_work_goes_up_at_a_contact_and_its_result_comes_down() {
    let internet = match Internet::new(&[GROUND, ABOVE]).and_then(Internet::with_sky) {
        Ok(internet) => internet,
        Err(why) => return eprintln!("SKIPPED: no networks of our own ({why})"),
    };
    let mut ground = Node::start(&internet, GROUND, "cloud", None);
    let rights = ["--right", "bucket-read:*", "--right", "bucket-write:*"];
    let invite = [&["mesh", "invite", "--tier", "space"], &rights[..]].concat();
    let word = ground.home.run(invite).ok().out();
    let above = Node::start(&internet, ABOVE, "space", Some(&word));
    above.home.run(["deploy", &path("tally"), "--grant-asked"]).ok();
    ground.until("it does not hear what the other offers", |ground| {
        ground
            .said("what nodes offer is remembered")
            .contains(&above.id.to_string())
    });
    ground.down();
    internet.part(GROUND, ABOVE);

    let mut start = now() + Duration::from_secs(35);
    let mut windows = Vec::new();
    let mut plan = String::new();
    for _ in 0..2 {
        let end = start + PASS;
        plan.push_str(&format!(
            "[[contact]]\nfrom = \"{}\"\nto = \"{}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"2 Mbit/s\"\nboth-ways = true\n",
            ground.id, above.id
        ));
        windows.push((start, end));
        start = end + BETWEEN;
    }
    for node in [&ground, &above] {
        std::fs::write(node.home.path().join("contacts.toml"), &plan).unwrap();
    }
    ground.up(&internet, &[]);
    let first = ground.accept("bridge", &["--key", "first"]);
    let late = ground.accept("late", &["--within", "8s"]);
    ground.until("the tasks do not wait for the contact", |ground| {
        ground.tasks_away("waiting") == 2
    });
    // What is on its way is not sent again.
    ground.kill(&internet);
    ground.until("the task is not taken up again", |ground| {
        ground.state(&first) == "running"
    });
    assert_eq!(ground.accept("bridge", &["--key", "first"]), first);
    ground.until("what is late does not expire", |ground| {
        ground.state(&late) == "expired"
    });
    ground.until("what is late still waits", |ground| {
        ground.tasks_away("waiting") == 1
    });
    assert!(windows[0].0 > now(), "it took too long to come up");

    let pass = |number: usize| {
        let (start, end) = windows[number];
        at(start - Duration::from_millis(50));
        internet.join(GROUND, ABOVE);
        at(end);
        internet.part(GROUND, ABOVE);
    };
    pass(0);
    ground.until("nothing came down", |ground| ground.state(&first) == "done");
    let second = ground.accept("bridge", &[]);
    pass(1);
    ground.until("nothing came down", |ground| ground.state(&second) == "done");
    for (task, result) in [(&first, "1"), (&second, "2")] {
        assert_eq!(
            ground.home.run(["task", "result", task.as_str()]).ok().out(),
            result
        );
    }
    let late = ground.home.run(["task", "result", late.as_str()]);
    late.fails(5, "time of the task is over");
    let ran = above.said("an attempt runs that came by bundle");
    assert!(!ran.contains("late") && !ran.is_empty(), "{ran}");
}

#[test]
fn accepted_work_crosses_a_third_node_and_its_result_comes_back_that_way() {
    let internet = match Internet::new(&[GROUND, ABOVE, BETWEEN_THEM]).and_then(Internet::with_sky) {
        Ok(internet) => internet,
        Err(why) => return eprintln!("SKIPPED: no networks of our own ({why})"),
    };
    let mut ground = Node::start(&internet, GROUND, "cloud", None);
    let invite = || ground.home.run(["mesh", "invite", "--tier", "space"]).ok().out();
    let words = [invite(), invite()];
    let mut between = Node::start(&internet, BETWEEN_THEM, "space", Some(&words[0]));
    let mut above = Node::start(&internet, ABOVE, "space", Some(&words[1]));
    for (one, other) in [(&ground, &above), (&ground, &between), (&above, &between)] {
        one.until("two nodes do not meet", |one| one.has_met(other));
        other.until("two nodes do not meet", |other| other.has_met(one));
    }
    above.home.run(["deploy", &path("tiny")]).ok();
    ground.until("it does not hear what the other offers", |ground| {
        ground
            .said("what nodes offer is remembered")
            .contains(&above.id.to_string())
    });
    for node in [&mut ground, &mut between, &mut above] {
        node.down();
    }
    for (one, other) in [(GROUND, ABOVE), (GROUND, BETWEEN_THEM), (ABOVE, BETWEEN_THEM)] {
        internet.part(one, other);
    }
    let mut start = now() + Duration::from_secs(35);
    let mut windows = Vec::new();
    let mut plan = String::new();
    for (with, id) in [(GROUND, ground.id), (ABOVE, above.id), (GROUND, ground.id)] {
        let end = start + PASS;
        plan.push_str(&format!(
            "[[contact]]\nfrom = \"{id}\"\nto = \"{}\"\nstart = \"{start}\"\nend = \"{end}\"\nrate = \"2 Mbit/s\"\nboth-ways = true\n",
            between.id
        ));
        windows.push((with, start, end));
        start = end + BETWEEN;
    }
    for node in [&mut ground, &mut between, &mut above] {
        std::fs::write(node.home.path().join("contacts.toml"), &plan).unwrap();
        node.up(&internet, &[]);
    }
    let task = ground.accept_task("tiny", "12345", &[]);
    ground.until("the task does not wait for the contact", |ground| {
        ground.state(&task) == "running"
    });
    assert!(windows[0].1 > now(), "it took too long to come up");
    for (with, start, end) in windows {
        assert_ne!(ground.state(&task), "done", "one contact less was enough");
        at(start - Duration::from_millis(50));
        internet.join(BETWEEN_THEM, with);
        at(end);
        internet.part(BETWEEN_THEM, with);
    }
    ground.until("nothing came down", |ground| ground.state(&task) == "done");
    assert_eq!(ground.home.run(["task", "result", &task]).ok().out(), "5");
}
