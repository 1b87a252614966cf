use super::{Pool, RouteError, Routed, Router, View, bounded, positive};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::time::Duration;

/// The rule of Kubernetes' horizontal autoscaler: `ceil(replicas * measured / target)`, nothing within a tolerance, looked at every
/// so often, and down only to the most that was wanted over a window. Routes everything here.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Hpa {
    rule: Rule,
    target: f64,
}

/// The settings of the horizontal pod autoscaler. The defaults are those of Kubernetes.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct HpaSettings {
    /// The utilisation to come to, over 0 and at most 1. Default 0.7.
    pub target: f64,
    /// Seconds between looks. Default 15.
    pub sync: f64,
    /// Seconds over which the most wanted counts before replicas go. Default 300.
    pub down_window: f64,
}

impl Default for HpaSettings {
    fn default() -> Self {
        Self {
            target: 0.7,
            sync: 15.0,
            down_window: 300.0,
        }
    }
}

/// The part that does not care what is measured.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Rule {
    pool: Pool,
    sync: Duration,
    down_window: Duration,
    looked: Option<Duration>,
    /// What was wanted, and when.
    wanted: VecDeque<(Duration, u32)>,
}

/// Ratios this near to 1 change nothing.
const TOLERANCE: f64 = 0.1;

impl Rule {
    pub(crate) fn new(pool: Pool, sync: f64, down_window: f64) -> Result<Self, RouteError> {
        pool.check()?;
        positive("sync", sync)?;
        positive("down-window", down_window)?;
        Ok(Self {
            pool,
            sync: Duration::from_secs_f64(sync),
            down_window: Duration::from_secs_f64(down_window),
            looked: None,
            wanted: VecDeque::new(),
        })
    }

    pub(crate) const fn pool(&self) -> Pool {
        self.pool
    }

    /// How many replicas there should be, where this much is measured for each unit of the target.
    pub(crate) fn desired(&mut self, view: &View, ratio: Option<f64>) -> u32 {
        let have = self.pool.clamp(f64::from(view.replicas + view.starting));
        let due = self.looked.is_none_or(|looked| view.now >= looked + self.sync);
        let Some(ratio) = ratio.filter(|ratio| due && ratio.is_finite()) else {
            return have;
        };
        self.looked = Some(view.now);
        let wanted = match (ratio - 1.0).abs() <= TOLERANCE {
            true => have,
            false => self.pool.clamp((f64::from(have) * ratio).ceil()),
        };
        self.wanted.push_back((view.now, wanted));
        while self
            .wanted
            .front()
            .is_some_and(|(at, _)| *at + self.down_window < view.now)
        {
            self.wanted.pop_front();
        }
        let most = self
            .wanted
            .iter()
            .map(|(_, wanted)| *wanted)
            .max()
            .unwrap_or(wanted);
        if wanted >= have { wanted } else { most.min(have) }
    }
}

impl Hpa {
    /// For a pool.
    ///
    /// # Errors
    /// Names the number that is outside its bounds.
    pub fn new(pool: Pool, settings: HpaSettings) -> Result<Self, RouteError> {
        let HpaSettings {
            target,
            sync,
            down_window,
        } = settings;
        bounded(
            "target",
            target,
            target > 0.0 && target <= 1.0,
            "over 0 and at most 1",
        )?;
        Ok(Self {
            rule: Rule::new(pool, sync, down_window)?,
            target,
        })
    }
}

impl Router for Hpa {
    fn name(&self) -> &'static str {
        "hpa"
    }

    fn route(&mut self, _: &View) -> Routed {
        Routed {
            above: false,
            expected: 0.0,
            limit: f64::INFINITY,
        }
    }

    fn desired(&mut self, view: &View) -> u32 {
        let ratio = view.measured.map(|measured| measured.utilisation / self.target);
        self.rule.desired(view, ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{POOL, measured, view};
    use super::*;

    #[test]
    fn it_scales_as_kubernetes_does() {
        let mut hpa = Hpa::new(
            POOL,
            HpaSettings {
                target: 0.5,
                ..HpaSettings::default()
            },
        )
        .unwrap();
        let mut desired =
            |second, replicas, used| hpa.desired(&measured(view(second, replicas, 0), 1.0, used));
        assert_eq!(desired(0.0, 2, 0.9), 4);
        // Not before the next look.
        assert_eq!(desired(5.0, 4, 1.0), 4);
        // Within the tolerance.
        assert_eq!(desired(15.0, 4, 0.54), 4);
        // Down only when nothing more was wanted for five minutes.
        assert_eq!(desired(30.0, 4, 0.2), 4);
        assert_eq!(desired(315.0, 4, 0.2), 4);
        assert_eq!(desired(331.0, 4, 0.2), 2);
        assert_eq!(hpa.desired(&view(900.0, 3, 0)), 3);
    }

    #[test]
    fn bad_settings_are_named() {
        let with = |settings| Hpa::new(POOL, settings).unwrap_err().field;
        let default = HpaSettings::default();
        assert_eq!(
            with(HpaSettings {
                target: 0.0,
                ..default
            }),
            "target"
        );
        assert_eq!(
            with(HpaSettings {
                sync: f64::INFINITY,
                ..default
            }),
            "sync"
        );
    }
}
