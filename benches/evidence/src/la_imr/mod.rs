//! LA-IMR against autoscaling on measured latency: an edge pool of YOLOv5m replicas with bursts, and a cloud above it. All rows of
//! p99 and cost are simulated.
//!
//! | key | what |
//! |---|---|
//! | `p99_vs_latency_autoscaler` | p99 of LA-IMR over that of the latency-triggered autoscaler, both tuned on other traces; median of paired seeds at 6 requests a second |
//! | `cost_vs_latency_autoscaler` | the same of replica-seconds and priced cloud-seconds |
//! | `p99.POLICY.LOAD`, `p95.POLICY.LOAD` | seconds, with the client's round trip of a second; median of seeds |
//! | `cost.POLICY`, `above.POLICY`, `replicas.POLICY` | at the judged load: cost a second, share of requests in the cloud, replicas in the mean |
//! | `p99_vs_latency_autoscaler.PERTURBATION` | with monitoring that is late, imprecise or incomplete |
//! | `law_error.DISCIPLINE`, `law_error_left_out.DISCIPLINE` | mean relative error of the refitted law on the seven stable calibration points, and on each when it is left out |
//!
//! The published table is context: 20.7 % less at 6 requests a second, against an autoscaler that is not described further.

mod edge;
mod registered;
mod tune;

use anyhow::Result;
use edge::{Run, Trace, run as simulate};
use karman_sched::tier::{Calibration, Discipline, LoadLaw, leave_one_out};
use karman_study::interval::bootstrap;
use karman_study::pairs::{Pair, median};
use karman_study::report::{Kind, Report, Target};
use registered::{Monitoring, Registered, registered};
use serde::Serialize;
use tune::{Contender, tuned};

#[derive(Clone, Debug, Serialize)]
struct Row {
    policy: &'static str,
    load: f64,
    monitoring: String,
    seed: u64,
    #[serde(flatten)]
    run: Run,
}

/// Runs the study.
pub(crate) fn run(quick: bool) -> Result<()> {
    let registered = registered()?;
    let mut report = Report::new("la-imr");
    report.register([
        "p99_vs_latency_autoscaler".into(),
        "cost_vs_latency_autoscaler".into(),
    ]);
    refit(&mut report)?;

    report.kind(Kind::Simulated);
    let contenders = tuned(&registered)?;
    report.keep_raw("contenders", &contenders);
    let mut rows = Vec::new();
    for load in &registered.evaluation.loads {
        rows.extend(at_load(
            &registered,
            &contenders,
            *load,
            "",
            Monitoring::default(),
            quick,
        )?);
    }
    let judged: Vec<&Row> = rows
        .iter()
        .filter(|row| row.load == registered.evaluation.judged_load)
        .collect();
    report.ratio(
        "p99_vs_latency_autoscaler",
        pairs(&judged, |run| run.p99),
        Target::AtMost(0.79),
    );
    report.ratio(
        "cost_vs_latency_autoscaler",
        pairs(&judged, |run| run.cost),
        Target::AtMost(1.05),
    );
    context(&mut report, &registered, &contenders, &rows);
    for (name, monitoring) in &registered.perturbations {
        let load = registered.evaluation.judged_load;
        let perturbed = at_load(&registered, &contenders[..2], load, name, *monitoring, quick)?;
        let of: Vec<&Row> = perturbed.iter().collect();
        report.ratio(
            &format!("p99_vs_latency_autoscaler.{name}"),
            pairs(&of, |run| run.p99),
            Target::Shown,
        );
        rows.extend(perturbed);
    }
    report.keep_raw("runs", &rows);
    report.write_and_print()
}

fn at_load(
    registered: &Registered,
    contenders: &[Contender],
    load: f64,
    name: &str,
    monitoring: Monitoring,
    quick: bool,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for seed in registered.seeds(quick) {
        let (warm_up, seconds) = (registered.evaluation.warm_up, registered.evaluation.seconds);
        let trace = Trace {
            load,
            warm_up,
            seconds,
            seed,
        };
        for contender in contenders {
            let mut router = contender.router(registered)?;
            rows.push(Row {
                policy: contender.name(),
                load,
                monitoring: name.into(),
                seed,
                run: simulate(&registered.system, trace, monitoring, router.as_mut())?,
            });
        }
    }
    Ok(rows)
}

/// Ours and the latency-triggered autoscaler's, seed by seed.
fn pairs(rows: &[&Row], value: impl Fn(&Run) -> f64) -> Vec<Pair> {
    let of = |policy| rows.iter().filter(move |row| row.policy == policy);
    let pair = |(ours, theirs): (&&Row, &&Row)| Pair {
        ours: value(&ours.run),
        theirs: value(&theirs.run),
    };
    of("la_imr").zip(of("latency_triggered")).map(pair).collect()
}

fn context(report: &mut Report, registered: &Registered, contenders: &[Contender], rows: &[Row]) {
    for contender in contenders {
        let policy = contender.name();
        let mut show = |key: String, load: f64, unit, value: fn(&Run) -> f64| {
            let of = rows.iter().filter(|row| row.policy == policy && row.load == load);
            let values: Vec<f64> = of.map(|row| value(&row.run)).collect();
            report.estimate(
                &key,
                bootstrap(&values, |values| median(values.to_vec())),
                unit,
                Target::Shown,
            );
        };
        for load in &registered.evaluation.loads {
            show(format!("p99.{policy}.load{load}"), *load, "s", |run| run.p99);
            show(format!("p95.{policy}.load{load}"), *load, "s", |run| run.p95);
        }
        let load = registered.evaluation.judged_load;
        show(format!("cost.{policy}"), load, "1/s", |run| run.cost);
        show(format!("above.{policy}"), load, "share", |run| run.above);
        show(format!("replicas.{policy}"), load, "", |run| run.replicas);
    }
}

/// LA-IMR's calibration of YOLOv5m on 3 CPUs (arXiv 2505.07417): requests a second, replicas, mean seconds. The five points with
/// more load than the replicas can do are left out.
const STABLE: [(f64, u32, f64); 7] = [
    (1.0, 1, 0.73),
    (1.0, 2, 0.73),
    (2.0, 2, 1.26),
    (1.0, 4, 0.73),
    (2.0, 4, 0.90),
    (3.0, 4, 1.12),
    (4.0, 4, 1.77),
];

/// Each source of the calibration sends one request a second and waits: one alone meets no other.
const ALONE: f64 = 1.0;

fn refit(report: &mut Report) -> Result<()> {
    let points = STABLE.map(|(rate, replicas, latency)| Calibration {
        rate,
        replicas,
        latency,
    });
    for (name, discipline) in [("shared", Discipline::Shared), ("split", Discipline::Split)] {
        let law = LoadLaw::fit(&points, discipline, ALONE)?;
        report.keep_raw(&format!("law.{name}"), &law);
        let of = |point: &Calibration| law.latency(point.rate, point.replicas) / point.latency - 1.0;
        let errors: Vec<f64> = points.iter().map(of).collect();
        let left_out = leave_one_out(&points, discipline, ALONE)?;
        for (key, errors) in [("law_error", errors), ("law_error_left_out", left_out)] {
            let mean =
                |errors: &[f64]| errors.iter().map(|error| error.abs()).sum::<f64>() / errors.len() as f64;
            report.estimate(
                &format!("{key}.{name}"),
                bootstrap(&errors, mean),
                "ratio",
                Target::Shown,
            );
        }
    }
    Ok(())
}
