//! Every contender's settings, chosen on the tuning traces: the least p99 among those whose cost is within the bound.

use super::edge::{Run, Trace, run};
use super::registered::{Monitoring, Registered};
use anyhow::{Context, Result};
use karman_sched::tier::{
    Constant, Hpa, HpaSettings, LaImr, LaImrSettings, LatencySettings, LatencyTriggered, LoadLaw, Pool,
    Router,
};
use karman_study::pairs::median;
use serde::Serialize;

/// A contender with its settings.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) enum Contender {
    LaImr(LaImrSettings),
    LatencyTriggered(LatencySettings),
    Hpa(HpaSettings),
    Constant,
    AlwaysAbove,
}

impl Contender {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::LaImr(_) => "la_imr",
            Self::LatencyTriggered(_) => "latency_triggered",
            Self::Hpa(_) => "hpa",
            Self::Constant => "constant",
            Self::AlwaysAbove => "always_above",
        }
    }

    pub(super) fn router(self, registered: &Registered) -> Result<Box<dyn Router>> {
        let system = &registered.system;
        let pool = Pool {
            most: system.most,
            most_above: system.most_above,
        };
        Ok(match self {
            Self::LaImr(settings) => Box::new(LaImr::new(pool, LoadLaw::erlang(system.service), settings)?),
            Self::LatencyTriggered(settings) => Box::new(LatencyTriggered::new(pool, settings)?),
            Self::Hpa(settings) => Box::new(Hpa::new(pool, settings)?),
            Self::Constant => Box::new(Constant::here(pool, system.most)?),
            Self::AlwaysAbove => Box::new(Constant::above(pool)?),
        })
    }
}

/// The contenders as they run in the evaluation, ours first.
pub(super) fn tuned(registered: &Registered) -> Result<Vec<Contender>> {
    let tuning = &registered.tuning;
    let mut ours = Vec::new();
    for route_over in &tuning.la_imr.route_over {
        for plan_for in &tuning.la_imr.plan_for {
            for hold in &tuning.la_imr.hold {
                ours.push(Contender::LaImr(LaImrSettings {
                    route_over: *route_over,
                    plan_for: *plan_for,
                    hold: *hold,
                    ..LaImrSettings::default()
                }));
            }
        }
    }
    let grid = &tuning.latency_triggered;
    let mut theirs = Vec::new();
    for target in &grid.target {
        for offload_over in &grid.offload_over {
            for p95 in &grid.p95 {
                theirs.push(Contender::LatencyTriggered(LatencySettings {
                    target: *target,
                    offload_over: *offload_over,
                    p95: *p95,
                    sync: registered.system.scrape,
                    down_window: grid.down_window,
                }));
            }
        }
    }
    let hpa = tuning.hpa.target.iter().map(|target| {
        Contender::Hpa(HpaSettings {
            target: *target,
            ..HpaSettings::default()
        })
    });
    let (theirs, cost) = best(registered, theirs, tuning.cost_bound)?;
    // Nor may ours cost more than theirs.
    let (ours, _) = best(registered, ours, tuning.cost_bound.min(cost))?;
    let (hpa, _) = best(registered, hpa.collect(), tuning.cost_bound)?;
    Ok(vec![
        ours,
        theirs,
        hpa,
        Contender::Constant,
        Contender::AlwaysAbove,
    ])
}

/// The one with the least p99, and its cost. Where none is within the bound, the cheapest.
fn best(registered: &Registered, contenders: Vec<Contender>, bound: f64) -> Result<(Contender, f64)> {
    let tuning = &registered.tuning;
    let judge = |contender: Contender| -> Result<(Contender, f64, f64)> {
        let on = |seed: &u64| {
            let trace = Trace {
                load: tuning.load,
                warm_up: tuning.warm_up,
                seconds: tuning.seconds,
                seed: *seed,
            };
            run(
                &registered.system,
                trace,
                Monitoring::default(),
                contender.router(registered)?.as_mut(),
            )
        };
        let runs: Vec<Run> = tuning.seeds.iter().map(on).collect::<Result<_>>()?;
        let of = |value: fn(&Run) -> f64| median(runs.iter().map(value).collect());
        Ok((contender, of(|run| run.p99), of(|run| run.cost)))
    };
    let judged: Vec<_> = contenders.into_iter().map(judge).collect::<Result<_>>()?;
    let within = judged.iter().filter(|(_, _, cost)| *cost <= bound);
    let chosen = within.min_by(|(_, one, _), (_, other, _)| one.total_cmp(other));
    let cheapest = || {
        judged
            .iter()
            .min_by(|(_, _, one), (_, _, other)| one.total_cmp(other))
    };
    let (contender, p99, cost) = chosen.or_else(cheapest).context("no settings to choose from")?;
    eprintln!("chosen on the tuning traces: {contender:?}, p99 {p99:.2} s, cost {cost:.2}");
    Ok((*contender, *cost))
}
