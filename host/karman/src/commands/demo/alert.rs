use super::truth::Marked;
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;

/// What the dish tells of a capture.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Alert {
    captured_ms: u64,
    known_ms: u64,
    pub(super) flooded_km2: f64,
    pub(super) seen_km2: f64,
    /// Whether the siren was to be sounded.
    alarm: bool,
    /// What it answered, or why it did not.
    #[serde(default)]
    pub(super) siren: Option<Value>,
    pub(super) tiles: Vec<Marked>,
}

impl Alert {
    /// The alert in what a run gave.
    pub(super) fn of(output: Option<Value>) -> Option<Self> {
        serde_json::from_value(output?).ok()
    }

    /// From the picture to the siren; where that was not to be sounded, to the edge board that knows. Nothing where it was to be
    /// sounded, and nobody says that it was.
    pub(super) fn time(&self) -> Option<Duration> {
        let sounded = self.siren.as_ref().and_then(|siren| siren["sounded-ms"].as_u64());
        let until = sounded.or_else(|| (!self.alarm).then_some(self.known_ms))?;
        Some(Duration::from_millis(until.saturating_sub(self.captured_ms)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn time(alarm: bool, siren: Value) -> Option<u64> {
        let told = json!({
            "captured-ms": 1000, "known-ms": 1200, "flooded-km2": 2.0, "seen-km2": 1.5, "alarm": alarm, "siren": siren, "tiles": [],
        });
        Some(Alert::of(Some(told))?.time()?.as_millis() as u64)
    }

    #[test]
    fn only_a_siren_that_was_sounded_has_a_time() {
        assert_eq!(
            time(true, json!({ "sounded-ms": 1350, "node": "siren" })),
            Some(350)
        );
        assert_eq!(time(false, Value::Null), Some(200));
        assert_eq!(time(true, json!({ "failed": "no path" })), None);
        assert_eq!(time(true, Value::Null), None);
    }
}
