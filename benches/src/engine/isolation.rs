use super::Setting;
use super::server::{Connection, Server};
use anyhow::{Context, Result, ensure};
use karman_study::machine::memory_of;
use karman_study::report::{Report, Target};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// What hostile callers order, besides spinning: to grow, to trap, to recurse, to answer without end, to reach out.
const ORDERS: [&str; 8] = [
    "alloc",
    "trap",
    "panic",
    "deep-recursion",
    "output 20000000",
    "http http://169.254.169.254/",
    "fs /etc/passwd",
    "nonsense",
];
const HOSTILE_CALLS: usize = 1_000;
/// Three ticks of 10 ms.
const MOST_EXCESS_MS: f64 = 30.0;

/// The p99 of honest calls to a node, alone and beside hostile ones, with as many guests spinning as there are cores.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let node = node(setting, folder.path())?;
    for guest in ["hostile", "tiny"] {
        deploy(setting, folder.path(), guest)?;
    }
    let calls = if setting.quick { 1_000 } else { 20_000 };
    honest(&node, |done| done == calls / 4)?;
    let quiet = honest(&node, |done| done == calls)?;
    // Every allocator and pool slot reaches its high-water mark before memory is compared.
    beside_hostile(&node)?;
    let before = memory_of(node.pid())?.resident;
    let beside = beside_hostile(&node)?;
    let after = memory_of(node.pid())?.resident;
    report.figure("honest_p99_quiet", quiet, "ms", Target::Shown);
    report.figure("honest_p99_beside_hostile", beside, "ms", Target::Shown);
    report.figure(
        "honest_p99_excess",
        beside - quiet,
        "ms",
        Target::AtMost(MOST_EXCESS_MS),
    );
    let growth = after as f64 / before as f64;
    report.figure("memory_growth_by_hostile", growth, "ratio", Target::AtMost(1.05));
    Ok(())
}

fn node(setting: &Setting, folder: &std::path::Path) -> Result<Server> {
    let mut command = Command::new(&setting.karman);
    command
        .args(["--json", "node", "up", "--listen", "127.0.0.1:0"])
        .env("KARMAN_STATE", folder.join("state"))
        .env("KARMAN_CACHE", folder.join("cache"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("stdout is piped")?).read_line(&mut line)?;
    let started: serde_json::Value = serde_json::from_str(&line)?;
    let url = started["url"].as_str().context("a node prints its url")?;
    let address = url.trim_start_matches("http://").parse()?;
    Ok(Server::new(child, address))
}

fn deploy(setting: &Setting, folder: &std::path::Path, guest: &str) -> Result<()> {
    let deployed = Command::new(&setting.karman)
        .args(["-q", "deploy"])
        .arg(setting.guest(guest)?)
        .env("KARMAN_STATE", folder.join("state"))
        .env("KARMAN_CACHE", folder.join("cache"))
        .status()?;
    ensure!(deployed.success(), "`karman deploy {guest}` failed");
    Ok(())
}

/// The p99 in ms of calls that honest clients make one after the other until they have enough.
fn honest(node: &Server, enough: impl Fn(usize) -> bool) -> Result<f64> {
    let mut client = Connection::open(node)?;
    let mut times = Vec::new();
    while !enough(times.len()) {
        let started = Instant::now();
        let status = client.post("/tasks/tiny", &[], &[7; 1024])?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        ensure!(status == 200, "an honest call was answered with {status}");
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() * 99 / 100])
}

fn beside_hostile(node: &Server) -> Result<f64> {
    let cores = std::thread::available_parallelism()?.get();
    let (sent, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let spinners: Vec<_> = (0..cores)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Connection::open(node)?;
                    while !over.load(Relaxed) {
                        client.post("/tasks/hostile", &hostile("spin", "1 s"), b"")?;
                    }
                    anyhow::Ok(())
                })
            })
            .collect();
        let mixed = scope.spawn(|| {
            let mut client = Connection::open(node)?;
            for number in 0..HOSTILE_CALLS {
                client.post(
                    "/tasks/hostile",
                    &hostile(ORDERS[number % ORDERS.len()], "100 ms"),
                    b"",
                )?;
                sent.fetch_add(1, Relaxed);
            }
            anyhow::Ok(())
        });
        let p99 = honest(node, |_| mixed.is_finished());
        over.store(true, Relaxed);
        for hostile in spinners.into_iter().chain([mixed]) {
            hostile
                .join()
                .map_err(|_| anyhow::anyhow!("a hostile client panicked"))??;
        }
        ensure!(
            sent.load(Relaxed) == HOSTILE_CALLS,
            "not every hostile call was answered"
        );
        p99
    })
}

const fn hostile<'a>(order: &'a str, within: &'a str) -> [(&'static str, &'a str); 2] {
    [("karman-meta-do", order), ("karman-within", within)]
}
