//! Requests per second and latency by `wrk`, which takes little of the processor itself.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

/// What a block of load showed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// Answers per second.
    pub(crate) rate: f64,
    /// 99th percentile of the time to an answer.
    pub(crate) p99_us: f64,
}

/// Loads a server over so many connections that are kept; `script` says what is sent where it is not a plain GET.
pub(crate) fn load(url: &str, connections: u32, seconds: u32, script: Option<&Path>) -> Result<Load> {
    let mut command = Command::new("wrk");
    command.args(["-t", "1", "-c", &connections.to_string()]);
    command.args(["-d", &format!("{seconds}s"), "--latency"]);
    if let Some(script) = script {
        command.arg("-s").arg(script);
    }
    let output = command
        .arg(url)
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
