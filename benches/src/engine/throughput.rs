use super::Setting;
use super::server::{Contender, Server};
use crate::wrk;
use anyhow::Result;
use karman_study::pairs::{self, Pair};
use karman_study::report::{Report, Target};

/// What is served, and how `wasmtime serve` is told to.
struct Row {
    guest: &'static str,
    suffix: &'static str,
    /// Requests at once in one of its instances.
    at_once: Option<u32>,
    judged: bool,
}

/// Both sides reuse instances as the interface's own default has it: 0.2 never, 0.3 for 128 requests, one after the other.
/// The last row shows theirs with 16 requests at once in an instance.
const ROWS: [Row; 3] = [
    Row {
        guest: "hello-http02",
        suffix: "",
        at_once: None,
        judged: true,
    },
    Row {
        guest: "hello-http03",
        suffix: ".wasi03",
        at_once: Some(1),
        judged: true,
    },
    Row {
        guest: "hello-http03",
        suffix: ".wasi03-shared",
        at_once: None,
        judged: false,
    },
];
const CONNECTIONS: [u32; 3] = [1, 8, 64];
/// How often both servers are started for a cell. What a process makes of its cores and its memory is luck that lasts as long as it does.
const STARTS: usize = 6;

/// Requests per second and p99 of latency, by `wrk` on loopback.
pub(crate) fn run(setting: &Setting, report: &mut Report) -> Result<()> {
    for row in &ROWS {
        let bound = |target| if row.judged { target } else { Target::Shown };
        for connections in CONNECTIONS {
            let cell = format!("c{connections}{}", row.suffix);
            match cell_of(setting, row, connections) {
                Ok((rates, latencies)) => {
                    let ours = pairs::median(rates.iter().map(|pair| pair.ours).collect());
                    report.figure(&format!("http_rps.{cell}"), ours, "1/s", Target::Shown);
                    report.ratio(
                        &format!("http_rps_vs_wasmtime_serve.{cell}"),
                        rates,
                        bound(Target::AtLeast(1.0)),
                    );
                    report.ratio(
                        &format!("http_p99_vs_wasmtime_serve.{cell}"),
                        latencies,
                        bound(Target::AtMost(1.0)),
                    );
                }
                Err(reason) => report.void(
                    &format!("http_rps_vs_wasmtime_serve.{cell}"),
                    format!("{reason:#}"),
                ),
            }
        }
    }
    Ok(())
}

fn cell_of(setting: &Setting, row: &Row, connections: u32) -> Result<(Vec<Pair>, Vec<Pair>)> {
    let wasmtime = setting
        .wasmtime
        .as_ref()
        .map_err(|reason| anyhow::anyhow!("{reason}"))?;
    let guest = setting.guest(row.guest)?;
    let seconds = if setting.quick { 1 } else { 2 };
    let load = |server: &Server, seconds| {
        let url = format!("http://{}/", server.address);
        wrk::load(&url, connections, seconds, None)
    };
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    let blocks: Vec<usize> = (0..setting.blocks()).collect();
    for blocks in blocks.chunks(setting.blocks().div_ceil(STARTS)) {
        let folder = tempfile::tempdir()?;
        let (ours, _) = Contender::karman(setting, &guest, folder.path()).start()?;
        let (theirs, _) = Contender::wasmtime(wasmtime, &guest, folder.path(), row.at_once)?.start()?;
        load(&ours, 1)?;
        load(&theirs, 1)?;
        for _ in blocks {
            let (ours, theirs) = if fastrand::bool() {
                let ours = load(&ours, seconds)?;
                (ours, load(&theirs, seconds)?)
            } else {
                let theirs = load(&theirs, seconds)?;
                (load(&ours, seconds)?, theirs)
            };
            rates.push(Pair {
                ours: ours.rate,
                theirs: theirs.rate,
            });
            latencies.push(Pair {
                ours: ours.p99_us,
                theirs: theirs.p99_us,
            });
        }
    }
    Ok((rates, latencies))
}
