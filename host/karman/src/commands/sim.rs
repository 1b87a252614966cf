use crate::app::App;
use crate::commands::sign::replace;
use crate::error;
use crate::input;
use crate::load::{self, GrantArgs};
use crate::output::table;
use crate::source::Source;
use clap::{Args, Subcommand};
use karman_engine::policy::Policies;
use karman_sched::plugin::{Guests, PolicyPlugin};
use karman_sched::select::{Brought, BuiltIn, FailureCounts, NotBuiltIn, Selector, Task, Unlogged};
use karman_sim::{Instead, Outcome, PolicyFailure, WorkloadOutcome, run_scenario_with};
use karman_types::{Slo, TaskError, format_duration};
use serde_json::json;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// `karman sim`
#[derive(Args, Debug)]
pub(crate) struct Sim {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a scenario in virtual time, with the policies that ship
    #[command(
        after_help = "Examples:\n  karman sim run scenario.toml\n  karman sim run scenario.toml --seed 7 --out results\n  karman sim run photos.toml --policy plugins/prices --select prices"
    )]
    Run(Run),
}

#[derive(Args, Debug)]
struct Run {
    /// The scenario: nodes, links, contacts, models, workloads; - is standard input
    file: PathBuf,
    /// Another seed than that of the scenario
    #[arg(long)]
    seed: Option<u64>,
    /// A plugin that brings a policy, which the scenario then names by the plugin's name; may be given again
    #[arg(long = "policy", value_name = "PLUGIN")]
    policies: Vec<String>,
    /// Who chooses a model, in the place of `select` of all workloads that have a choice: a built-in policy, or one of --policy
    #[arg(long, value_name = "POLICY")]
    select: Option<String>,
    /// Write tables (CSV, JSON) and plots (SVG) into this folder
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

impl Sim {
    pub(crate) fn run(&self, app: &App) -> Result<(), TaskError> {
        match &self.verb {
            Verb::Run(verb) => verb.run(app),
        }
    }
}

impl Run {
    fn run(&self, app: &App) -> Result<(), TaskError> {
        let text = input::text(&self.file)?;
        let mut plugins = Plugins::load(app, &self.policies)?;
        let progress = app.progress("simulating");
        let instead = Instead {
            seed: self.seed,
            select: self.select.clone(),
        };
        let ran = run_scenario_with(&text, &instead, &mut |named, tasks, slo| {
            plugins.policy(&named, tasks, slo)
        });
        drop(progress);
        let mut outcome = ran.map_err(|failed| {
            TaskError::invalid(failed.to_string()).with_field(self.file.display().to_string())
        })?;
        outcome.scenario = self.file.display().to_string();
        outcome.policy_failures = plugins.failures();
        let files = match &self.out {
            Some(folder) => write(folder, &outcome)?,
            None => Vec::new(),
        };
        app.output
            .result(|| shown(&outcome.workloads), || json!(outcome))?;
        for PolicyFailure { times, why, .. } in &outcome.policy_failures {
            app.output.warning(format!("{times} times: {why}"));
        }
        for brought in plugins.policies.iter().filter(|brought| !brought.asked) {
            app.output.note(format!(
                "note: policy {} was not asked: no workload names it in `select`",
                brought.plugin
            ));
        }
        if let Some(folder) = &self.out {
            app.output
                .note(format!("{}: {}", folder.display(), files.join(", ")));
        }
        Ok(())
    }
}

/// Writes the files of an outcome into a folder, and removes those that another run has left there. Their names.
fn write(folder: &Path, outcome: &Outcome) -> Result<Vec<String>, TaskError> {
    std::fs::create_dir_all(folder).map_err(|failed| error::file(folder, &failed))?;
    let files = outcome.files();
    let is_written = |name: &&str| files.iter().any(|(written, _)| written == name);
    for name in Outcome::FILES.iter().filter(|name| !is_written(name)) {
        let left = folder.join(name);
        match std::fs::remove_file(&left) {
            Err(failed) if failed.kind() != ErrorKind::NotFound => return Err(error::file(&left, &failed)),
            _ => {}
        }
    }
    for (name, content) in &files {
        replace(&folder.join(name), content.as_bytes())?;
    }
    Ok(files.into_iter().map(|(name, _)| name).collect())
}

/// The policies that plugins bring to a scenario.
struct Plugins {
    policies: Vec<PolicyBrought>,
    guests: Arc<dyn Guests>,
}

/// A policy that a plugin brings to a scenario.
struct PolicyBrought {
    plugin: PolicyPlugin,
    /// Whether a workload names it.
    asked: bool,
    failures: FailureCounts,
}

impl Plugins {
    fn load(app: &App, named: &[String]) -> Result<Self, TaskError> {
        let mut policies: Vec<PolicyBrought> = Vec::new();
        let mut plugins = Vec::new();
        for name in named {
            let source = Source::find(app, name)?;
            let runtime = load::runtime(app, &source.name, &GrantArgs::default())?;
            let plugin = load::plugin(app, &runtime, &source, &GrantArgs::default())?;
            let policy = plugin
                .select_policy()
                .map_err(|error| error.with_field("policy"))?;
            let name = &policy.name;
            let taken = match policies.iter().any(|other| other.plugin.name == *name) {
                true => Some("is that of another --policy"),
                false => name
                    .parse::<BuiltIn>()
                    .is_ok()
                    .then_some("is that of a built-in policy"),
            };
            if let Some(taken) = taken {
                return Err(TaskError::invalid(format!("the name `{name}` {taken}"))
                    .with_field("policy")
                    .with_hint("give the plugin another `name` in its manifest"));
            }
            policies.push(PolicyBrought {
                plugin: policy,
                asked: false,
                failures: FailureCounts::default(),
            });
            plugins.push(plugin);
        }
        Ok(Self {
            policies,
            guests: Arc::new(plugins.into_iter().collect::<Policies>()),
        })
    }

    fn policy(
        &mut self,
        named: &NotBuiltIn,
        tasks: Vec<Task>,
        slo: Slo,
    ) -> Result<Box<dyn Selector>, String> {
        let mut policies = self.policies.iter_mut();
        let brought = policies
            .find(|brought| brought.plugin.name == named.name)
            .ok_or_else(|| format!("{named}; pass the plugin that brings it with --policy"))?;
        brought.asked = true;
        let policy = Brought::new(brought.plugin.clone(), self.guests.clone(), tasks, slo);
        let policy = policy.map_err(|error| error.to_string())?;
        Ok(Box::new(Unlogged::new(policy, brought.failures.clone())))
    }

    fn failures(&self) -> Vec<PolicyFailure> {
        let of = |brought: &PolicyBrought| {
            let failures = brought.failures.borrow();
            let each = failures.iter().map(|((_, why), times)| PolicyFailure {
                policy: brought.plugin.to_string(),
                times: *times,
                why: why.clone(),
            });
            each.collect::<Vec<_>>()
        };
        self.policies.iter().flat_map(of).collect()
    }
}

/// A line for each workload. What is the same in all of them, because there was nothing of it, has no column.
fn shown(workloads: &[WorkloadOutcome]) -> String {
    let is_unfinished = workloads.iter().any(|of| of.unfinished > 0);
    let has_choice = workloads.iter().any(|of| !of.served_by.is_empty());
    let mut head = vec!["WORKLOAD", "REQUESTS", "ON TIME", "LATE", "REFUSED", "LOST"];
    head.extend(is_unfinished.then_some("UNFINISHED"));
    head.extend(["ACCURACY", "COST", "P50", "P95", "P99"]);
    head.extend(has_choice.then_some("SERVED BY"));
    let row = |of: &WorkloadOutcome| {
        let share = |count: u64| match of.requests {
            0 => "-".to_owned(),
            requests => format!("{:.1} %", 100.0 * count as f64 / requests as f64),
        };
        let time = |seconds: Option<f64>| match seconds {
            Some(seconds) => format_duration(Duration::from_secs_f64(seconds)),
            None => "-".to_owned(),
        };
        let accuracy = of.mean_accuracy.map(|share| format!("{share:.3}"));
        let served = of
            .served_by
            .iter()
            .map(|(model, count)| format!("{model} {count}"));
        let mut row = vec![of.name.clone(), of.requests.to_string()];
        row.extend([of.on_time, of.late, of.refused, of.lost].map(share));
        row.extend(is_unfinished.then(|| share(of.unfinished)));
        row.push(accuracy.unwrap_or_else(|| "-".to_owned()));
        row.push(((of.cost * 1e4).round() / 1e4).to_string());
        row.extend([of.p50_response, of.p95_response, of.p99_response].map(time));
        row.extend(has_choice.then(|| served.collect::<Vec<_>>().join(", ")));
        row
    };
    let head = head.into_iter().map(str::to_owned).collect();
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(workloads.iter().map(row)).collect();
    table(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_add_up_and_columns_of_nothing_are_left_out() {
        let frames = WorkloadOutcome {
            name: "frames".into(),
            requests: 8,
            on_time: 6,
            late: 1,
            unfinished: 1,
            mean_accuracy: Some(0.9),
            cost: 0.07,
            p50_response: Some(0.0123),
            p95_response: Some(81.0),
            served_by: vec![("large".into(), 7), ("small".into(), 0)],
            ..WorkloadOutcome::default()
        };
        let shows = shown(std::slice::from_ref(&frames));
        let says = "frames     8          75.0 %    12.5 %   0.0 %     0.0 %   12.5 %       0.900      0.07   12.3 ms   1 min 21 s   -     large 7, small 0";
        assert_eq!(shows.lines().nth(1), Some(says), "{shows}");
        let alone = WorkloadOutcome {
            requests: 7,
            unfinished: 0,
            served_by: Vec::new(),
            ..frames
        };
        let shows = shown(&[alone]);
        assert!(
            !shows.contains("UNFINISHED") && !shows.contains("SERVED BY"),
            "{shows}"
        );
    }
}
