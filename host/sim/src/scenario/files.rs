use super::{Answer, GroupOutcome, Outcome, Verdict, WorkloadOutcome};
use crate::plot::{Curve, Plot};
use std::fmt::{self, Write as _};

impl Outcome {
    /// Every name that a file of [`Outcome::files`] may have.
    pub const FILES: [&str; 6] = [
        "outcome.json",
        "workloads.csv",
        "series.csv",
        "responses.svg",
        "waiting.svg",
        "answers.csv",
    ];

    /// Its files, each with its name: `outcome.json`, tables as CSV, plots as SVG.
    pub fn files(&self) -> Vec<(String, String)> {
        let json = serde_json::to_string_pretty(self).expect("numbers and names are JSON");
        let mut files = vec![
            ("outcome.json".into(), json),
            ("workloads.csv".into(), self.workloads_csv()),
            ("series.csv".into(), self.series_csv()),
            ("responses.svg".into(), self.responses_plot().svg()),
            ("waiting.svg".into(), self.waiting_plot().svg()),
        ];
        if !self.answers.is_empty() {
            files.push(("answers.csv".into(), self.answers_csv()));
        }
        files
    }

    fn workloads_csv(&self) -> String {
        let mut csv = String::from(
            "workload,requests,on_time,late,refused,lost,unfinished,mean_s,p50_s,p95_s,p99_s,mean_accuracy,on_time_accuracy,cost,served_by\n",
        );
        for of in &self.workloads {
            let seconds = [
                of.mean_response,
                of.p50_response,
                of.p95_response,
                of.p99_response,
            ];
            let [mean, p50, p95, p99] = seconds.map(Cell);
            let accuracy = Cell(of.mean_accuracy);
            let on_time = Cell((of.requests > 0).then(|| of.on_time_accuracy_sum() / of.requests as f64));
            let served = of
                .served_by
                .iter()
                .map(|(model, count)| format!("{model}:{count}"));
            let served = served.collect::<Vec<_>>().join(" ");
            let WorkloadOutcome {
                name,
                requests,
                on_time: in_time,
                late,
                refused,
                lost,
                unfinished,
                cost,
                ..
            } = of;
            line(
                &mut csv,
                format_args!(
                    "{name},{requests},{in_time},{late},{refused},{lost},{unfinished},{mean},{p50},{p95},{p99},{accuracy},{on_time},{cost},{served}"
                ),
            );
        }
        csv
    }

    fn series_csv(&self) -> String {
        let mut csv = String::from("time_s,nodes,waiting,busy\n");
        for (index, time) in self.sampled.iter().enumerate() {
            for group in &self.nodes {
                let (waiting, busy) = (group.waiting[index], group.busy[index]);
                line(&mut csv, format_args!("{time},{},{waiting},{busy}", group.name));
            }
        }
        csv
    }

    fn answers_csv(&self) -> String {
        let mut csv = String::from("workload,home,node,came_s,ended_s,verdict,exit\n");
        for answer in &self.answers {
            let name = &self.workloads[answer.workload as usize].name;
            let (came, ended) = (answer.came.as_secs_f64(), answer.ended.as_secs_f64());
            let (verdict, exit) = match answer.verdict {
                Verdict::Answered { exit, .. } => ("answered", (exit + 1).to_string()),
                Verdict::Refused => ("refused", String::new()),
                Verdict::Lost => ("lost", String::new()),
            };
            let Answer { home, node, .. } = answer;
            line(
                &mut csv,
                format_args!("{name},{home},{node},{came},{ended},{verdict},{exit}"),
            );
        }
        csv
    }

    /// The share of answers that took at most so long.
    fn responses_plot(&self) -> Plot {
        const POINTS: usize = 200;
        let curves = self.workloads.iter().map(|of| {
            let mut values = of.responses.values().to_vec();
            values.sort_by(f64::total_cmp);
            let last = values.len().saturating_sub(1);
            let point = |step| Some((*values.get(last * step / POINTS)?, step as f64 / POINTS as f64));
            Curve::new(&of.name, (0..=POINTS).filter_map(point).collect())
        });
        Plot::new(
            "How long answers took",
            "seconds",
            "share of answers",
            curves.collect(),
        )
    }

    fn waiting_plot(&self) -> Plot {
        let curves = self.nodes.iter().map(|group| {
            let points = self.sampled.iter().copied().zip(group.waiting.iter().copied());
            Curve::new(&group.name, points.collect())
        });
        Plot::new(
            "Requests that waited at a node",
            "seconds",
            "requests",
            curves.collect(),
        )
    }
}

impl fmt::Display for Outcome {
    /// As a table for people.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            "workload", "requests", "on time", "accuracy", "p50 ms", "p95 ms", "p99 ms"
        )?;
        for of in &self.workloads {
            let share = |part: f64| format!("{:.2} %", 100.0 * part / of.requests.max(1) as f64);
            let ms = |time: Option<f64>| time.map_or_else(|| "-".into(), |time| format!("{:.1}", time * 1e3));
            writeln!(
                f,
                "{:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
                of.name,
                of.requests,
                share(of.on_time as f64),
                share(of.on_time_accuracy_sum()),
                ms(of.p50_response),
                ms(of.p95_response),
                ms(of.p99_response),
            )?;
        }
        writeln!(
            f,
            "\n{:<20} {:>9} {:>12} {:>9}",
            "nodes", "busy", "joules", "failures"
        )?;
        for group in &self.nodes {
            let GroupOutcome {
                name,
                utilisation,
                joules,
                failures,
                ..
            } = group;
            writeln!(
                f,
                "{name:<20} {:>7.1} % {joules:>12.1} {failures:>9}",
                100.0 * utilisation
            )?;
        }
        write!(f, "\nseed {}, {} events", self.seed, self.events)
    }
}

/// A number that may not be there.
struct Cell(Option<f64>);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |value| write!(f, "{value}"))
    }
}

fn line(csv: &mut String, values: fmt::Arguments<'_>) {
    // Writing into a string cannot fail.
    let _ = writeln!(csv, "{values}");
}
