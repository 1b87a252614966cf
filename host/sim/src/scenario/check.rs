use super::{ModelEntry, NodeGroup, Route, Scenario, Workload};
use crate::{ArrivalsError, ShapeError};
use karman_sched::serve::{BadChoice, ProfileError};
use karman_space::PlanError;
use karman_types::{ByteSize, KeyError, format_duration};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

/// A scenario that does not hold together.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ScenarioError {
    /// The text is not what a scenario looks like.
    #[error(transparent)]
    Text(#[from] KeyError),
    /// A text that is too long to be read.
    #[error("the scenario has {bytes} bytes, but at most {} are read", Scenario::MAX_TEXT)]
    TooLong {
        /// The length of the text.
        bytes: usize,
    },
    /// It cannot be written.
    #[error("the scenario cannot be written as TOML: {0}")]
    Unwritable(String),
    /// A value out of its bounds.
    #[error("{of}: `{field}` is {value}, but must be {must}")]
    Field {
        /// Which node, model, workload or contact.
        of: String,
        /// Which field.
        field: &'static str,
        /// What was given.
        value: String,
        /// What it can be.
        must: &'static str,
    },
    /// A name that nothing has.
    #[error("{of}: `{field}` names `{name}`, which the scenario does not have")]
    Name {
        /// Which workload or contact.
        of: String,
        /// Which field.
        field: &'static str,
        /// What was given.
        name: String,
    },
    /// A name that two have.
    #[error("two of the same kind are called `{0}`: give each its own name")]
    Twice(String),
    /// A distribution that is none.
    #[error("{of}: {error}")]
    Shape {
        /// Of which model or workload.
        of: String,
        /// What is wrong.
        error: ShapeError,
    },
    /// Rates that are none.
    #[error("{of}: {error}")]
    Arrivals {
        /// Of which workload.
        of: String,
        /// What is wrong.
        error: ArrivalsError,
    },
    /// A model that cannot be served.
    #[error("{of}: {error}")]
    Profile {
        /// Which one.
        of: String,
        /// What is wrong.
        error: ProfileError,
    },
    /// Models that do not fit.
    #[error("node {node}: the models that it may be asked for take {needs}, but `memory` is {memory}")]
    Memory {
        /// Which group.
        node: String,
        /// What all of them take.
        needs: ByteSize,
        /// What it has.
        memory: ByteSize,
    },
    /// Contacts that do not hold together.
    #[error(transparent)]
    Contacts(#[from] PlanError),
    /// No policy can choose.
    #[error("workload {of}: `select`: {error}")]
    Select {
        /// Which workload.
        of: String,
        /// Why.
        error: String,
    },
    /// A policy is to choose, and there is no choice to make.
    #[error("`{0}` has nothing to choose: no workload names `others` besides its model")]
    NoChoice(String),
    /// A policy chose what is not there.
    #[error("{node}: {error}")]
    Policy {
        /// At which node.
        node: String,
        /// What it chose.
        error: BadChoice,
    },
}

/// The most nodes of a scenario.
const MAX_NODES: u32 = 100_000;
/// The most streams of requests: nodes times workloads.
const MAX_STREAMS: u64 = 1_000_000;

impl Scenario {
    /// Whether it holds together; [`Scenario::from_toml`] has asked already.
    ///
    /// # Errors
    /// [`ScenarioError`] names what does not fit.
    pub fn check(&self) -> Result<(), ScenarioError> {
        self.check_times()?;
        names("model", self.models.iter().map(|model| &model.name))?;
        names("node", self.nodes.iter().map(|group| &group.name))?;
        names("workload", self.workloads.iter().map(|workload| &workload.name))?;
        self.models.iter().try_for_each(ModelEntry::check)?;
        self.nodes.iter().try_for_each(NodeGroup::check)?;
        let count = self
            .nodes
            .iter()
            .try_fold(0u32, |sum, group| sum.checked_add(group.count));
        let most = "at most 100,000 together";
        fits(
            "the nodes",
            "count",
            count.unwrap_or(u32::MAX),
            count.is_some_and(|n| n <= MAX_NODES),
            most,
        )?;
        let mut streams = 0;
        for workload in &self.workloads {
            self.check_workload(workload)?;
            let group = self.nodes.iter().find(|group| group.name == workload.at);
            streams += group.map_or(0, |group| u64::from(group.count));
        }
        let most = "at most 1,000,000 streams of requests, one for each node and workload";
        fits("the workloads", "at", streams, streams <= MAX_STREAMS, most)?;
        self.nodes.iter().try_for_each(|group| self.check_memory(group))?;
        for contact in &self.contacts {
            let of = format!("contact {} -> {}", contact.from, contact.to);
            for (field, name) in [("from", &contact.from), ("to", &contact.to)] {
                let name = name.clone();
                self.node_number(&name).ok_or_else(|| ScenarioError::Name {
                    of: of.clone(),
                    field,
                    name,
                })?;
            }
        }
        self.plan().map(drop)
    }

    /// The number of the node called `GROUP-N`.
    pub(super) fn node_number(&self, name: &str) -> Option<usize> {
        let (group, number) = name.rsplit_once('-')?;
        let number: u32 = number.parse().ok()?;
        let mut first = 0;
        for candidate in &self.nodes {
            if candidate.name == group {
                return (number < candidate.count).then_some(first + number as usize);
            }
            first += candidate.count as usize;
        }
        None
    }

    fn check_times(&self) -> Result<(), ScenarioError> {
        let of = "the scenario";
        let telemetry = &self.telemetry;
        fits(
            of,
            "length",
            format_duration(self.length),
            !self.length.is_zero(),
            "longer than 0",
        )?;
        let around = self.warm_up.saturating_add(self.cool_down);
        let less = "shorter than `length`, with `cool-down`";
        fits(
            of,
            "warm-up",
            format_duration(self.warm_up),
            around < self.length,
            less,
        )?;
        // Below a microsecond nothing but samples would happen.
        let period = telemetry.period;
        fits(
            "telemetry",
            "period",
            format_duration(period),
            period >= Duration::from_millis(1),
            "at least 1 ms",
        )?;
        share("telemetry", "dropped", telemetry.dropped)?;
        let noise = telemetry.noise;
        fits(
            "telemetry",
            "noise",
            noise,
            (0.0..=10.0).contains(&noise),
            "from 0 to 10",
        )
    }

    fn check_memory(&self, group: &NodeGroup) -> Result<(), ScenarioError> {
        let serves = |workload: &&Workload| match workload.to.is_empty() {
            true => workload.at == group.name,
            false => workload.to.contains(&group.name),
        };
        let asking = self.workloads.iter().filter(serves);
        let asked: BTreeSet<&String> = asking
            .flat_map(|of| std::iter::once(&of.model).chain(&of.others))
            .collect();
        let models = self.models.iter().filter(|model| asked.contains(&model.name));
        let needs = models.fold(0, |sum: u64, model| sum.saturating_add(model.memory.0));
        match needs <= group.memory.0 {
            true => Ok(()),
            false => Err(ScenarioError::Memory {
                node: group.name.clone(),
                needs: ByteSize(needs),
                memory: group.memory,
            }),
        }
    }

    fn check_workload(&self, workload: &Workload) -> Result<(), ScenarioError> {
        let of = || format!("workload {}", workload.name);
        let missing = |field, name: &String| ScenarioError::Name {
            of: of(),
            field,
            name: name.clone(),
        };
        if !self.models.iter().any(|model| model.name == workload.model) {
            return Err(missing("model", &workload.model));
        }
        let is_model = |name: &String| self.models.iter().any(|model| model.name == *name);
        if let Some(name) = workload.others.iter().find(|name| !is_model(name)) {
            return Err(missing("others", name));
        }
        check_choice(workload)?;
        let has = |name: &String| self.nodes.iter().any(|group| group.name == *name);
        if !has(&workload.at) {
            return Err(missing("at", &workload.at));
        }
        if let Some(name) = workload.to.iter().find(|name| !has(name)) {
            return Err(missing("to", name));
        }
        let goes = workload.route != Route::Here || workload.to.is_empty();
        let must = "left out where `route` is `here`: a request stays where it comes";
        fits(of(), "to", format!("{:?}", workload.to), goes, must)?;
        self.arrivals(workload).map(drop)
    }
}

/// Whether there is a choice where one is to be made, and limits to make it by.
fn check_choice(workload: &Workload) -> Result<(), ScenarioError> {
    let of = format!("workload {}", workload.name);
    let named: BTreeSet<&String> = std::iter::once(&workload.model).chain(&workload.others).collect();
    let others = format!("{:?}", workload.others);
    let distinct = named.len() == workload.others.len() + 1;
    let must = "models besides `model`, each named once";
    fits(&of, "others", others, distinct, must)?;
    let chooses = !workload.others.is_empty();
    let must = "left out where `others` names no model: there is no choice to make";
    let select = workload.select.as_deref().unwrap_or_default();
    fits(&of, "select", select, chooses || select.is_empty(), must)?;
    fits(&of, "slo", "given", chooses || workload.slo.is_none(), must)?;
    let slo = workload.slo.as_ref().map_or(Ok(()), karman_types::Slo::check);
    slo.map_err(|error| ScenarioError::Select {
        of: workload.name.clone(),
        error: error.to_string(),
    })
}

impl ModelEntry {
    fn check(&self) -> Result<(), ScenarioError> {
        let of = format!("model {}", self.name);
        let cost = self.cost;
        fits(
            of,
            "cost",
            cost,
            cost >= 0.0 && cost.is_finite(),
            "finite and not below 0",
        )?;
        self.sampler()?;
        self.profile(1.0).map(drop)
    }
}

impl NodeGroup {
    fn check(&self) -> Result<(), ScenarioError> {
        let of = &format!("node {}", self.name);
        fits(of, "count", self.count, self.count > 0, "at least 1")?;
        fits(
            of,
            "cores",
            self.cores,
            (1..=4096).contains(&self.cores),
            "from 1 to 4096",
        )?;
        let speed = self.speed;
        fits(
            of,
            "speed",
            speed,
            (1e-6..=1e6).contains(&speed),
            "from 0.000001 to 1,000,000",
        )?;
        let foreign = self.foreign;
        fits(
            of,
            "foreign",
            foreign,
            (0.0..=0.99).contains(&foreign),
            "from 0 to 0.99",
        )?;
        for (field, watts) in [
            ("idle-watts", self.idle_watts),
            ("busy-watts", self.busy_watts),
            ("transmit-watts", self.transmit_watts),
        ] {
            fits(of, field, watts, (0.0..=1e9).contains(&watts), "from 0 to 1e9")?;
        }
        let Some(failures) = self.failures else {
            return Ok(());
        };
        for (field, mean) in [("mean-up", failures.mean_up), ("mean-down", failures.mean_down)] {
            // A node that fails all the time would keep the simulator from its work.
            fits(
                of,
                field,
                format_duration(mean),
                mean >= Duration::from_millis(1),
                "at least 1 ms",
            )?;
        }
        Ok(())
    }
}

fn names<'a>(kind: &'static str, names: impl Iterator<Item = &'a String>) -> Result<(), ScenarioError> {
    let mut seen = BTreeSet::new();
    for name in names {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let good = (1..=64).contains(&name.len()) && name.chars().all(plain);
        let must = "1 to 64 letters, digits, `-`, `_` or `.`";
        fits(kind, "name", format!("`{name}`"), good, must)?;
        if !seen.insert(name) {
            return Err(ScenarioError::Twice(name.clone()));
        }
    }
    fits(
        "the scenario",
        kind,
        "missing",
        !seen.is_empty(),
        "there at least once",
    )
}

fn share(of: &str, field: &'static str, value: f64) -> Result<(), ScenarioError> {
    fits(of, field, value, (0.0..=1.0).contains(&value), "from 0 to 1")
}

fn fits(
    of: impl fmt::Display,
    field: &'static str,
    value: impl fmt::Display,
    fits: bool,
    must: &'static str,
) -> Result<(), ScenarioError> {
    match fits {
        true => Ok(()),
        false => Err(ScenarioError::Field {
            of: of.to_string(),
            field,
            value: value.to_string(),
            must,
        }),
    }
}
