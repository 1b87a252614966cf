//! What happens to workflows, followed as it happens: from the middle on, over a kill of the gateway, and long after the end.

use super::load::limited;
use super::*;
use crate::mesh::path;
use std::io::{BufRead, BufReader};

/// Items that a run counts, one after the other.
const ITEMS: usize = 6;
/// The time within which something happens, on a machine with better things to do.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Debug, PartialEq)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

/// The answer to somebody who follows a run: its events, until there are none any more.
struct Followed {
    status: u16,
    lines: BufReader<TcpStream>,
}

impl Iterator for Followed {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        let mut event = Event {
            id: String::new(),
            name: String::new(),
            data: Value::Null,
        };
        loop {
            let mut line = String::new();
            match self.lines.read_line(&mut line) {
                Ok(_) if line.ends_with('\n') => {}
                // It may be cut off anywhere.
                _ => return None,
            }
            match line.trim_end().split_once(": ") {
                Some(("id", id)) => id.clone_into(&mut event.id),
                Some(("event", name)) => name.clone_into(&mut event.name),
                Some(("data", data)) => event.data = serde_json::from_str(data).unwrap(),
                None if line.trim_end().is_empty() && !event.name.is_empty() => return Some(event),
                // What only keeps the connection alive.
                _ => {}
            }
        }
    }
}

fn follow(server: &Server, run: &str, last: Option<&str>) -> Followed {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // Version 1.0 knows no chunks: the events end with the connection.
    let mut head = format!("GET /flows/{run}/events HTTP/1.0\r\nhost: localhost\r\n");
    if let Some(last) = last {
        head.push_str(&format!("last-event-id: {last}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes()).unwrap();
    let mut lines = BufReader::new(stream);
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let status = line.split(' ').nth(1).and_then(|status| status.parse().ok());
    while !line.trim_end().is_empty() {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    Followed {
        status: status.unwrap_or(0),
        lines,
    }
}

fn counting(home: Home) -> Node {
    let node = gateway(home, &["flow:*"]);
    node.run(&["deploy", &path("tally"), "--grant-asked"]).ok();
    node
}

/// Hands a run in that takes so many milliseconds for each item; its id.
fn begin(node: &Node, sleep: u32) -> String {
    let workflow = format!(
        "name = 'tally-all'\n\
         [task.count]\nrun = 'tally'\neach = 'keys'\nat-once = 1\nwith = {{ sleep = '{sleep}' }}\n\
         [task.total]\nrun = 'tally'\nafter = ['count']\n"
    );
    let keys: Vec<String> = (0..ITEMS).map(|key| format!("key-{key}")).collect();
    let order = json!({ "workflow": workflow, "input": { "keys": keys } }).to_string();
    let accepted = node.server.post("/flows", &[JSON], order.as_bytes());
    assert_eq!(accepted.status, 202, "{accepted:?}");
    accepted.json()["flow"].as_str().unwrap().to_owned()
}

/// Every change has the next number, and the end comes last.
#[track_caller]
fn are_whole(events: &[Event]) {
    let (last, changes) = events.split_last().expect("no events");
    for (at, event) in changes.iter().enumerate() {
        assert_eq!(event.id, (at + 1).to_string(), "{events:?}");
    }
    assert_eq!((&last.id[..], &last.name[..]), ("end", "ended"), "{events:?}");
    assert_eq!(
        (&last.data["state"], &last.data["output"]),
        (&json!("done"), &json!("1")),
        "{last:?}"
    );
}

#[test]
fn a_workflow_is_followed_to_its_end_and_from_its_middle() {
    let node = counting(home("cloud"));
    let run = begin(&node, 50);
    let all: Vec<Event> = follow(&node.server, &run, None).collect();
    are_whole(&all);
    let mut expected = vec!["begun"];
    expected.extend([&["item"; ITEMS][..], &["done", "begun", "done", "ended"]].concat());
    let names: Vec<&str> = all.iter().map(|event| &event.name[..]).collect();
    assert_eq!(names, expected, "{all:?}");
    let begun = &all[0].data;
    assert_eq!(
        (&begun["task"], &begun["runs"]),
        (&json!("count"), &json!(ITEMS)),
        "{begun}"
    );
    for (item, event) in all[1..=ITEMS].iter().enumerate() {
        assert_eq!(event.data["item"], json!(item), "{all:?}");
    }

    // It ended before; what is told is the same.
    let later: Vec<Event> = follow(&node.server, &run, None).collect();
    assert_eq!(later, all);
    for known in [1, ITEMS, all.len() - 1] {
        let rest: Vec<Event> = follow(&node.server, &run, Some(&known.to_string())).collect();
        assert_eq!(rest, all[known..], "after {known}");
    }
    // Who knows the end is told not to come again.
    let mut nothing = follow(&node.server, &run, Some("end"));
    assert_eq!((nothing.status, nothing.next()), (204, None));
    assert_eq!(follow(&node.server, &run, Some("three")).status, 400);
    assert_eq!(
        follow(&node.server, "01JD7W2Z0Q8V5M3N9K4T6B1XAC", None).status,
        404
    );
}

#[test]
fn a_kill_of_the_gateway_loses_and_repeats_no_event() {
    let node = counting(home("cloud"));
    let run = begin(&node, 400);
    let mut followed = follow(&node.server, &run, None);
    let mut told: Vec<Event> = followed.by_ref().take(3).collect();
    let Node { home, server } = node;
    server.kill();
    // What was on its way may still come.
    told.extend(followed);
    assert_ne!(
        told.last().map(|event| &event.name[..]),
        Some("ended"),
        "{told:?}"
    );
    let last = told.last().unwrap().id.clone();

    let server = home.start(["gateway", "--listen", "127.0.0.1:0", "--open", "flow:*"]);
    told.extend(follow(&server, &run, Some(&last)));
    are_whole(&told);
    let all: Vec<Event> = follow(&server, &run, None).collect();
    assert_eq!(told, all);
}

#[test]
fn a_gateway_that_stops_says_so_and_keeps_nobody() {
    let node = counting(home("cloud"));
    let run = begin(&node, 8_000);
    let mut followed = follow(&node.server, &run, None);
    assert_eq!(followed.next().unwrap().name, "begun");
    node.server.signal_terminate();
    let cut = followed.by_ref().find(|event| event.name == "cut");
    let cut = cut.expect("it is not told");
    assert_eq!(
        (&cut.id[..], &cut.data["code"]),
        ("", &json!("unavailable")),
        "{cut:?}"
    );
    assert_eq!(followed.next(), None);
}

#[test]
fn who_follows_takes_a_place_until_the_end() {
    let node = counting(limited("beside = 1"));
    let run = begin(&node, 2_000);
    let mut first = follow(&node.server, &run, None);
    assert_eq!(first.next().unwrap().name, "begun");
    assert_eq!(follow(&node.server, &run, None).status, 503);
    drop(first);
    let started = Instant::now();
    while follow(&node.server, &run, None).status != 200 {
        assert!(started.elapsed() < PATIENCE, "the place is not given back");
    }
}
