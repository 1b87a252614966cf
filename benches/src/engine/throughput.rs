use super::Setting;
use super::server::{Contender, Server};
use anyhow::{Context, Result, bail};
use karman_study::pairs::{self, Pair};
use karman_study::report::{Report, Target};
use std::process::Command;

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
    let folder = tempfile::tempdir()?;
    let (ours, _) = Contender::karman(setting, &guest, folder.path()).start()?;
    let (theirs, _) = Contender::wasmtime(wasmtime, &guest, folder.path(), row.at_once)?.start()?;
    let seconds = if setting.quick { 1 } else { 2 };
    load(&ours, connections, 1)?;
    load(&theirs, connections, 1)?;
    let (mut rates, mut latencies) = (Vec::new(), Vec::new());
    for _ in 0..setting.blocks() {
        let (ours, theirs) = if fastrand::bool() {
            let ours = load(&ours, connections, seconds)?;
            (ours, load(&theirs, connections, seconds)?)
        } else {
            let theirs = load(&theirs, connections, seconds)?;
            (load(&ours, connections, seconds)?, theirs)
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
    Ok((rates, latencies))
}

struct Load {
    rate: f64,
    p99_us: f64,
}

fn load(server: &Server, connections: u32, seconds: u32) -> Result<Load> {
    let output = Command::new("wrk")
        .args([
            "-t",
            "1",
            "-c",
            &connections.to_string(),
            "-d",
            &format!("{seconds}s"),
            "--latency",
        ])
        .arg(format!("http://{}/", server.address))
        .output()
        .context("`wrk` is missing: apt-get install wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        bail!("the server failed under load: {text}");
    }
    Ok(Load {
        rate: after(&text, "Requests/sec:")
            .and_then(|word| word.parse().ok())
            .context("wrk printed no rate")?,
        p99_us: after(&text, "99%")
            .and_then(microseconds)
            .context("wrk printed no 99th percentile")?,
    })
}

fn after<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    text.split_whitespace().skip_while(|found| *found != word).nth(1)
}

/// `812.00us`, `1.21ms`, `2.00s`.
fn microseconds(word: &str) -> Option<f64> {
    let split = word.find(|c: char| c.is_ascii_alphabetic())?;
    let number: f64 = word[..split].parse().ok()?;
    match &word[split..] {
        "us" => Some(number),
        "ms" => Some(number * 1e3),
        "s" => Some(number * 1e6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_wrk_prints() {
        let text =
            "  Latency Distribution\n     50%   70.00us\n     99%    1.21ms\nRequests/sec:  13011.12\n";
        assert_eq!(after(text, "Requests/sec:"), Some("13011.12"));
        assert_eq!(after(text, "99%").and_then(microseconds), Some(1210.0));
    }
}
