//! What is said to those who watch while it goes on.

use super::alert::Alert;
use karman_node::{FlowStatus, Measured};

/// What was measured of one who can look for water.
pub(super) fn words(measured: &Measured) -> String {
    match (&measured.implementation, &measured.error) {
        (Some(known), _) => format!(
            "  {}   IoU {:.3}   p50 {:.0} ms   p95 {:.0} ms",
            measured.name,
            known.profile.accuracy.unwrap_or_default(),
            known.profile.p50.as_secs_f64() * 1e3,
            known.profile.p95.as_secs_f64() * 1e3
        ),
        (None, Some(error)) => format!("  {}   {error}", measured.name),
        (None, None) => format!("  {}", measured.name),
    }
}

/// A capture that has ended or goes on.
pub(super) fn line(status: &FlowStatus) -> String {
    let state = serde_json::to_value(status.state).unwrap_or_default();
    let state = state.as_str().unwrap_or_default().to_owned();
    match Alert::of(status.output.clone()) {
        Some(alert) => {
            let time = alert.time().map_or_else(
                || "the siren was not sounded".into(),
                |time| format!("{:.1} s from the picture to the siren", time.as_secs_f64()),
            );
            format!("  {:.1} square kilometres under water, {time}", alert.flooded_km2)
        }
        None => format!("  a capture is {state}"),
    }
}
