//! Both sides of a cut carry on, and what waited for the other side arrives when it is mended.

use crate::internet::{Internet, Place};
use crate::mesh::path;
use crate::support::{Home, Ran, Server, pause, until};
use std::time::{Duration, Instant};

/// How long the link is gone.
const CUT: Duration = Duration::from_secs(60);
/// How long both sides rest between two calls meanwhile.
const BETWEEN_CALLS: Duration = Duration::from_millis(250);
/// The time within which the two have found each other again, and what waited is done.
const HEALED: Duration = Duration::from_secs(60);
const CLOUD: Place = Place::Internet(1);
const EDGE: Place = Place::Internet(2);

struct Side {
    home: Home,
    _server: Server,
}

impl Side {
    fn start(internet: &Internet, place: Place, tier: &str, join: Option<&str>) -> Self {
        let home = Home::new();
        let folder = home.path().join("config/karman");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("node.toml"), format!("tier = \"{tier}\"\n")).unwrap();
        if join.is_none() {
            home.run(["mesh", "init"]).ok();
        }
        let mut arguments = vec!["node", "up", "--listen", "127.0.0.1:0"];
        arguments.extend(join.iter().flat_map(|word| ["--join", word]));
        let server = home.started(internet.inside(place, &home.command(arguments)));
        Self {
            home,
            _server: server,
        }
    }

    fn deploy(&self, guest: &str) {
        self.home.run(["deploy", &path(guest), "--grant-asked"]).ok();
    }

    fn call(&self, task: &str, input: &str) -> Ran {
        self.home.run_with(["call", task, "-"], input.as_bytes())
    }

    fn accept(&self, task: &str, input: &str, more: &[&str]) -> String {
        let arguments = [&["call", task, "-", "--accept", "local"], more].concat();
        self.home.run_with(arguments, input.as_bytes()).ok().out()
    }

    fn state(&self, task: &str) -> String {
        let status = self.home.control(&format!("/accepted/{task}"));
        status["state"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn both_sides_of_a_cut_carry_on_and_what_waited_arrives() {
    let internet = match Internet::new(&[CLOUD, EDGE]) {
        Ok(internet) => internet,
        Err(why) => return eprintln!("not tested, for there are no networks of our own here: {why}"),
    };
    let cloud = Side::start(&internet, CLOUD, "cloud", None);
    cloud.deploy("tiny");
    let word = cloud
        .home
        .run([
            "mesh",
            "invite",
            "--tier",
            "edge",
            "--right",
            "bucket-read:*",
            "--right",
            "bucket-write:*",
        ])
        .ok()
        .out();
    let edge = Side::start(&internet, EDGE, "edge", Some(&word));
    edge.deploy("tally");
    until(HEALED, "they do not find each other", || {
        edge.call("tiny", "1234").code == 0 && cloud.call("tally", "before").code == 0
    });

    internet.cut(&[CLOUD], &[EDGE]).unwrap();
    let cut = Instant::now();
    let of_edge: Vec<String> = (0..5).map(|_| edge.accept("tiny", "12345", &[])).collect();
    let of_cloud: Vec<String> = (0..5)
        .map(|number| cloud.accept("tally", &format!("key-{number}"), &[]))
        .collect();
    let late = edge.accept("tiny", "1", &["--within", "20s"]);
    let mut served = 0;
    while cut.elapsed() < CUT {
        edge.call("tally", "here").ok();
        cloud.call("tiny", "1234").ok();
        served += 1;
        std::thread::park_timeout(BETWEEN_CALLS);
    }
    edge.call("tiny", "1234").fails(4, "");
    assert_eq!(edge.state(&late), "expired");
    for (side, task) in of_edge
        .iter()
        .map(|task| (&edge, task))
        .chain(of_cloud.iter().map(|task| (&cloud, task)))
    {
        assert_ne!(side.state(task), "done", "{task} went over a link that is cut");
    }

    internet.mend().unwrap();
    let mended = Instant::now();
    let states = |side: &Side, tasks: &[String]| -> Vec<String> {
        tasks.iter().map(|task| side.state(task)).collect()
    };
    loop {
        let (edge, cloud) = (states(&edge, &of_edge), states(&cloud, &of_cloud));
        if edge.iter().chain(&cloud).all(|state| state == "done") {
            break;
        }
        assert!(
            mended.elapsed() < HEALED,
            "what waited does not arrive: {edge:?}, {cloud:?}"
        );
        pause();
    }
    println!(
        "{served} calls on either side during the cut; what waited was done {:.1?} after it",
        mended.elapsed()
    );
    for task in &of_cloud {
        assert_eq!(cloud.home.run(["task", "result", task.as_str()]).ok().out(), "1");
    }
    edge.home
        .run(["task", "result", late.as_str()])
        .fails(5, "time of the task is over");
}
