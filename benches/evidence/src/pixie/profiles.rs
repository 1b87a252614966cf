//! The recorded profiles, and the workloads made of them.

use anyhow::{Context, Result};
use karman_sched::select::Task;
use karman_types::{Binding, Implementation, Profile};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// One record of `arc_full_profiles.json`: a model on the 570 easy and 299 hard questions of ARC.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Recorded {
    pub(super) accuracy_easy: f64,
    pub(super) accuracy_hard: f64,
    pub(super) avg_latency_ms: f64,
    p50_latency_ms: f64,
    p95_latency_ms: f64,
    p99_latency_ms: f64,
    cost_per_1k: f64,
    num_samples: u64,
}

#[derive(Deserialize)]
struct File {
    profiles: BTreeMap<String, Recorded>,
}

/// Easy questions, and all.
pub(super) const EASY: usize = 570;
pub(super) const QUESTIONS: usize = 869;

/// What the classifier takes: nothing is published, so it is assumed.
pub(super) const CLASSIFIER_MS: f64 = 20.0;

/// The models of the published router, `config/implementations.yaml`: 6 names, 7 profiles.
const SIMPLE: [&str; 4] = [
    "openai/gpt-3.5-turbo@cloud",
    "ollama/llama3.2:3b@local",
    "ollama/llama3.2:3b@gpu_server",
    "ollama/gemma2:2b@local",
];
const COMPLEX: [&str; 4] = [
    "anthropic/claude-3-haiku-20240307@cloud",
    "openai/gpt-4o-mini@cloud",
    "anthropic/claude-3-5-haiku-20241022@cloud",
    "openai/gpt-3.5-turbo@cloud",
];

/// A workflow over the questions.
#[derive(Clone, Debug)]
pub(super) struct Workload {
    /// Its tasks; with a classifier, first the one for questions that it calls easy.
    pub(super) tasks: Vec<Task>,
    /// The records of the candidates, by task.
    pub(super) recorded: Vec<Vec<Recorded>>,
    /// How often the classifier is right, if there is one.
    pub(super) classifier: Option<f64>,
}

/// All profiles by name.
pub(super) fn load(data: &Path) -> Result<BTreeMap<String, Recorded>> {
    let path = data.join("plaiground/arc_full_profiles.json");
    let text = std::fs::read(&path).with_context(|| {
        format!(
            "the recorded profiles are not at {}: name their folder with --data",
            path.display()
        )
    })?;
    let file: File =
        serde_json::from_slice(&text).with_context(|| format!("{} does not read", path.display()))?;
    Ok(file.profiles)
}

impl Recorded {
    pub(super) fn implementation(&self, name: &str, easy_share: f64) -> Implementation {
        let millis = |ms: f64| Duration::from_secs_f64(ms / 1e3);
        Implementation {
            name: name.into(),
            binding: Binding::Model(name.into()),
            profile: Profile {
                accuracy: Some(easy_share * self.accuracy_easy + (1.0 - easy_share) * self.accuracy_hard),
                mean: millis(self.avg_latency_ms),
                p50: millis(self.p50_latency_ms),
                p95: millis(self.p95_latency_ms),
                p99: millis(self.p99_latency_ms),
                cost: self.cost_per_1k / 1e3,
                energy: None,
                samples: self.num_samples,
            },
        }
    }
}

impl Workload {
    /// One task that any of the eleven models may serve.
    pub(super) fn pool(profiles: &BTreeMap<String, Recorded>) -> Self {
        let easy = EASY as f64 / QUESTIONS as f64;
        let names: Vec<&str> = profiles.keys().map(String::as_str).collect();
        let (task, recorded) = solver("solve", profiles, &names, 1.0, easy);
        Self {
            tasks: vec![task],
            recorded: vec![recorded],
            classifier: None,
        }
    }

    /// The published router with a classifier that is right this often. The profile of a solver is that of the questions which the
    /// classifier sends it.
    pub(super) fn router(profiles: &BTreeMap<String, Recorded>, right: f64) -> Self {
        let easy = EASY as f64 / QUESTIONS as f64;
        let called_easy = easy * right + (1.0 - easy) * (1.0 - right);
        let easy_of_easy = easy * right / called_easy;
        let easy_of_hard = easy * (1.0 - right) / (1.0 - called_easy);
        let (simple, of_simple) = solver("simple_solver", profiles, &SIMPLE, called_easy, easy_of_easy);
        let (complex, of_complex) = solver(
            "complex_solver",
            profiles,
            &COMPLEX,
            1.0 - called_easy,
            easy_of_hard,
        );
        Self {
            tasks: vec![simple, complex],
            recorded: vec![of_simple, of_complex],
            classifier: Some(right),
        }
    }

    /// Its tasks when an answer may take this long: what the classifier takes is gone before a solver is called.
    pub(super) fn within(&self, limit_ms: f64) -> Vec<Task> {
        let overhead = self.classifier.map_or(0.0, |_| CLASSIFIER_MS);
        let mut tasks = self.tasks.clone();
        for task in &mut tasks {
            task.within = (limit_ms - overhead) / limit_ms;
        }
        tasks
    }
}

fn solver(
    name: &str,
    profiles: &BTreeMap<String, Recorded>,
    names: &[&str],
    visits: f64,
    easy_share: f64,
) -> (Task, Vec<Recorded>) {
    let recorded: Vec<Recorded> = names.iter().map(|name| profiles[*name].clone()).collect();
    let candidates = names.iter().zip(&recorded);
    let task = Task {
        name: name.into(),
        visits,
        within: 1.0,
        candidates: candidates
            .map(|(name, recorded)| recorded.implementation(name, easy_share))
            .collect(),
    };
    (task, recorded)
}
