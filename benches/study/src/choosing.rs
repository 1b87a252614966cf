//! Who chooses among models: the contenders of the replayed study and of the live one, by the names in the keys of their rows.

use anyhow::{Result, bail};
use karman_sched::select::{
    Aim, Compass, Greedy, Oracle, Pixie, PixiePrototype, PixieSettings, Selector, Task,
};
use karman_types::Slo;

/// Ours first.
pub const POLICIES: [&str; 7] = [
    "pixie",
    "pixie_prototype",
    "compass",
    "greedy_accuracy",
    "greedy_cost",
    "greedy_latency",
    "oracle",
];

/// The policy of this name.
///
/// # Errors
/// For another name, and what the policy says of tasks and objectives that it cannot serve.
pub fn policy(name: &str, tasks: Vec<Task>, slo: &Slo) -> Result<Box<dyn Selector>> {
    let own = || slo.clone();
    Ok(match name {
        "pixie" => Box::new(Pixie::new(tasks, own(), PixieSettings::default())?),
        "pixie_prototype" => Box::new(PixiePrototype::new(tasks, own())?),
        "compass" => Box::new(Compass::new(tasks, slo)?),
        "greedy_accuracy" => Box::new(Greedy::new(tasks, own(), Aim::Accuracy)?),
        "greedy_cost" => Box::new(Greedy::new(tasks, own(), Aim::Cost)?),
        "greedy_latency" => Box::new(Greedy::new(tasks, own(), Aim::Latency)?),
        "oracle" => Box::new(Oracle::new(tasks, slo)?),
        _ => bail!("there is no policy {name}"),
    })
}

/// One candidate for each task, in every way.
pub fn every_choice(tasks: &[Task]) -> Vec<Vec<usize>> {
    tasks.iter().fold(vec![Vec::new()], |choices, task| {
        let longer = |choice: Vec<usize>| {
            (0..task.candidates.len()).map(move |candidate| [choice.clone(), vec![candidate]].concat())
        };
        choices.into_iter().flat_map(longer).collect()
    })
}
