//! The machine that a study ran on, and what its processes take.

use anyhow::{Context, Result, bail};
use std::fs;
use std::path::PathBuf;

/// The machine in words: processor, cores, memory, kernel.
pub fn describe() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        cpuinfo
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split(':').nth(1))
            .map(str::trim)
    };
    let model = field("model name")
        .or_else(|| field("Model"))
        .unwrap_or("unknown processor");
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory
        .split_whitespace()
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{model}, {cores} cores, {} GiB, Linux {}",
        kib >> 20,
        kernel.trim()
    )
}

/// Resident bytes of a process, and those that are its own (proportional share).
///
/// # Errors
///
/// There is no such process, or it is not ours to look at.
pub fn memory_of(pid: u32) -> Result<Memory> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let field = |name: &str| -> u64 {
        let line = rollup.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .unwrap_or(0)
            * 1024
    };
    Ok(Memory {
        resident: field("Rss:"),
        proportional: field("Pss:"),
    })
}

/// Memory of a process in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// All that is resident.
    pub resident: u64,
    /// Shared pages counted by their share.
    pub proportional: u64,
}

/// Memory of a process and of all that it has started: their proportional shares together, so that what they share counts once.
pub fn memory_of_tree(pid: u32) -> u64 {
    let all = std::iter::once(pid).chain(descendants(pid));
    all.filter_map(|pid| Some(memory_of(pid).ok()?.proportional))
        .sum()
}

/// What a process has started, and what that has started, and so on.
pub fn descendants(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> = children
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<u32>>()
        })
        .collect();
    children
        .into_iter()
        .flat_map(|child| std::iter::once(child).chain(descendants(child)))
        .collect()
}

/// Ends a process and all that it has started.
pub fn kill_tree(pid: u32) {
    for pid in descendants(pid).into_iter().chain([pid]) {
        if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

/// A program that was built together with this one.
///
/// # Errors
///
/// It was not.
pub fn beside_us(name: &str) -> Result<PathBuf> {
    let path = std::env::current_exe()?
        .parent()
        .context("a program lies in a folder")?
        .join(name);
    if !path.exists() {
        bail!(
            "{} is missing; run `cargo build --release -p karman` first",
            path.display()
        );
    }
    Ok(path)
}

/// Seconds of processor time that a process has used, with all its threads.
///
/// # Errors
///
/// There is no such process.
pub fn processor_time_of(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the program stands in parentheses and may hold anything; what is counted comes after it.
    let (_, fields) = stat.rsplit_once(')').context("no name")?;
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u64 = ticks.map(|field| field.parse::<u64>()).sum::<Result<u64, _>>()?;
    Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}
