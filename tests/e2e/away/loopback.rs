//! Without networks of their own: a node that is out of reach is one that does not run. Its next contact is far away, so that what
//! goes to it by bundle waits.

use crate::mesh::{Node, home, path, up};
use crate::satellite::now;
use crate::support::{self, Home};
use std::fmt::from_fn;
use std::time::Duration;

/// The time within which anything here happens.
const PATIENCE: Duration = Duration::from_secs(90);
const RIGHTS: [&str; 4] = ["--right", "bucket-read:*", "--right", "bucket-write:*"];

/// A node on the ground, and one above that ran `tally` when it was last here.
struct Pass {
    ground: Node,
    above: Option<Home>,
}

impl Pass {
    fn new(more: &str) -> Self {
        let ground = home("cloud");
        plan(&ground, "", more);
        ground.run(["mesh", "init"]).ok();
        let ground = up(ground, &[]);
        let above = joined(&ground, |home| plan(home, "", ""));
        above.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
        let id = above.id();
        until(&ground, "it does not hear what the other offers", |node| {
            node.home.said("what nodes offer is remembered").contains(&id)
        });
        let start = now() + Duration::from_secs(3600);
        let contact = format!(
            "[[contact]]\nfrom = \"{}\"\nto = \"{id}\"\nstart = \"{start}\"\nend = \"{}\"\nrate = \"2 Mbit/s\"\n\
             both-ways = true\n",
            ground.id(),
            start + Duration::from_secs(60)
        );
        for home in [&ground.home, &above.home] {
            std::fs::write(home.path().join("contacts.toml"), &contact).unwrap();
        }
        let above = Some(leaves(&ground, above));
        Self { ground, above }
    }

    fn accept(&self, key: &str, more: &[&str]) -> String {
        let arguments = [&["call", "tally", "-", "--accept", "local"], more].concat();
        self.ground.home.run_with(arguments, key.as_bytes()).ok().out()
    }

    /// Hands a task in that has gone by bundle then.
    fn goes_away(&self, key: &str, more: &[&str]) -> String {
        let before = bundles(&self.ground, "waiting");
        let task = self.accept(key, more);
        until(&self.ground, "it does not go by bundle", |ground| {
            bundles(ground, "waiting") == before + 1
        });
        task
    }

    fn comes_back(&mut self) -> Node {
        up(self.above.take().unwrap(), &[])
    }

    #[track_caller]
    fn is(&self, task: &str, state: &str) {
        until(&self.ground, state, |ground| self::state(ground, task) == state);
    }

    fn result(&self, task: &str) -> String {
        self.ground.run(&["task", "result", task]).ok().out()
    }
}

/// Lets a home plan contacts.
fn plan(home: &Home, contacts: &str, more: &str) {
    let (config, file) = (
        home.path().join("config/karman/node.toml"),
        home.path().join("contacts.toml"),
    );
    std::fs::write(&file, contacts).unwrap();
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(config, format!("{text}contacts = {file:?}\n{more}")).unwrap();
}

fn joined(ground: &Node, prepare: impl FnOnce(&Home)) -> Node {
    let word = ground.invite(&[&["--tier", "space"][..], &RIGHTS].concat());
    let home = home("space");
    prepare(&home);
    up(home, &["--join", &word])
}

fn down(node: Node) -> Home {
    let Node { home, server } = node;
    let (code, said) = server.stop();
    assert_eq!(code, 0, "{said}");
    home
}

/// The node is out of reach, and the ground has noticed.
fn leaves(ground: &Node, node: Node) -> Home {
    let id = node.id();
    let home = down(node);
    until(ground, "it is taken to be there still", |ground| {
        let peers = ground.home.control("/mesh/peers");
        let mut peers = peers.as_array().unwrap().iter();
        !peers.any(|peer| peer["node"] == id.as_str() && peer["path"].is_string())
    });
    home
}

/// How many bundles with tasks in them are in this state.
fn bundles(node: &Node, state: &str) -> usize {
    let bundles = node.home.control("/mesh/bundles");
    let bundles = bundles.as_array().unwrap().iter();
    bundles
        .filter(|bundle| bundle["label"] == "task tally" && bundle["state"] == state)
        .count()
}

fn state(node: &Node, task: &str) -> String {
    let status = node.home.control(&format!("/accepted/{task}"));
    status["state"].as_str().unwrap_or_default().to_owned()
}

#[track_caller]
fn until(node: &Node, what: &str, is: impl Fn(&Node) -> bool) {
    let what = from_fn(|f| {
        let bundles = node.home.control("/mesh/bundles");
        write!(f, "{what}\n{bundles}\n{}", node.home.said(""))
    });
    support::until(PATIENCE, what, || is(node));
}

#[test]
fn what_waits_for_a_contact_goes_when_the_node_is_back_before_and_counts_once() {
    let mut pass = Pass::new("");
    let first = pass.goes_away("bridge", &["--meta", "sleep=2000"]);
    let peers = pass.ground.run(&["mesh", "peers"]).ok().out();
    assert!(peers.contains("next contact"), "{peers}");
    assert!(peers.contains("1 min at 2 Mbit/s"), "{peers}");
    let above = pass.comes_back();
    // It has asked for what it reads, has it, and counts: now its power is cut.
    until(&above, "it does not run", |above| {
        above
            .home
            .said("an attempt runs that came by bundle")
            .lines()
            .count()
            == 2
    });
    let Node { home, server } = above;
    server.kill();
    let above = up(home, &[]);
    pass.is(&first, "done");
    assert_eq!(pass.result(&first), "1");
    pass.above = Some(leaves(&pass.ground, above));
    let second = pass.goes_away("bridge", &[]);
    let above = pass.comes_back();
    pass.is(&second, "done");
    assert_eq!(pass.result(&second), "2");
    drop(above);
}

#[test]
fn a_task_that_has_not_left_runs_in_reach_when_it_can() {
    let pass = Pass::new("");
    // On a node that comes into reach.
    let fog = joined(&pass.ground, |_| ());
    fog.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    let fog = leaves(&pass.ground, fog);
    let first = pass.goes_away("bridge", &[]);
    let fog = up(fog, &[]);
    pass.is(&first, "done");
    assert_eq!(pass.result(&first), "1");
    assert_eq!(
        (bundles(&pass.ground, "waiting"), bundles(&pass.ground, "expired")),
        (0, 1)
    );
    // On this very node.
    drop(leaves(&pass.ground, fog));
    let second = pass.goes_away("bridge", &[]);
    pass.ground.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    pass.is(&second, "done");
    assert_eq!(pass.result(&second), "2");
    assert_eq!(bundles(&pass.ground, "waiting"), 0);
}

#[test]
fn a_task_waits_where_there_is_no_room_for_its_bundle() {
    let mut pass = Pass::new("[store]\nbundles = \"16 KiB\"\n");
    let task = pass.accept("bridge", &[]);
    until(&pass.ground, "it does not say that there is no room", |ground| {
        ground
            .home
            .said("there is no room for tasks")
            .contains("they wait")
    });
    assert_eq!(state(&pass.ground, &task), "waiting");
    assert_eq!(bundles(&pass.ground, "waiting"), 0);
    let Node { home, server } = pass.ground;
    server.kill();
    let config = home.path().join("config/karman/node.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, text.replace("16 KiB", "16 MiB")).unwrap();
    pass.ground = up(home, &[]);
    until(&pass.ground, "it does not go by bundle", |ground| {
        bundles(ground, "waiting") == 1
    });
    pass.is(&task, "running");
}

#[test]
fn a_drained_node_leaves_no_bundle_of_what_it_has_handed_over() {
    let pass = Pass::new("");
    let heir = joined(&pass.ground, |_| ());
    heir.soon(&["mesh", "ping", &pass.ground.id()], b"");
    pass.ground.soon(&["mesh", "ping", &heir.id()], b"");
    let task = pass.goes_away("bridge", &[]);
    pass.ground.run(&["node", "drain"]).ok();
    assert_eq!(state(&pass.ground, &task), "moved");
    until(&pass.ground, "its bundle waits on", |ground| {
        (bundles(ground, "waiting"), bundles(ground, "expired")) == (0, 1)
    });
    heir.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    until(&heir, "the heir does not run it", |heir| {
        state(heir, &task) == "done"
    });
}

#[test]
fn a_task_that_is_away_outlives_a_drain_of_a_node_without_heirs() {
    let mut pass = Pass::new("[tasks]\nattempts = 1\n");
    let task = pass.goes_away("bridge", &[]);
    pass.ground.run(&["node", "drain"]).ok();
    assert_eq!(
        (
            state(&pass.ground, &task).as_str(),
            bundles(&pass.ground, "waiting")
        ),
        ("waiting", 1)
    );
    pass.ground = up(down(pass.ground), &[]);
    pass.is(&task, "running");
    assert_eq!(bundles(&pass.ground, "waiting"), 1);
}

#[test]
fn a_node_that_does_not_run_a_task_any_more_is_not_waited_for() {
    let mut pass = Pass::new("");
    let above = pass.comes_back();
    above.run(&["undeploy", "tally"]).ok();
    pass.above = Some(leaves(&pass.ground, above));
    // A node that offers nothing for a while may again: the ground still counts on it.
    let task = pass.goes_away("bridge", &[]);
    let above = pass.comes_back();
    until(&pass.ground, "it does not hear so", |ground| {
        bundles(ground, "delivered") == 1
    });
    pass.is(&task, "waiting");
    drop(above);
    pass.ground.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    pass.is(&task, "done");
}
