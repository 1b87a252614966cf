//! Who can do what a task names as its capability: found among what nodes offer, measured with labelled examples, remembered.

use super::energy::{Drawn, EnergyOrigin, Meter};
use super::{json, labels};
use crate::drive::attempt::mesh_of;
use crate::drive::model_tasks;
use crate::drive::tasks::{Inner, Tasks};
use karman_mesh::{Ask, CallHead};
use karman_store::Store;
use karman_types::{
    Binding, CallContext, DataContract, FlowTask, Implementation, NodeId, OfferedTask, Profile, Side,
    TaskError, TaskId, TaskRequest, TaskResponse, Workflow,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The record of what was measured, by capability.
const RECORD: &str = "implementations";
/// The most examples of one measurement.
const MOST_EXAMPLES: usize = 100_000;
/// The longest that one of them may take.
const LONGEST: Duration = Duration::from_secs(60);

pub(super) type Known = BTreeMap<String, Vec<Implementation>>;

/// An order to measure who does a task of a workflow.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MeasureOrder {
    /// The workflow, as TOML.
    pub workflow: String,
    /// Its task.
    pub task: String,
    /// What to measure with.
    pub examples: Vec<Example>,
    /// Money for a call, by the name of the implementation. Default: what it was before; 0 where nothing was said yet.
    #[serde(default)]
    pub cost: BTreeMap<String, f64>,
    /// Joules of a call, by the name of the implementation. Default: what is measured on this node; else what it was before.
    #[serde(default)]
    pub energy: BTreeMap<String, f64>,
    /// The only implementation to measure, by its name; what is known of the others stays. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only: Option<String>,
}

/// A labelled example.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Example {
    /// What goes in.
    pub input: Value,
    /// What has to come out, field by field; a whole number for a field with a list of numbers is the place of the largest, and
    /// `{"mask": …}` counts by how far the two overlap.
    #[serde(default)]
    pub output: BTreeMap<String, Value>,
}

/// What was measured of one implementation.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Measured {
    /// By which it is spoken of.
    pub name: String,
    /// Nothing where it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub implementation: Option<Implementation>,
    /// Where its joules come from; nothing where it could not be measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub energy: Option<EnergyOrigin>,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
}

impl Tasks {
    /// Finds who does a task of a workflow, runs the examples on each, and remembers what that took.
    ///
    /// # Errors
    /// `invalid` for an order that cannot be carried out, `unavailable` when nobody does the task.
    pub(crate) async fn measure(&self, order: MeasureOrder) -> Result<Vec<Measured>, TaskError> {
        let workflow =
            Workflow::from_toml(&order.workflow).map_err(|error| wrong("workflow", error.to_string()))?;
        let (task, capability) = order.task_of(&workflow)?;
        if order.examples.is_empty() || order.examples.len() > MOST_EXAMPLES {
            let count = order.examples.len();
            return Err(wrong(
                "examples",
                format!("{count} examples are not 1 to {MOST_EXAMPLES}"),
            ));
        }
        let inner = self.inner();
        let found = candidates(inner, capability, order.only.as_deref()).await?;
        let before = known(inner, capability).await?;
        let mut all = Vec::new();
        for (name, binding) in found {
            let cost = price(&order.cost, &before, &name);
            let profile = profile(inner, &binding, &task.with, &task.outputs, &order.examples, cost).await;
            let checked = profile.and_then(|(mut profile, drawn)| {
                let drawn = drawn.or_known(&name, &order.energy, &before);
                profile.energy = drawn.joules;
                let implementation = Implementation {
                    name: name.clone(),
                    binding,
                    profile,
                };
                let checked = implementation.check();
                checked.map_err(|error| wrong(error.field, error.to_string()))?;
                Ok((implementation, drawn.origin))
            });
            let (implementation, energy, error) = match checked {
                Ok((implementation, energy)) => (Some(implementation), Some(energy), None),
                Err(error) => (None, None, Some(error)),
            };
            all.push(Measured {
                name,
                implementation,
                energy,
                error,
            });
        }
        remember(inner, capability, all, order.only.is_some()).await
    }
}

impl MeasureOrder {
    /// The task of its workflow, and the capability that this names.
    fn task_of<'a>(&self, workflow: &'a Workflow) -> Result<(&'a FlowTask, &'a str), TaskError> {
        let place = workflow.index_of(&self.task);
        let task = place.map(|place| &workflow.tasks()[place]);
        let task = task.ok_or_else(|| wrong("task", format!("the workflow has no task `{}`", self.task)))?;
        let none = || {
            let name = &task.name;
            wrong(
                "task",
                format!("`{name}` names no capability, so there is nobody to choose"),
            )
        };
        let capability = task.capability.as_deref().ok_or_else(none)?;
        Ok((task, capability))
    }
}

fn wrong(field: &str, why: String) -> TaskError {
    TaskError::invalid(why).with_field(field)
}

/// The implementations of a capability to measure: all that are in reach, or the `only` one.
async fn candidates(
    tasks: &Inner,
    capability: &str,
    only: Option<&str>,
) -> Result<Vec<(String, Binding)>, TaskError> {
    let mut found = match only {
        // An implementation of this node is found without asking others, which may be out of reach.
        Some(only) if here(tasks, capability).iter().any(|(name, _)| name == only) => here(tasks, capability),
        _ => find(tasks, capability).await,
    };
    found.retain(|(name, _)| only.is_none_or(|only| only == name));
    match only {
        _ if !found.is_empty() => Ok(found),
        Some(only) => {
            let says = format!("`{only}` does not do `{capability}`, or is out of reach");
            Err(TaskError::unavailable(says).with_field("only"))
        }
        None => Err(TaskError::unavailable(format!("nobody in reach does `{capability}`")).with_hint(
            "`karman model add NAME FILE --info capability=…` says what a model does; `karman mesh offers` shows who does what",
        )),
    }
}

/// What is known from now on: what was measured now and, where that was to be `only` one, what was known of the others.
fn known_now(before: Vec<Implementation>, all: &[Measured], only: bool) -> Vec<Implementation> {
    let measured = all.iter().filter_map(|one| one.implementation.clone());
    let is_other = |known: &Implementation| only && all.iter().all(|one| one.name != known.name);
    let mut now: Vec<Implementation> = measured.chain(before.into_iter().filter(is_other)).collect();
    if only {
        now.sort_by(|one, other| one.name.cmp(&other.name));
    }
    now
}

/// What a call costs: as it is said now, else as it was said before.
fn price(said: &BTreeMap<String, f64>, before: &[Implementation], name: &str) -> f64 {
    let before = before.iter().find(|known| known.name == name);
    let said = said.get(name).copied();
    said.or_else(|| Some(before?.profile.cost)).unwrap_or(0.0)
}

/// Who does a capability on this node and in its mesh, by name.
async fn find(tasks: &Inner, capability: &str) -> Vec<(String, Binding)> {
    let mut found = here(tasks, capability);
    if let Some(mesh) = tasks.mesh.get() {
        for provider in mesh.providers(capability).await {
            let node = provider.offer.node;
            let below = |task: &&OfferedTask| is_below(&task.name, capability);
            for task in provider.offer.tasks.iter().filter(below) {
                let binding = Binding::Remote {
                    node,
                    task: task.name.clone(),
                };
                found.push((name_at(&task.name, node), binding));
            }
        }
    }
    found.sort_by(|(one, _), (other, _)| one.cmp(other));
    found.dedup_by(|(one, _), (other, _)| one == other);
    found
}

/// Who does it on this node, or on a server of others that it names.
fn here(tasks: &Inner, capability: &str) -> Vec<(String, Binding)> {
    let is_below = |name: &str| is_below(name, capability);
    let here = tasks.runtime.id();
    let mut found = Vec::new();
    for (task, model) in model_tasks::offered(&tasks.runtime) {
        if is_below(&task.name) {
            found.push((name_at(&task.name, here), Binding::Model(model)));
        }
    }
    for plugin in tasks.plugins.all() {
        let manifest = plugin.manifest();
        let does = manifest
            .task
            .as_ref()
            .is_some_and(|task| is_below(&task.capability));
        if does || manifest.name == capability {
            let binding = Binding::Plugin(manifest.name.clone());
            found.push((name_at(&manifest.name, here), binding));
        }
    }
    found.extend(tasks.flows.endpoints.doing(is_below));
    found
}

/// What a task on a node is spoken of by.
fn name_at(task: &str, node: NodeId) -> String {
    let last = task.rsplit('/').next().unwrap_or(task);
    format!("{last}@{}", node.short())
}

/// Whether a name is this capability, or one below it.
pub(super) fn is_below(name: &str, capability: &str) -> bool {
    let below = name.strip_prefix(capability);
    below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

async fn profile(
    tasks: &Inner,
    binding: &Binding,
    with: &BTreeMap<String, karman_types::Scalar>,
    outputs: &DataContract,
    examples: &[Example],
    cost: f64,
) -> Result<(Profile, Drawn), TaskError> {
    let run = tasks.runtime.context(None).task;
    // The first call loads what it needs, which is no part of a call.
    let warm_up = json::request(&examples[0].input, with)?;
    call(tasks, binding, warm_up, run, Some(LONGEST)).await?;
    let draws_here = match binding {
        Binding::Plugin(_) => true,
        Binding::Model(name) => tasks.runtime.models().is_on_processor(name),
        Binding::Remote { .. } | Binding::Endpoint { .. } => false,
    };
    let meter = match draws_here {
        true => Some(Meter::start(tasks.runtime.config().power).await),
        false => None,
    };
    let (mut times, mut right) = (Vec::with_capacity(examples.len()), 0.0);
    for example in examples {
        let request = json::request(&example.input, with)?;
        let started = Instant::now();
        let response = call(tasks, binding, request, run, Some(LONGEST)).await?;
        times.push(started.elapsed().max(Duration::from_micros(1)));
        let output = within(outputs, json::output(&response)?);
        outputs
            .check_json(Side::Output, &output)
            .map_err(|error| TaskError::invalid(error.to_string()).with_field(error.field))?;
        right += labels::right(&example.output, &output);
    }
    let drawn = meter.map_or_else(Drawn::elsewhere, |meter| meter.drawn(examples.len()));
    times.sort_unstable();
    let quantile =
        |share: f64| times[((times.len() as f64 * share).ceil() as usize).clamp(1, times.len()) - 1];
    let labelled = examples.iter().all(|example| !example.output.is_empty());
    let profile = Profile {
        accuracy: labelled.then(|| right / examples.len() as f64),
        mean: times.iter().sum::<Duration>() / times.len() as u32,
        p50: quantile(0.5),
        p95: quantile(0.95),
        p99: quantile(0.99),
        cost,
        energy: drawn.joules,
        samples: examples.len() as u64,
    };
    Ok((profile, drawn))
}

/// The fields that the contract has: what an implementation gives besides, no other would.
pub(super) fn within(contract: &DataContract, output: Value) -> Value {
    match output {
        Value::Object(mut fields) if !contract.is_empty() => {
            fields.retain(|name, _| contract.iter().any(|field| field.name == *name));
            Value::Object(fields)
        }
        other => other,
    }
}

/// Calls an implementation. It is a direct call: it may run more than once, so it is nothing for effects.
///
/// # Errors
/// What the implementation answers; `unavailable` when it cannot be reached.
pub(super) async fn call(
    tasks: &Inner,
    binding: &Binding,
    request: TaskRequest,
    run: TaskId,
    within: Option<Duration>,
) -> Result<TaskResponse, TaskError> {
    match binding {
        Binding::Plugin(name) => {
            let context = CallContext {
                task: run,
                ..tasks.runtime.context(within)
            };
            Ok(tasks.plugins.find(name)?.call(request, context).await?.0)
        }
        Binding::Model(name) => Ok(model_tasks::run(&tasks.runtime, name, request, within).await?.0),
        Binding::Remote { node, task } => {
            let mesh = mesh_of(tasks)?;
            let peer = mesh.peer(*node).await?;
            let head = CallHead {
                within_ms: within.map(|within| within.as_millis() as u64),
                content_type: request.content_type,
                metadata: request.metadata,
                ..CallHead::new(Ask::Call, task, run)
            };
            Ok(mesh.call(peer, head, request.body).await?.0)
        }
        Binding::Endpoint { url, model } => {
            let endpoints = &tasks.flows.endpoints;
            endpoints.call((url, model), request, within).await
        }
    }
}

/// Whether an implementation can be called now, as far as that is known without asking.
pub(super) fn reaches(tasks: &Inner, binding: &Binding) -> bool {
    match binding {
        Binding::Plugin(name) => tasks.plugins.find(name).is_ok(),
        Binding::Model(name) => model_tasks::holds(&tasks.runtime, name),
        Binding::Remote { node, .. } => tasks.mesh.get().is_some_and(|mesh| mesh.is_there(*node)),
        Binding::Endpoint { url, model } => tasks.flows.endpoints.has(url, model),
    }
}

/// What was measured of those who do a capability.
pub(super) async fn known(tasks: &Inner, capability: &str) -> Result<Vec<Implementation>, TaskError> {
    Ok(all_known(tasks).await?.remove(capability).unwrap_or_default())
}

/// What was measured of anybody, by capability.
pub(super) async fn all_known(tasks: &Inner) -> Result<Known, TaskError> {
    let known: Option<Known> = tasks
        .runtime
        .home()
        .with(move |store| store.profiles().get(RECORD))
        .await?;
    Ok(known.unwrap_or_default())
}

/// Writes down what was measured of those who do a capability. Others may be measured at the same time.
async fn remember(
    tasks: &Inner,
    capability: &str,
    all: Vec<Measured>,
    only: bool,
) -> Result<Vec<Measured>, TaskError> {
    let capability = capability.to_owned();
    let write = move |store: &Store| {
        let change = |known: &mut Known| {
            let of = known.entry(capability).or_default();
            *of = known_now(std::mem::take(of), &all, only);
        };
        store.profiles().change(RECORD, change)?;
        Ok(all)
    };
    let all = tasks.runtime.home().with(write).await?;
    tasks.flows.are_measured_anew();
    Ok(all)
}

/// Forgets what was measured of a model of this node, which is gone.
pub(in crate::drive) fn forget_measured(store: &Store, model: &str) -> Result<(), TaskError> {
    let is_gone = |one: &Implementation| matches!(&one.binding, Binding::Model(name) if name == model);
    let known: Option<Known> = match store.profiles().get(RECORD) {
        Err(error) if error.is_of_disk() => return Err(TaskError::from(error)),
        // A record that does not read says nothing of the model, and keeps nobody from removing it.
        known => known.unwrap_or_default(),
    };
    if !known.iter().flat_map(BTreeMap::values).flatten().any(is_gone) {
        return Ok(());
    }
    let change = |known: &mut Known| {
        known.values_mut().for_each(|all| all.retain(|one| !is_gone(one)));
        known.retain(|_, all| !all.is_empty());
    };
    store.profiles().shrink(RECORD, change).map_err(TaskError::from)
}

#[cfg(test)]
mod tests;
