use crate::units::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What one plugin may use. A manifest asks for less or more; what lies over the node's ceiling does not load.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Limits {
    /// Linear memory of one instance, all its memories together. Default 64 MiB.
    pub memory: ByteSize,
    /// Wall-clock time of one call. Default 10 s.
    #[serde(with = "serde_duration")]
    pub time: Duration,
    /// Calls at once; four times as many wait, 64 at least, and one more is refused with `limit`. Default 64.
    pub concurrency: u32,
    /// Bytes of one request's body. Default 16 MiB.
    pub input: ByteSize,
    /// Bytes of one response's body, and of what it writes to standard output. Default 16 MiB.
    pub output: ByteSize,
    /// Elements of one table. Default 100,000.
    pub table_elements: u32,
    /// Core instances within the component. Default 64.
    pub instances: u32,
    /// Units of fuel of one call; metered only when set, because metering costs up to half the speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fuel: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory: ByteSize::mib(64),
            time: Duration::from_secs(10),
            concurrency: 64,
            input: ByteSize::mib(16),
            output: ByteSize::mib(16),
            table_elements: 100_000,
            instances: 64,
            fuel: None,
        }
    }
}

impl Limits {
    /// The most that any node grants without the operator saying otherwise.
    pub fn ceiling() -> Self {
        Self {
            memory: ByteSize::gib(1),
            time: Duration::from_secs(300),
            concurrency: 1024,
            input: ByteSize::mib(256),
            output: ByteSize::mib(256),
            table_elements: 1_000_000,
            instances: 256,
            fuel: None,
        }
    }

    /// The first limit that lies over the ceiling: its name, what was asked, what is allowed.
    pub fn over(&self, ceiling: &Self) -> Option<(&'static str, String, String)> {
        fn over<T: PartialOrd + ToString>(
            name: &'static str,
            asked: &T,
            most: &T,
        ) -> Option<(&'static str, String, String)> {
            (asked > most).then(|| (name, asked.to_string(), most.to_string()))
        }
        over("memory", &self.memory, &ceiling.memory)
            .or_else(|| over("time", &Millis(self.time), &Millis(ceiling.time)))
            .or_else(|| over("concurrency", &self.concurrency, &ceiling.concurrency))
            .or_else(|| over("input", &self.input, &ceiling.input))
            .or_else(|| over("output", &self.output, &ceiling.output))
            .or_else(|| over("table-elements", &self.table_elements, &ceiling.table_elements))
            .or_else(|| over("instances", &self.instances, &ceiling.instances))
    }
}

#[derive(PartialEq, PartialOrd)]
struct Millis(Duration);

impl std::fmt::Display for Millis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&crate::format_duration(self.0))
    }
}
