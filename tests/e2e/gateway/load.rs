//! More than the gateway can do: it refuses what is too much, quickly and in bounded memory, and goes on with the rest.

use super::*;
use crate::support::resident;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::mpsc::{RecvTimeoutError, channel};

/// Tasks that run at once, and how long each takes: 40 a second.
const AT_ONCE: usize = 4;
const TAKES_MS: u64 = 100;
/// Three times of that arrive, from so many callers, each with one request under way or none.
const CALLERS: usize = 48;
const PACE: Duration = Duration::from_millis(400);
const REQUESTS: usize = 15;
/// What the body of each has, and what all of them together may take.
const BODY: usize = 1 << 20;
const BODIES_MIB: u64 = 16;
/// By how much the process may grow besides.
const GROWTH: u64 = 96 << 20;

pub(super) fn limited(limits: &str) -> Home {
    let home = home("cloud");
    home.configure(&format!("[gateway.limits]\n{limits}\n"));
    home
}

/// The answer to a request, and how long it took.
type Timed = (Answer, Duration);

/// Requests of one caller, one at each tick of its clock however long the one before took.
fn caller(node: &Node, number: usize) -> Vec<Timed> {
    let body = vec![b'x'; BODY];
    let order = format!("sleep {TAKES_MS}");
    let headers = [("karman-meta-do", &order[..]), ("karman-within", "20 s")];
    let (_never, tick) = channel::<()>();
    let begun = Instant::now();
    let of = |at: usize| PACE.mul_f64(at as f64 + number as f64 / CALLERS as f64);
    (0..REQUESTS)
        .map(|at| {
            let wait = of(at).saturating_sub(begun.elapsed());
            assert_eq!(tick.recv_timeout(wait), Err(RecvTimeoutError::Timeout));
            let asked = Instant::now();
            let answer = node.server.post("/tasks/hostile", &headers, &body);
            (answer, asked.elapsed())
        })
        .collect()
}

fn quantile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    times
        .get(((times.len() as f64 - 1.0) * share) as usize)
        .copied()
        .unwrap_or_default()
}

#[test]
fn three_times_its_capacity_is_refused_quickly_and_in_bounded_memory() {
    let limits = format!(
        "at-once = {AT_ONCE}\nwaiting = {AT_ONCE}\nwait = \"200 ms\"\nbody = \"2 MiB\"\nbodies = \"{BODIES_MIB} MiB\""
    );
    let node = gateway(limited(&limits), &["call:*", "infer:*"]);
    node.run(&["deploy", guest("hostile").to_str().unwrap()]).ok();
    let warm = [("karman-meta-do", "sleep 1")];
    assert_eq!(node.server.post("/tasks/hostile", &warm, b"").status, 200);
    let before = resident(node.server.pid());
    let (most, answers) = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|number| {
                let node = &node;
                scope.spawn(move || caller(node, number))
            })
            .collect();
        let mut most = before;
        let (_never, look) = channel::<()>();
        while callers.iter().any(|caller| !caller.is_finished()) {
            most = most.max(resident(node.server.pid()));
            // It never stops answering those who watch over it.
            assert_eq!(node.server.get("/healthz").status, 200);
            let _ = look.recv_timeout(PACE / 8);
        }
        let answers = callers.into_iter().flat_map(|caller| caller.join().unwrap());
        (most, answers.collect::<Vec<Timed>>())
    });

    // On a machine that has better things to do, what was taken on may come to the task's own limit.
    let (taken, refused): (Vec<Timed>, Vec<Timed>) = answers
        .into_iter()
        .partition(|(answer, _)| [200, 504].contains(&answer.status));
    let (served, late): (Vec<Timed>, Vec<Timed>) =
        taken.into_iter().partition(|(answer, _)| answer.status == 200);
    for (answer, _) in &refused {
        assert!([429, 503].contains(&answer.status), "{answer:?}");
        assert!(header(answer, "retry-after").is_some(), "{answer:?}");
    }
    let offered = CALLERS * REQUESTS;
    assert!(
        refused.len() * 3 > offered,
        "{} of {offered} are refused",
        refused.len()
    );
    assert!(
        served.len() * 10 > offered,
        "{} of {offered} are served",
        served.len()
    );
    let grown = most.saturating_sub(before);
    assert!(grown < (BODIES_MIB << 20) + GROWTH, "it grows by {grown} bytes");
    // How long it takes depends on the machine, so it is shown.
    let times = |all: &[Timed]| -> Vec<Duration> { all.iter().map(|(_, took)| *took).collect() };
    let (mut served, mut refused) = (times(&served), times(&refused));
    println!(
        "{offered} offered, {} served (p50 {:?}, p99 {:?}), {} late, {} refused (p50 {:?}, p99 {:?}), {} MiB more",
        served.len(),
        quantile(&mut served, 0.5),
        quantile(&mut served, 0.99),
        late.len(),
        refused.len(),
        quantile(&mut refused, 0.5),
        quantile(&mut refused, 0.99),
        grown >> 20,
    );

    // Nothing of it is left.
    let load = node.home.ask("GET", "/healthz", &[], b"");
    assert!(load.is_some());
    assert_eq!(infer(&node.server, MODEL, &[]).status, 200);
    let bearer = token(&node, &["--right", "admin"]);
    let load = node
        .server
        .send("GET", "/admin/load", &[("authorization", &bearer)], b"");
    let load = load.json();
    assert_eq!(
        (&load["running"], &load["waiting"], &load["bodies"]),
        (&json!(0), &json!(0), &json!(0)),
        "{load}"
    );
}

/// A thousand connections of each slow kind.
const SLOW: usize = 1000;
/// Answers that others get meanwhile.
const OTHERS: usize = 40;

/// As many descriptors as the system gives.
fn more_descriptors() {
    let now = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: now.maximum,
        ..now
    };
    setrlimit(Resource::Nofile, raised).unwrap();
    let most = now.maximum.unwrap_or(u64::MAX);
    assert!(
        most > 2 * SLOW as u64,
        "the system gives {most} descriptors: raise `ulimit -Hn`"
    );
}

/// While they are open, others are served; each of them says a byte more in every round.
fn others_are_served_beside(node: &Node, mut slow: Vec<TcpStream>) {
    for round in 0..OTHERS {
        for stream in slow.iter_mut().skip(round % 8).step_by(8) {
            // One that had to make room for another is closed.
            let _ = stream.write_all(b"x");
        }
        let answer = infer(&node.server, MODEL, &[]);
        assert_eq!(answer.status, 200, "round {round}: {answer:?}");
    }
}

fn slow(node: &Node, head: &str) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(&node.server.address).unwrap();
        let _ = stream.write_all(head.as_bytes());
        stream
    };
    (0..SLOW).map(open).collect()
}

#[test]
fn a_thousand_slow_heads_keep_nobody_out() {
    more_descriptors();
    let node = gateway(home("cloud"), &["infer:*"]);
    let streams = slow(
        &node,
        "POST /v2/models/digits-s/infer HTTP/1.1\r\nhost: localhost\r\nx-slow: ",
    );
    others_are_served_beside(&node, streams);
}

#[test]
fn a_thousand_slow_bodies_keep_nobody_out() {
    more_descriptors();
    let head = format!(
        "POST /v2/models/{MODEL}/infer HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4096\r\n\r\n{{"
    );
    // Where there is a place for each, and where there are far too few.
    for connections in [4096, 100] {
        let node = gateway(limited(&format!("connections = {connections}")), &["infer:*"]);
        let streams = slow(&node, &head);
        others_are_served_beside(&node, streams);
    }
}

/// Workflows that are handed in while it is killed again and again.
const KEYS: usize = 40;
const KILLS: usize = 4;

#[test]
fn workflows_that_were_accepted_survive_kills_of_the_gateway() {
    let arguments = [
        "gateway",
        "--listen",
        "127.0.0.1:0",
        "--open",
        "flow:*",
        "--open",
        "call:*",
    ];
    let home = home("cloud");
    let server = home.start(arguments);
    let mut node = Node { home, server };
    node.run(&["deploy", guest("tally").to_str().unwrap(), "--grant-asked"])
        .ok();
    let order = |key: usize| {
        let flow =
            "name = \"tally\"\n[task.count]\nrun = \"tally\"\nretries = 3\nwith = { sleep = \"40\" }\n";
        json!({ "workflow": flow, "input": format!("flow-{key}") }).to_string()
    };
    let (mut accepted, mut next) = (Vec::new(), 0);
    for kill in 1..=KILLS {
        // The kill comes while one is being handed in: it is acknowledged, or nobody counts on it.
        while next < KEYS * kill / KILLS {
            let idempotent = format!("order-{next}");
            let headers = [JSON, ("karman-idempotency-key", &idempotent)];
            let body = order(next);
            let last = next + 1 == KEYS * kill / KILLS;
            let answer = std::thread::scope(|scope| {
                let handing_in = scope.spawn(|| node.server.try_post("/flows", &headers, body.as_bytes()));
                if last {
                    node.server.signal_kill();
                }
                handing_in.join().unwrap()
            });
            match answer {
                Some(answer) if answer.status == 202 => {
                    accepted.push((next, answer.json()["flow"].as_str().unwrap().to_owned()));
                    next += 1;
                }
                answer => {
                    assert!(last, "{answer:?}");
                    // Nobody knows: its caller asks again, under the same key.
                    break;
                }
            }
        }
        let Node { home, server } = node;
        server.kill();
        let server = home.start(arguments);
        node = Node { home, server };
        if next < KEYS * kill / KILLS {
            let idempotent = format!("order-{next}");
            let headers = [JSON, ("karman-idempotency-key", &idempotent)];
            let answer = node.server.post("/flows", &headers, order(next).as_bytes());
            assert_eq!(answer.status, 202, "{answer:?}");
            accepted.push((next, answer.json()["flow"].as_str().unwrap().to_owned()));
            next += 1;
        }
    }
    assert_eq!(accepted.len(), KEYS);
    for (key, run) in accepted {
        let started = Instant::now();
        let ended = loop {
            let status = node.server.get(&format!("/flows/{run}?wait=20s")).json();
            match status["state"].as_str() {
                Some("done" | "failed") => break status,
                _ => assert!(started.elapsed() < Duration::from_secs(120), "{status}"),
            }
        };
        assert_eq!(ended["state"], "done", "{ended}");
        let counted = node.server.post(
            "/tasks/tally",
            &[("karman-meta-read", "1")],
            format!("flow-{key}").as_bytes(),
        );
        assert_eq!(counted.text(), "1", "flow-{key}");
    }
}
