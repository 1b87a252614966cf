use super::hpa::Rule;
use super::{Pool, RouteError, Routed, Router, View, positive};
use serde::{Deserialize, Serialize};

/// Acts on measured latency: replicas by the autoscaler's rule on its ratio to a target, and above a second limit a part of the
/// requests goes above, the more the further it is over.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LatencyTriggered {
    rule: Rule,
    settings: LatencySettings,
    /// Of a request that is to go above, saved up from those before.
    owed: f64,
}

/// The settings of the latency-triggered autoscaler.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LatencySettings {
    /// Seconds to come to. Default 1.
    pub target: f64,
    /// Seconds over which requests go above; infinite: none does. Default 1.5.
    pub offload_over: f64,
    /// Whether it goes by the 95th percentile instead of the mean. Default true.
    pub p95: bool,
    /// Seconds between looks. Default 5.
    pub sync: f64,
    /// Seconds over which the most wanted counts before replicas go. Default 60.
    pub down_window: f64,
}

impl Default for LatencySettings {
    fn default() -> Self {
        Self {
            target: 1.0,
            offload_over: 1.5,
            p95: true,
            sync: 5.0,
            down_window: 60.0,
        }
    }
}

impl LatencyTriggered {
    /// For a pool.
    ///
    /// # Errors
    /// Names the number that is outside its bounds.
    pub fn new(pool: Pool, settings: LatencySettings) -> Result<Self, RouteError> {
        positive("target", settings.target)?;
        if settings.offload_over != f64::INFINITY {
            positive("offload-over", settings.offload_over)?;
        }
        Ok(Self {
            rule: Rule::new(pool, settings.sync, settings.down_window)?,
            settings,
            owed: 0.0,
        })
    }

    fn latency(&self, view: &View) -> Option<f64> {
        let of = |measured: super::Measured| {
            if self.settings.p95 {
                measured.p95
            } else {
                measured.mean
            }
        };
        view.measured.map(of)
    }
}

impl Router for LatencyTriggered {
    fn name(&self) -> &'static str {
        "latency_triggered"
    }

    fn route(&mut self, view: &View) -> Routed {
        let (measured, limit) = (self.latency(view).unwrap_or(0.0), self.settings.offload_over);
        let share = if measured > limit {
            (measured - limit) / measured
        } else {
            0.0
        };
        self.owed = if share > 0.0 { self.owed + share } else { 0.0 };
        let above = self.owed >= 1.0 && view.above < self.rule.pool().most_above;
        if above {
            self.owed -= 1.0;
        }
        self.owed = self.owed.min(1.0);
        Routed {
            above,
            expected: measured,
            limit,
        }
    }

    fn desired(&mut self, view: &View) -> u32 {
        let ratio = self.latency(view).map(|latency| latency / self.settings.target);
        self.rule.desired(view, ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{POOL, measured, view};
    use super::*;

    #[test]
    fn it_acts_when_latency_has_risen() {
        let mut router = LatencyTriggered::new(POOL, LatencySettings::default()).unwrap();
        assert_eq!(router.desired(&measured(view(0.0, 2, 50), 1.0, 1.0)), 2);
        assert_eq!(router.desired(&measured(view(5.0, 2, 50), 1.6, 1.0)), 4);
        let above = |router: &mut LatencyTriggered, latency| {
            (0..100)
                .filter(|_| router.route(&measured(view(6.0, 4, 9), latency, 1.0)).above)
                .count()
        };
        assert_eq!(above(&mut router, 1.4), 0);
        // Twice the limit: every second one.
        assert_eq!(above(&mut router, 3.0), 50);
    }

    #[test]
    fn bad_settings_are_named() {
        let with = |settings| LatencyTriggered::new(POOL, settings).unwrap_err().field;
        let default = LatencySettings::default();
        assert_eq!(
            with(LatencySettings {
                target: -1.0,
                ..default
            }),
            "target"
        );
        assert_eq!(
            with(LatencySettings {
                offload_over: f64::NAN,
                ..default
            }),
            "offload-over"
        );
        assert!(
            LatencyTriggered::new(
                POOL,
                LatencySettings {
                    offload_over: f64::INFINITY,
                    ..default
                }
            )
            .is_ok()
        );
    }
}
