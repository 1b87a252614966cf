//! What a plugin cannot do. Each order of the `hostile` guest ends in an error of its own, and the next call sees nothing
//! of it.

use crate::support::{Home, guest, resident, root};
use std::time::{Duration, Instant};

#[test]
fn a_spinning_guest_ends_at_its_deadline() {
    let started = Instant::now();
    Home::new()
        .hostile("spin", &["--within", "200ms"])
        .fails(5, "did not finish within 200 ms");
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[test]
fn a_sleeping_guest_ends_at_its_deadline() {
    Home::new()
        .hostile("sleep 60000", &["--within", "200ms"])
        .fails(5, "did not finish within 200 ms");
}

#[test]
fn memory_is_refused_at_the_limit() {
    let home = Home::new();
    let ran = home.hostile("alloc", &[]);
    match ran.code {
        // A guest that handles the refusal goes on; what it got is below its limit.
        0 => {
            let refused_after: u32 = ran.out().split_whitespace().nth(4).unwrap().parse().unwrap();
            assert!(refused_after < 64, "{ran:?}");
        }
        _ => drop(ran.fails(5, "64 MiB of memory")),
    }
}

#[test]
fn traps_and_panics_are_failures_of_the_task() {
    let home = Home::new();
    home.hostile("trap", &[])
        .fails(1, "trapped")
        .fails(1, "-v shows what it wrote");
    home.hostile("fail internal", &[])
        .fails(6, "the plugin itself is defective");
    home.hostile("panic", &[]).fails(1, "trapped");
    home.hostile("deep-recursion", &[]).fails(1, "trapped");
}

#[test]
fn handles_of_the_host_are_bounded() {
    Home::new().hostile("table", &[]).fails(5, "handles of the host");
}

#[test]
fn the_time_of_day_is_told_to_the_millisecond() {
    let home = Home::new();
    for _ in 0..3 {
        let nanoseconds: u128 = home.hostile("now", &[]).ok().out().trim().parse().unwrap();
        assert_eq!(nanoseconds % 1_000_000, 0);
    }
}

#[test]
fn an_output_over_its_limit_is_refused() {
    let home = Home::new();
    assert_eq!(home.hostile("output 1000", &[]).ok().out().len(), 1000);
    home.hostile("output 17000000", &[])
        .fails(5, "16 MiB is its most");
    home.hostile("output 20000000", &[])
        .fails(5, "more than 17 MiB at once");
}

#[test]
fn nothing_is_there_that_was_not_granted() {
    let home = Home::new();
    let secret = home.path().join("secret.txt");
    std::fs::write(&secret, "hush").unwrap();
    let read = format!("fs {}", secret.display());
    home.hostile(&read, &[]).fails(1, "");
    let folder = format!("fs:{}", home.path().display());
    // The manifest does not ask for a folder, so the operator's word alone opens none.
    home.hostile(&read, &["--grant", &folder]).fails(1, "");
    assert_eq!(home.hostile("env", &[]).ok().out(), "");
    home.hostile("kv road", &[]).fails(1, "AccessDenied");
    home.hostile("nn digits-m", &[]).fails(1, "Security");
    home.hostile("http http://example.org/", &[])
        .fails(1, "HttpRequestDenied")
        .fails(1, "`asks` in its manifest has to name `http:example.org:80`");
    home.hostile("call other", &[]).fails(3, "no grant `call:other`");
}

#[test]
fn no_folder_is_granted_that_holds_the_nodes_keys() {
    let home = Home::new();
    let _server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run([std::ffi::OsStr::new("deploy"), guest("hostile").as_os_str()])
        .ok();
    let grant = |folder: &str| {
        let folder = format!("fs:{}", home.path().join(folder).display());
        home.run(["node", "grant", "hostile", folder.as_str()])
    };
    for folder in ["", "state", "state/keys"] {
        grant(folder).fails(3, "the node keeps its keys and state in");
    }
    grant("data").ok();
}

#[test]
fn nothing_leaks_into_the_next_call() {
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run([std::ffi::OsStr::new("deploy"), guest("hostile").as_os_str()])
        .ok();
    for _ in 0..3 {
        let answer = server.post("/tasks/hostile", &[("content-type", "do/count")], b"");
        assert_eq!((answer.status, answer.text().as_str()), (200, "1"));
    }
}

/// Every kind of hostile call, mixed with honest ones, on one node: it answers each, and its memory stays flat.
#[test]
fn a_node_survives_a_thousand_hostile_calls() {
    const ORDERS: [(&str, u16); 9] = [
        ("spin", 504),
        ("alloc", 200),
        ("trap", 422),
        ("panic", 422),
        ("deep-recursion", 422),
        ("output 20000000", 429),
        ("http http://169.254.169.254/", 422),
        ("fs /etc/passwd", 422),
        ("nonsense", 400),
    ];
    let home = Home::new();
    let server = home.start(["node", "up", "--listen", "127.0.0.1:0"]);
    home.run([std::ffi::OsStr::new("deploy"), guest("hostile").as_os_str()])
        .ok();
    let round = |count: usize| {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        std::thread::scope(|scope| {
            for thread in 0..cores {
                let server = &server;
                scope.spawn(move || {
                    for number in (thread..count).step_by(cores) {
                        let (order, expected) = ORDERS[number % ORDERS.len()];
                        let within = [("karman-within", "50 ms"), ("karman-meta-do", order)];
                        let answer = server.post("/tasks/hostile", &within, b"");
                        let late = answer.status == 504;
                        assert!(answer.status == expected || late, "{order}: {answer:?}");
                        let honest =
                            server.post("/tasks/hostile", &[("karman-meta-do", "echo")], b"still here");
                        assert_eq!(honest.text(), "still here");
                    }
                });
            }
        });
        resident(server.pid())
    };
    // Every thread's allocator and every slot of the pool has its own high-water mark; once they are reached, it must not
    // grow any more.
    round(200);
    let mut before = round(200);
    let flat = (0..4).any(|_| {
        let after = round(600);
        let flat = after as f64 <= before as f64 * 1.05;
        println!("resident memory over 600 hostile calls: {before} to {after} bytes");
        before = after;
        flat
    });
    assert!(flat, "resident memory grows with every 600 calls");
    assert_eq!(server.get("/healthz").status, 200);
}

#[test]
fn it_runs_under_a_2_gib_address_limit_and_in_512_mb() {
    let home = Home::new();
    let hostile = guest("hostile");
    for limit in ["--as=2147483648", "--data=536870912"] {
        let karman = home.command(["run", hostile.to_str().unwrap(), "-", "--meta", "do=echo"]);
        let mut limited = std::process::Command::new("prlimit");
        limited
            .arg(limit)
            .arg(karman.get_program())
            .args(karman.get_args());
        limited.envs(karman.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let output = limited
            .stdin(std::process::Stdio::null())
            .current_dir(root())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{limit}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
