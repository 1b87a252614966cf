use super::{LoadLaw, Pool, RouteError, Routed, Router, View, positive};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Routes each request by what it would take here now, and wants replicas by what the law says of the load that comes: before
/// latency rises, not after.
///
/// After LA-IMR (arXiv 2505.07417), whose controller predicts from the rate of the last second alone. A router also knows how many
/// requests it has put into the pool that have not come back, and that says more of the next one than any rate: so routing goes by
/// the backlog, and the rate, smoothed, plans replicas.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LaImr {
    pool: Pool,
    law: LoadLaw,
    settings: LaImrSettings,
    rate: Rate,
    /// Since when fewer replicas would do.
    enough_since: Option<Duration>,
}

/// The settings of LA-IMR.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct LaImrSettings {
    /// A request that would take longer than this many service times here goes above. Default 2.25.
    pub route_over: f64,
    /// Replicas are wanted until a request takes no longer than this many service times in the mean. Default 1.5.
    pub plan_for: f64,
    /// Seconds over which the rate is smoothed. Default 5.
    pub smoothing: f64,
    /// Seconds for which fewer replicas must do before one goes. Default 30.
    pub hold: f64,
}

impl Default for LaImrSettings {
    fn default() -> Self {
        Self {
            route_over: 2.25,
            plan_for: 1.5,
            smoothing: 5.0,
            hold: 30.0,
        }
    }
}

impl LaImr {
    /// For a pool whose latency follows this law.
    ///
    /// # Errors
    /// Names the number that is outside its bounds.
    pub fn new(pool: Pool, law: LoadLaw, settings: LaImrSettings) -> Result<Self, RouteError> {
        pool.check()?;
        positive("service", law.service)?;
        positive("route-over", settings.route_over)?;
        positive("plan-for", settings.plan_for)?;
        positive("smoothing", settings.smoothing)?;
        positive("hold", settings.hold)?;
        Ok(Self {
            pool,
            law,
            settings,
            rate: Rate::default(),
            enough_since: None,
        })
    }
}

impl LaImrSettings {
    /// The fewest units, from 1 to `most` of `servers` each, by which requests that come at this rate take no longer than they may
    /// ([`Self::plan_for`]).
    pub(crate) fn wanted(&self, law: &LoadLaw, rate: f64, (most, servers): (u32, u32)) -> u32 {
        let latency = self.plan_for * law.service;
        let keeps = |units: &u32| law.latency(rate, units.saturating_mul(servers)) <= latency;
        (1..most).find(keeps).unwrap_or(most)
    }
}

/// Requests a second, smoothed: each counts the less the longer ago it came.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Rate {
    /// When the last one came.
    last: Duration,
    /// What it was then.
    then: f64,
}

impl Rate {
    /// What it is now, smoothed over so many seconds.
    pub(crate) fn at(&self, now: Duration, smoothing: f64) -> f64 {
        let passed = now.saturating_sub(self.last).as_secs_f64();
        self.then * (-passed / smoothing).exp()
    }

    /// A request comes.
    pub(crate) fn comes(&mut self, now: Duration, smoothing: f64) {
        self.then = self.at(now, smoothing) + 1.0 / smoothing;
        self.last = now;
    }
}

/// Seconds that one more request takes where this many replicas serve and this many requests wait or are served: those ahead of it, then
/// itself.
pub(crate) fn expected(service: f64, replicas: u32, here: u32) -> f64 {
    let replicas = f64::from(replicas.max(1));
    // With all replicas busy, the first is free after a share of a service time, and each that waits takes one more.
    let ahead = (f64::from(here) + 1.0 - replicas).max(0.0);
    service * (1.0 + ahead / replicas)
}

impl Router for LaImr {
    fn name(&self) -> &'static str {
        "la_imr"
    }

    fn route(&mut self, view: &View) -> Routed {
        self.rate.comes(view.now, self.settings.smoothing);
        let service = self.law.service;
        let expected = expected(service, view.replicas, view.here);
        let limit = self.settings.route_over * service;
        Routed {
            above: expected > limit && view.above < self.pool.most_above,
            expected,
            limit,
        }
    }

    fn desired(&mut self, view: &View) -> u32 {
        let rate = self.rate.at(view.now, self.settings.smoothing);
        let wanted = self.settings.wanted(&self.law, rate, (self.pool.most, 1));
        let have = self.pool.clamp(f64::from(view.replicas + view.starting));
        if wanted >= have {
            self.enough_since = None;
            return wanted;
        }
        let since = *self.enough_since.get_or_insert(view.now);
        if view.now.saturating_sub(since).as_secs_f64() < self.settings.hold {
            return have;
        }
        // One at a time.
        self.enough_since = Some(view.now);
        have - 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{POOL, view};
    use super::*;

    fn la_imr() -> LaImr {
        LaImr::new(POOL, LoadLaw::erlang(0.73), LaImrSettings::default()).unwrap()
    }

    #[test]
    fn a_request_that_would_wait_too_long_goes_above() {
        let mut router = la_imr();
        assert!(!router.route(&view(0.0, 2, 3)).above);
        // Three are ahead of it at two replicas: 2.5 service times, over 2.25.
        let routed = router.route(&view(0.0, 2, 4));
        assert!(routed.above, "{routed:?}");
        assert!(
            routed
                .why()
                .to_string()
                .starts_with("who serves the request: the tier above, rather than this pool")
        );
        let full = View {
            above: 6,
            ..view(0.0, 2, 4)
        };
        let routed = router.route(&full);
        assert!(!routed.above && routed.why().because.contains("no room"));
    }

    #[test]
    fn replicas_are_wanted_with_the_rate_and_let_go_one_by_one() {
        let mut router = la_imr();
        for n in 0..300 {
            router.route(&view(f64::from(n) * 0.2, 1, 0));
        }
        // Five a second are 3.65 service times a second: 5 replicas wait 0.41 of one, which 4 do not keep to.
        assert_eq!(router.desired(&view(60.0, 1, 0)), 5);
        let silent = |router: &mut LaImr, second, replicas| router.desired(&view(second, replicas, 0));
        assert_eq!(silent(&mut router, 90.0, 5), 5);
        assert_eq!(silent(&mut router, 119.0, 5), 5);
        assert_eq!(silent(&mut router, 120.0, 5), 4);
        assert_eq!(silent(&mut router, 140.0, 4), 4);
        assert_eq!(silent(&mut router, 150.0, 4), 3);
    }

    #[test]
    fn where_no_number_would_do_as_many_as_may_be_are_wanted() {
        let wanted = LaImrSettings::default().wanted(&LoadLaw::erlang(0.5), 1e9, (7, 1));
        assert_eq!(wanted, 7);
    }

    /// The rate that is known on average while gaps between requests are these shares of the mean one.
    fn mean_rate(per_second: f64, mut gap: impl FnMut() -> f64) -> f64 {
        let (mut rate, smoothing) = (Rate::default(), LaImrSettings::default().smoothing);
        let (mut next, mut sum, mut looks) = (0.0, 0.0, 0.0);
        // Out of step with requests that come in a beat.
        let mut look = 60.0;
        while looks < 2000.0 {
            while next < look {
                rate.comes(Duration::from_secs_f64(next), smoothing);
                next += gap() / per_second;
            }
            sum += rate.at(Duration::from_secs_f64(look), smoothing);
            (looks, look) = (looks + 1.0, look + 9.731);
        }
        sum / looks
    }

    #[test]
    fn the_rate_is_that_of_the_requests() {
        let mut rng = fastrand::Rng::with_seed(7);
        for rate in [0.5, 1.0, 2.0, 5.0] {
            let regular = mean_rate(rate, || 1.0);
            let poisson = mean_rate(rate, || -(1.0 - rng.f64()).ln());
            for found in [regular, poisson] {
                assert!((found / rate - 1.0).abs() < 0.1, "{found} of {rate}");
            }
        }
    }

    #[test]
    fn bad_settings_are_named() {
        let with = |settings| {
            LaImr::new(POOL, LoadLaw::erlang(0.73), settings)
                .unwrap_err()
                .field
        };
        let default = LaImrSettings::default();
        assert_eq!(
            with(LaImrSettings {
                route_over: f64::NAN,
                ..default
            }),
            "route-over"
        );
        assert_eq!(with(LaImrSettings { hold: 0.0, ..default }), "hold");
        let nobody = Pool { most: 0, ..POOL };
        assert_eq!(
            LaImr::new(nobody, LoadLaw::erlang(0.73), default)
                .unwrap_err()
                .field,
            "most"
        );
    }
}
