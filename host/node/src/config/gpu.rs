use karman_store::ModelExit;
use karman_types::{ByteSize, pattern_matches, serde_duration};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// The GPU that plugins and models get, and how much of it.
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
    /// The models of this node that run on it, by name or by pattern (`flood-*`). Default none: models run on the processor.
    pub models: BTreeMap<String, ModelDevice>,
    /// How many times slower or faster than it was measured a model for `auto` may become where it runs before it is measured on both
    /// again, 1.1 to 100. Default 1.5.
    #[serde(deserialize_with = "drift")]
    pub drift: f64,
    /// The least time from one such measurement to the next; each that changes nothing doubles it, up to 64 times as long. Default 1 min.
    #[serde(with = "serde_duration")]
    pub measure_again: Duration,
}

fn drift<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    let times = f64::deserialize(deserializer)?;
    match (1.1..=100.0).contains(&times) {
        true => Ok(times),
        false => Err(D::Error::custom(format!("{times} is not from 1.1 to 100"))),
    }
}

impl Default for GpuConfig {
    fn default() -> Self {
        Self {
            device: GpuChoice::default(),
            time: Duration::from_secs(5),
            memory: ByteSize::mib(256),
            models: BTreeMap::new(),
            drift: 1.5,
            measure_again: Duration::from_secs(60),
        }
    }
}

/// What a model of this node runs on.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelDevice {
    /// The GPU, or nothing.
    Gpu,
    /// The GPU or the processor, whichever ran it faster when it was last measured: when it was loaded, and whenever its runs have
    /// drifted from that.
    Auto,
}

impl GpuConfig {
    /// What the operator has this model run on; nothing said: the processor. Its own name counts before patterns.
    pub fn model(&self, name: &str) -> Option<ModelDevice> {
        let mut patterns = self.models.iter();
        let by_pattern =
            || patterns.find_map(|(pattern, device)| pattern_matches(pattern, name).then_some(device));
        self.models.get(name).or_else(by_pattern).copied()
    }

    /// The names in `models` that none of these has, nor an exit of theirs. A pattern may be for those to come.
    pub fn of_no_model<'a>(&self, held: impl Iterator<Item = &'a str>) -> Vec<&str> {
        let held: HashSet<&str> = held.collect();
        let is_held = |name: &str| {
            let model = ModelExit::parse(name).map(|(model, _)| model);
            held.contains(name) || model.is_some_and(|model| held.contains(model))
        };
        let names = self.models.keys().map(String::as_str);
        names
            .filter(|name| !name.contains('*') && !is_held(name))
            .collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use karman_types::from_toml;

    #[test]
    fn a_model_runs_where_its_name_says_before_a_pattern() {
        let text = "[models]\n\"*-s\" = \"auto\"\n\"flood-*\" = \"gpu\"\nflood-s = \"gpu\"";
        let config: GpuConfig = from_toml(text).unwrap();
        assert_eq!(config.model("flood-s"), Some(ModelDevice::Gpu));
        assert_eq!(config.model("flood-m"), Some(ModelDevice::Gpu));
        assert_eq!(config.model("fire-s"), Some(ModelDevice::Auto));
        assert_eq!(config.model("fire-m"), None);
        assert_eq!(GpuConfig::default().model("flood-s"), None);
    }

    #[test]
    fn a_name_of_no_model_is_told_and_a_pattern_is_not() {
        let text =
            "[models]\n\"fire-*\" = \"auto\"\n\"flood:1\" = \"gpu\"\nflood = \"gpu\"\nnosuch = \"gpu\"";
        let config: GpuConfig = from_toml(text).unwrap();
        assert_eq!(config.of_no_model(["flood"].into_iter()), ["nosuch"]);
    }

    #[test]
    fn what_is_no_device_is_refused() {
        assert!(from_toml::<GpuConfig>("[models]\nflood = \"tpu\"").is_err());
        assert!(from_toml::<GpuConfig>("drift = 1.0").is_err());
        assert_eq!(from_toml::<GpuConfig>("drift = 3").unwrap().drift, 3.0);
    }
}
