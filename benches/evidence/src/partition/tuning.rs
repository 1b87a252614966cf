//! The settings that were tried, each one change away from the default.

use karman_sched::partition::Tuning;
use std::time::Duration;

/// Names and settings, the default first.
pub(crate) fn grid() -> Vec<(String, Tuning)> {
    let mut grid = vec![("default".to_string(), Tuning::default())];
    let mut numbers = |name: &str, values: &[f64], set: fn(&mut Tuning, f64)| {
        for value in values {
            let mut tuning = Tuning::default();
            set(&mut tuning, *value);
            grid.push((format!("{name}.{value}"), tuning));
        }
    };
    numbers("period_s", &[0.25, 1.0, 2.0, 5.0], |tuning, s| {
        tuning.period = Duration::from_secs_f64(s)
    });
    numbers("deviation", &[0.15, 0.6], |tuning, share| {
        tuning.deviation = share
    });
    numbers("hysteresis", &[0.0, 0.0005, 0.01, 0.05], |tuning, share| {
        tuning.hysteresis = share
    });
    numbers("shipping_hysteresis", &[0.0, 0.15], |tuning, share| {
        tuning.shipping_hysteresis = share;
    });
    numbers("horizon_s", &[20.0, 180.0], |tuning, s| {
        tuning.horizon = Duration::from_secs_f64(s)
    });
    numbers("link_gain", &[0.3, 1.0], |tuning, gain| tuning.link_gain = gain);
    numbers("tier_gain", &[0.1, 0.4], |tuning, gain| tuning.tier_gain = gain);
    numbers("deviating_gain", &[0.5, 0.75], |tuning, gain| {
        tuning.deviating_gain = gain
    });
    numbers("forget_s", &[5.0, 10.0, 40.0, 80.0, 1e6], |tuning, s| {
        tuning.forget = Duration::from_secs_f64(s)
    });
    numbers("probe_after_s", &[1.0, 2.0], |tuning, s| {
        tuning.probe_after = Duration::from_secs_f64(s)
    });
    numbers("probe_at_most_s", &[0.5, 1.0, 4.0, 8.0], |tuning, s| {
        tuning.probe_at_most = Duration::from_secs_f64(s);
    });
    numbers("optimism", &[1.0, 4.0], |tuning, times| tuning.optimism = times);
    numbers("probe_ms", &[5.0, 80.0], |tuning, ms| {
        tuning.probe_time = Duration::from_secs_f64(ms / 1e3)
    });
    numbers("probe_kib", &[16.0, 64.0], |tuning, kib| {
        tuning.probe_bytes = (kib * 1024.0) as u64
    });
    grid
}
