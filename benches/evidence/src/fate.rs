//! Study `fate`: jobs that are real pipelines, on few nodes that cannot hold everything.
//!
//! - `response_vs_rr`: mean (finish - arrival) of all jobs with FATE over that with cyclic round robin on nodes that can run the
//!   task; geometric mean over the graphs. `response_vs_rr.GRAPH` are its parts.
//! - `response_vs_heft`: the same over the best, graph by graph on the very test seeds, of on-line residency-aware HEFT,
//!   residency-first and least-loaded, each in the order of tasks and the moment of binding that was best for it on other seeds.
//! - `response_vs_heft.no_loads`: over HEFT when loading costs nothing.
//! - `response_without_future`, `response_without_residency`: FATE with all of the future, or what nodes hold, left out of its
//!   score, over FATE: above 1 where that part helps (context).
//! - `critical_path_bound.GRAPH`: the longest way through a job on the fastest node over the mean response of round robin: what
//!   `response_vs_rr` cannot fall below.
//! - `p95_vs_heft`: the same as `response_vs_heft`, of the 95th percentiles (context).
//!
//! The graphs are those of `cawosched/graphs` (KIT-EAE/CaWoSched, MIT). Costs of loading are measured ones, of our own guests, and
//! stand with everything else in `fate.toml`.

mod scenario;

use crate::placement::world::{Result as Ran, Scope, Trace, run};
use crate::placement::{geometric_mean, in_parallel};
use anyhow::Result;
use karman_sched::place::{
    Binding, Fate, FateSettings, Heft, LeastLoaded, Order, Place, ResidencyFirst, RoundRobin,
};
use karman_study::interval::{Estimate, bootstrap};
use karman_study::pairs::percentile;
use karman_study::report::{Kind, Report, Target};
use scenario::Scenario;
use std::path::Path;

const ORDERS: [Order; 3] = [Order::Arrival, Order::Rank, Order::ShortestJob];
/// How long before a node is free FATE sends a task there, in times that its input takes to come.
const LEADS: [f64; 2] = [1.0, 2.0];
const BINDINGS: [Binding; 2] = [Binding::Ready, Binding::Start];
const COMPARATORS: [&str; 3] = ["heft", "residency-first", "least-loaded"];

/// How a policy is set.
#[derive(Clone, Copy, Debug)]
enum Contender {
    RoundRobin,
    List(&'static str, Order, Binding),
    Fate(FateSettings),
}

impl Contender {
    fn policy(self) -> Box<dyn Place> {
        match self {
            Self::RoundRobin => Box::new(RoundRobin::default()),
            Self::List("heft", order, binding) => Box::new(Heft::new(order, binding)),
            Self::List("residency-first", order, binding) => Box::new(ResidencyFirst::new(order, binding)),
            Self::List(_, order, binding) => Box::new(LeastLoaded::new(order, binding)),
            Self::Fate(settings) => Box::new(Fate::new(settings)),
        }
    }

    /// Mean and 95th percentile of the responses.
    fn responses(self, trace: &Trace) -> [f64; 2] {
        let ran: Ran = run(trace, self.policy(), Scope::All);
        let response = |outcome: &crate::placement::world::Outcome| {
            outcome.finished.unwrap_or(trace.end) - outcome.arrived
        };
        let responses: Vec<f64> = ran.outcomes.iter().map(response).collect();
        [
            responses.iter().sum::<f64>() / responses.len() as f64,
            percentile(&responses, 0.95),
        ]
    }
}

/// What was measured under one seed: for each graph and contender mean and 95th percentile.
type Row = Vec<Vec<[f64; 2]>>;

pub(crate) fn study(data: &Path, quick: bool) -> Result<()> {
    let scenario = Scenario::read(data)?;
    let seeds = if quick { 4 } else { scenario.seeds() };
    let mut report = Report::new("fate");
    report.kind(Kind::Simulated);
    report.register(["response_vs_rr", "response_vs_heft", "response_vs_heft.no_loads"].map(String::from));

    let tuned = tune(&scenario, true);
    let (no_future, no_residency) = without(tuned.fate);
    let mut contenders = vec![Contender::Fate(tuned.fate), Contender::RoundRobin];
    contenders.extend(tuned.lists);
    contenders.extend([Contender::Fate(no_future), Contender::Fate(no_residency)]);
    eprintln!("tuned: {contenders:?}");
    let rows = measure(&scenario, &contenders, seeds, true);

    let graphs = scenario.graphs();
    // The best of the comparators on the test seeds themselves.
    let best: Vec<usize> = (0..graphs.len()).map(|graph| best_of(&rows, graph)).collect();
    let ratio = |ours: usize, theirs: &dyn Fn(usize) -> usize, which: usize| {
        bootstrap(&rows, |rows| {
            geometric_mean((0..graphs.len()).map(|graph| sums_ratio(rows, graph, ours, theirs(graph), which)))
        })
    };
    report.estimate("response_vs_rr", ratio(0, &|_| 1, 0), "ratio", Target::Shown);
    report.estimate(
        "response_vs_heft",
        ratio(0, &|graph| best[graph], 0),
        "ratio",
        Target::AtMost(1.0),
    );
    report.estimate(
        "p95_vs_heft",
        ratio(0, &|graph| best[graph], 1),
        "ratio",
        Target::Shown,
    );
    report.estimate(
        "response_without_future",
        ratio(5, &|_| 0, 0),
        "ratio",
        Target::Shown,
    );
    report.estimate(
        "response_without_residency",
        ratio(6, &|_| 0, 0),
        "ratio",
        Target::Shown,
    );
    for (place, graph) in graphs.iter().enumerate() {
        let of = |theirs| bootstrap(&rows, |rows| sums_ratio(rows, place, 0, theirs, 0));
        report.estimate(&format!("response_vs_rr.{graph}"), of(1), "ratio", Target::Shown);
        let key = format!("response_vs_heft.{graph}.{}", COMPARATORS[best[place] - 2]);
        report.estimate(&key, of(best[place]), "ratio", Target::Shown);
        let robin = rows.iter().map(|row| row[place][1][0]).sum::<f64>() / rows.len() as f64;
        let bound = Estimate::exact(scenario.critical_path(place) / robin);
        report.estimate(
            &format!("critical_path_bound.{graph}"),
            bound,
            "ratio",
            Target::Shown,
        );
    }
    report.keep_raw("responses", &rows);

    // Without loads the same two policies, tuned for that.
    let tuned = tune(&scenario, false);
    let rows = measure(
        &scenario,
        &[Contender::Fate(tuned.fate), tuned.lists[0]],
        seeds,
        false,
    );
    let tie = bootstrap(&rows, |rows| {
        geometric_mean((0..graphs.len()).map(|graph| sums_ratio(rows, graph, 0, 1, 0)))
    });
    report.estimate("response_vs_heft.no_loads", tie, "ratio", Target::AtMost(1.02));
    report.keep_raw("responses.no_loads", &rows);
    report.write_and_print()
}

/// The comparator with the least mean response for a graph.
fn best_of(rows: &[Row], graph: usize) -> usize {
    let sum = |contender: usize| rows.iter().map(|row| row[graph][contender][0]).sum::<f64>();
    (2..2 + COMPARATORS.len())
        .min_by(|&a, &b| sum(a).total_cmp(&sum(b)))
        .unwrap_or(2)
}

/// The sum over seeds of one contender over that of another.
fn sums_ratio(rows: &[Row], graph: usize, ours: usize, theirs: usize, which: usize) -> f64 {
    let sum = |contender: usize| rows.iter().map(|row| row[graph][contender][which]).sum::<f64>();
    sum(ours) / sum(theirs)
}

fn measure(scenario: &Scenario, contenders: &[Contender], seeds: u64, loads: bool) -> Vec<Row> {
    let graphs = scenario.graphs().len();
    in_parallel((0..seeds).collect(), |&seed| {
        let row = |graph| {
            let trace = scenario.trace(graph, seed, loads);
            contenders
                .iter()
                .map(|contender| contender.responses(&trace))
                .collect()
        };
        (0..graphs).map(row).collect()
    })
}

struct Tuned {
    fate: FateSettings,
    lists: Vec<Contender>,
}

/// The best of six settings for each policy, on seeds of their own.
fn tune(scenario: &Scenario, loads: bool) -> Tuned {
    let lists = COMPARATORS.map(|name| {
        ORDERS.into_iter().flat_map(move |order| {
            BINDINGS
                .into_iter()
                .map(move |binding| Contender::List(name, order, binding))
        })
    });
    let fates = ORDERS.into_iter().flat_map(|order| {
        LEADS.map(|lead| FateSettings {
            order,
            lead,
            ..FateSettings::default()
        })
    });
    let mut contenders: Vec<Contender> = lists.into_iter().flatten().collect();
    contenders.extend(fates.map(Contender::Fate));
    let graphs = scenario.graphs().len();
    let cases: Vec<(usize, u64)> = (0..graphs)
        .flat_map(|graph| (1_000..1_000 + scenario.tuning_seeds()).map(move |seed| (graph, seed)))
        .collect();
    let responses = in_parallel(cases, |&(graph, seed)| {
        let trace = scenario.trace(graph, seed, loads);
        contenders
            .iter()
            .map(|contender| contender.responses(&trace)[0])
            .collect::<Vec<f64>>()
    });
    // Graphs differ in length, so each counts by its logarithm.
    let score = |contender: usize| responses.iter().map(|row| row[contender].ln()).sum::<f64>();
    let best = |from: usize| {
        let of_six = (from..from + 6).min_by(|&a, &b| score(a).total_cmp(&score(b)));
        contenders[of_six.unwrap_or(from)]
    };
    let Contender::Fate(fate) = best(18) else {
        unreachable!("the last six are FATE's")
    };
    Tuned {
        fate,
        lists: vec![best(0), best(6), best(12)],
    }
}

/// The ablations: nothing of the future, and all of it but what nodes hold.
fn without(settings: FateSettings) -> (FateSettings, FateSettings) {
    let no_future = FateSettings {
        weight: 0.0,
        ..settings
    };
    let no_residency = FateSettings {
        residency: 0.0,
        ..settings
    };
    (no_future, no_residency)
}
