use crate::app::App;
use crate::commands::sign::replace;
use crate::error;
use crate::input;
use crate::load::{self, GrantArgs};
use crate::output::table;
use crate::source::Source;
use clap::{Args, Subcommand};
use karman_engine::policy::Policies;
use karman_sched::select::{
    Brought, BuiltIn, FailureCounts, Guests, NotBuiltIn, PolicyPlugin, Selector, Task, Unlogged,
};
use karman_sim::{WorkloadOutcome, run_scenario_with};
use karman_types::{Slo, TaskError};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;

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
        after_help = "Examples:\n  karman sim run scenario.toml\n  karman sim run scenario.toml --seed 7 --out results\n  karman sim run photos.toml --policy plugins/prices"
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
        let ran = run_scenario_with(&text, self.seed, &mut |named, tasks, slo| {
            plugins.policy(&named, tasks, slo)
        });
        drop(progress);
        let (outcome, files) = ran.map_err(|failed| {
            TaskError::invalid(failed.to_string()).with_field(self.file.display().to_string())
        })?;
        if let Some(folder) = &self.out {
            std::fs::create_dir_all(folder).map_err(|failed| error::file(folder, &failed))?;
            for (name, content) in &files {
                replace(&folder.join(name), content.as_bytes())?;
            }
        }
        let rows: Vec<Vec<String>> = std::iter::once(
            [
                "WORKLOAD", "REQUESTS", "ON TIME", "LATE", "REFUSED", "LOST", "P50", "P95", "P99",
            ]
            .map(str::to_owned)
            .to_vec(),
        )
        .chain(outcome.workloads.iter().map(row))
        .collect();
        app.output.result(|| table(&rows), || json!(outcome))?;
        for ((_, failed), times) in plugins.failures.borrow().iter() {
            app.output.note(format!("note: {times} times: {failed}"));
        }
        for (policy, asked) in &plugins.policies {
            if !asked {
                app.output.note(format!(
                    "note: policy {policy} was not asked: no workload names it in `select`"
                ));
            }
        }
        if let Some(folder) = &self.out {
            let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
            app.output
                .note(format!("{}: {}", folder.display(), names.join(", ")));
        }
        Ok(())
    }
}

/// The policies that plugins bring to a scenario.
struct Plugins {
    /// Each with whether a workload names it.
    policies: Vec<(PolicyPlugin, bool)>,
    /// What failed in all of them.
    failures: FailureCounts,
    guests: Arc<dyn Guests>,
}

impl Plugins {
    fn load(app: &App, named: &[String]) -> Result<Self, TaskError> {
        let mut policies: Vec<(PolicyPlugin, bool)> = Vec::new();
        let mut plugins = Vec::new();
        for name in named {
            let source = Source::find(app, name)?;
            let runtime = load::runtime(app, &source.name, &GrantArgs::default())?;
            let plugin = load::plugin(app, &runtime, &source, &GrantArgs::default())?;
            let policy = plugin
                .select_policy()
                .map_err(|error| error.with_field("policy"))?;
            let name = &policy.name;
            let taken = match policies.iter().any(|(other, _)| other.name == *name) {
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
            policies.push((policy, false));
            plugins.push(plugin);
        }
        Ok(Self {
            policies,
            failures: FailureCounts::default(),
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
        let (plugin, asked) = policies
            .find(|(plugin, _)| plugin.name == named.name)
            .ok_or_else(|| format!("{named}; pass the plugin that brings it with --policy"))?;
        *asked = true;
        let policy = Brought::new(plugin.clone(), self.guests.clone(), tasks, slo);
        let policy = policy.map_err(|error| error.to_string())?;
        Ok(Box::new(Unlogged::new(policy, self.failures.clone())))
    }
}

fn row(of: &WorkloadOutcome) -> Vec<String> {
    let share = |count: u64| match of.requests {
        0 => "-".to_owned(),
        requests => format!("{:.1} %", 100.0 * count as f64 / requests as f64),
    };
    let time = |seconds: Option<f64>| {
        seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{:.1} ms", seconds * 1e3))
    };
    vec![
        of.name.clone(),
        of.requests.to_string(),
        share(of.on_time),
        share(of.late),
        share(of.refused),
        share(of.lost),
        time(of.p50_response),
        time(of.p95_response),
        time(of.p99_response),
    ]
}
