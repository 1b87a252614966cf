//! The same cell as a scenario, with the parameters that were measured.

use super::calibrate::Measured;
use super::registered::{Cell, Registered, Window, name};
use anyhow::Result;
use karman_sim::{Arrivals, Route, Scenario, Shape, Streams};
use std::time::Duration;

/// The workload, and the model that it asks for.
pub(super) const WORKLOAD: &str = "requests";
pub(super) const MODEL: &str = "digits-l";

/// Requests that come: how often, by which seed, and how their nodes are found.
#[derive(Clone, Copy)]
pub(super) struct Plan {
    pub(super) route: Route,
    /// Each second, on all nodes together.
    pub(super) rate: f64,
    pub(super) seed: u64,
    pub(super) window: Window,
}

impl Plan {
    /// Those of a cell: a load is what comes over what the nodes can serve.
    pub(super) fn of(
        cell: Cell,
        registered: &Registered,
        measured: &Measured,
        passes: (u64, Window),
    ) -> Self {
        let (seed, window) = passes;
        Self {
            route: cell.route,
            rate: cell.load * f64::from(registered.nodes) / measured.service_s,
            seed,
            window,
        }
    }

    /// When requests come, and the draws by which they do: those of the only workload at the first node of the scenario.
    pub(super) fn arrivals(&self) -> Result<(Arrivals, fastrand::Rng)> {
        let arrivals = Arrivals::new(self.rate, Shape::Exponential.sampler()?)?;
        let random = Streams::new(self.seed).stream(&format!("arrivals {WORKLOAD}"), 0);
        Ok((arrivals, random))
    }

    /// The scenario that karman-sim runs.
    pub(super) fn scenario(&self, registered: &Registered, measured: &Measured) -> Result<Scenario> {
        let Self {
            route,
            rate,
            seed,
            window,
        } = self;
        let [length, warm_up, cool_down] = [window.length, window.warm_up, window.cool_down].map(micros);
        let (nodes, period) = (registered.nodes, micros(registered.telemetry));
        let (service, sigma) = (in_micros(measured.service_s), measured.sigma);
        // Half of it on the way there, half on the way back.
        let delay = in_micros(measured.besides_s / 2.0);
        let route = name(*route);
        let text = format!(
            r#"
            seed = {seed}
            length = "{length}"
            warm-up = "{warm_up}"
            cool-down = "{cool_down}"
            keep-answers = true

            [telemetry]
            period = "{period}"

            [[model]]
            name = "{MODEL}"
            slo = "60 s"
            variation = {{ log-normal = {{ sigma = {sigma:?} }} }}
            exit = [{{ time = "{service}" }}]

            [[node]]
            name = "desk"

            [[node.link]]
            to = "all"
            delay = "{delay}"

            [[node]]
            name = "node"
            count = {nodes}
            serve = "edf"

            [[node.link]]
            to = "all"
            delay = "{delay}"

            [[workload]]
            name = "{WORKLOAD}"
            model = "{MODEL}"
            at = "desk"
            rate = {rate:?}
            route = "{route}"
            to = ["node"]
            "#
        );
        Ok(Scenario::from_toml(&text)?)
    }
}

fn micros(time: Duration) -> String {
    format!("{} us", time.as_micros())
}

fn in_micros(seconds: f64) -> String {
    micros(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use karman_sim::Instant;

    const MEASURED: Measured = Measured {
        service_s: 0.03,
        sigma: 0.1,
        besides_s: 0.002,
        overshoot_s: 0.0005,
    };

    fn plan(load: f64, route: Route) -> (Registered, Plan) {
        let registered = Registered::read().unwrap();
        let passes = (7, registered.evaluation.window());
        let plan = Plan::of(Cell { route, load }, &registered, &MEASURED, passes);
        (registered, plan)
    }

    #[test]
    fn the_simulator_meets_the_arrivals_that_are_sent() {
        let (registered, plan) = plan(0.5, Route::Random);
        let outcome = plan.scenario(&registered, &MEASURED).unwrap().run().unwrap();
        let (arrivals, mut random) = plan.arrivals().unwrap();
        let mut sent = Vec::new();
        let mut next = arrivals.next(Instant::START, &mut random);
        while let Some(at) = next.filter(|at| at.since_start() < plan.window.length) {
            next = arrivals.next(at, &mut random);
            // The draw that finds a node at random.
            random.u32(..registered.nodes);
            sent.push(at);
        }
        assert!(outcome.answers.len() > 100);
        for answer in &outcome.answers {
            assert!(sent.contains(&answer.came), "{} was not sent", answer.came);
        }
    }

    #[test]
    fn more_load_is_more_work() {
        let busy = |load| {
            let (registered, plan) = plan(load, Route::RoundRobin);
            let outcome = plan.scenario(&registered, &MEASURED).unwrap().run().unwrap();
            outcome.nodes[1].utilisation
        };
        let (low, high) = (busy(0.3), busy(0.7));
        assert!(low > 0.15 && low < 0.45, "{low}");
        assert!(high > 0.5 && high < 0.9, "{high}");
    }
}
