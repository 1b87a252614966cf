use karman_types::{ByteSize, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The GPU that plugins get, and how much of it.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GpuConfig {
    /// `auto`, `off`, or a device as `karman gpu list` names it. Default `auto`: the first that is hardware.
    pub device: GpuChoice,
    /// The longest that one piece of work may keep it. Default 5 s.
    #[serde(with = "serde_duration")]
    pub time: Duration,
    /// The most memory of one piece of work. Default 256 MiB.
    pub memory: ByteSize,
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            device: GpuChoice::default(),
            time: Duration::from_secs(5),
            memory: ByteSize::mib(256),
        }
    }
}

/// Which GPU plugins get.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(from = "String", into = "String")]
pub enum GpuChoice {
    /// The first that is hardware.
    #[default]
    Auto,
    /// None.
    Off,
    /// This one, be it software.
    Named(String),
}

impl From<String> for GpuChoice {
    fn from(text: String) -> Self {
        match text.as_str() {
            "auto" => Self::Auto,
            "off" => Self::Off,
            _ => Self::Named(text),
        }
    }
}

impl From<GpuChoice> for String {
    fn from(choice: GpuChoice) -> Self {
        match choice {
            GpuChoice::Auto => "auto".into(),
            GpuChoice::Off => "off".into(),
            GpuChoice::Named(id) => id,
        }
    }
}
