//! Nodes, components and jobs, from the registered file, the graphs and a seed.

use crate::placement::world::Trace;
use anyhow::{Context, Result, bail};
use karman_sched::place::{Component, Fleet, Input, Job, Node, State, Task};
use karman_sim::{Arrivals, Instant, Shape, Streams, normal};
use karman_types::NodeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seeds: u64,
    tuning_seeds: u64,
    utilisation: f64,
    tasks: usize,
    least_jobs: usize,
    noise: f64,
    unit: f64,
    size: u64,
    rate: f64,
    graphs: Vec<String>,
    node: Vec<Group>,
    component: Vec<Load>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    count: usize,
    speed: f64,
    memory: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    #[serde(rename = "name")]
    _name: String,
    cold: f64,
    scale_out: f64,
    bytes: u64,
    fetch: u64,
}

/// The weight of a task, and from which tasks it takes how much.
type Weighted = (f64, Vec<(usize, u64)>);

/// A pipeline: its tasks, each after what it waits for.
struct Graph(Vec<Weighted>);

/// What is drawn from.
pub(super) struct Scenario {
    file: File,
    graphs: Vec<Graph>,
}

impl Scenario {
    pub(super) fn read(data: &Path) -> Result<Self> {
        let file: File = karman_types::from_toml(include_str!("../fate.toml"))?;
        let read = |name: &String| {
            let path = data.join(format!("cawosched/graphs/{name}.dot"));
            let text = fs::read_to_string(&path).with_context(|| {
                format!(
                    "{} cannot be read: say with --data where the recorded graphs are",
                    path.display()
                )
            })?;
            Graph::read(&text).with_context(|| format!("{} is no graph", path.display()))
        };
        let graphs = file.graphs.iter().map(read).collect::<Result<_>>()?;
        Ok(Self { file, graphs })
    }

    pub(super) const fn seeds(&self) -> u64 {
        self.file.seeds
    }

    pub(super) const fn tuning_seeds(&self) -> u64 {
        self.file.tuning_seeds
    }

    pub(super) fn graphs(&self) -> &[String] {
        &self.file.graphs
    }

    /// Seconds of the longest way through a graph on the fastest node, with nothing to load or send.
    pub(super) fn critical_path(&self, graph: usize) -> f64 {
        let fastest = self.file.node.iter().map(|group| group.speed).fold(0.0, f64::max);
        let mut ends: Vec<f64> = Vec::new();
        for (weight, inputs) in &self.graphs[graph].0 {
            let begin = inputs.iter().map(|(from, _)| ends[*from]).fold(0.0, f64::max);
            ends.push(begin + weight * self.file.unit / fastest);
        }
        ends.into_iter().fold(0.0, f64::max)
    }

    /// What happens under a seed: jobs of one graph, in which each task runs a component drawn for it once and for all.
    pub(super) fn trace(&self, graph: usize, seed: u64, loads: bool) -> Trace {
        let file = &self.file;
        let streams = Streams::new(seed);
        let fleet = self.fleet(loads);
        let tasks = &self.graphs[graph].0;
        let work = tasks.iter().map(|(weight, _)| weight * file.unit).sum::<f64>();
        let capacity = fleet.nodes.iter().map(|node| node.speed).sum::<f64>();
        let count = (file.tasks / tasks.len()).max(file.least_jobs);
        let gaps = Shape::Exponential.sampler().expect("it has no numbers");
        let arrivals = Arrivals::new(file.utilisation * capacity / work, gaps).expect("a positive rate");

        let mut random = streams.stream("components", graph as u64);
        let components: Vec<usize> = tasks
            .iter()
            .map(|_| random.usize(..fleet.components.len()))
            .collect();
        let mut random = streams.stream("arrivals", graph as u64);
        let mut origins = streams.stream("origins", graph as u64);
        let mut at = Instant::START;
        let jobs: Vec<Job> = (0..count)
            .map(|id| {
                at = arrivals.next(at, &mut random).unwrap_or(at);
                let origin = origins.usize(..fleet.nodes.len());
                self.job(id as u64, at.as_secs_f64(), origin, tasks, &components)
            })
            .collect();
        let mut random = streams.stream("factors", graph as u64);
        let noise = file.noise;
        let mut factor = || (noise * normal(&mut random) - noise * noise / 2.0).exp();
        Trace {
            factors: jobs
                .iter()
                .map(|job| job.tasks.iter().map(|_| factor()).collect())
                .collect(),
            // Long enough for the slowest policy: an unfinished job would count as ending here.
            end: at.as_secs_f64() * 4.0 + 100.0 * work,
            fleet,
            jobs,
            rates: Vec::new(),
        }
    }

    fn job(&self, id: u64, arrived: f64, origin: usize, tasks: &[Weighted], components: &[usize]) -> Job {
        let task = |((weight, inputs), component): (&Weighted, &usize)| Task {
            component: *component,
            work: weight * self.file.unit,
            inputs: inputs
                .iter()
                .map(|(from, size)| Input {
                    from: Some(*from),
                    bytes: size * self.file.size,
                })
                .collect(),
            state: State::Waiting,
        };
        Job {
            id,
            arrived,
            deadline: None,
            origin,
            tasks: tasks.iter().zip(components).map(task).collect(),
        }
    }

    fn fleet(&self, loads: bool) -> Fleet {
        let mut nodes = Vec::new();
        for group in &self.file.node {
            for _ in 0..group.count {
                let id = NodeId::of_key(&nodes.len().to_le_bytes());
                let memory = group.memory * 1_000_000;
                nodes.push(Node::new(id, 0, group.speed, self.file.rate, memory, 1));
            }
        }
        let measured = |load: &Load| Component {
            bytes: load.bytes,
            fetch: load.fetch,
            warm: 0.0,
            scale_out: load.scale_out,
            cold: load.cold,
        };
        let nothing = |_: &Load| Component {
            bytes: 0,
            fetch: 0,
            warm: 0.0,
            scale_out: 0.0,
            cold: 0.0,
        };
        let components = self.file.component.iter();
        let components = match loads {
            true => components.map(measured).collect(),
            false => components.map(nothing).collect(),
        };
        Fleet {
            nodes,
            components,
            latency: [0.0, 0.0],
        }
    }
}

impl Graph {
    /// Reads what upstream writes: `3 [weight=2];` and `3 -> 5 [size=4];`, one a line.
    fn read(text: &str) -> Result<Self> {
        let mut weights: BTreeMap<u32, f64> = BTreeMap::new();
        let mut edges: Vec<(u32, u32, u64)> = Vec::new();
        for line in text.lines().filter(|line| line.contains('[')) {
            let (name, attribute) = line.split_once('[').unwrap_or_default();
            let value = attribute
                .trim_end_matches("];")
                .split('=')
                .nth(1)
                .context("an attribute has no value")?;
            match name.split_once("->") {
                Some((from, to)) => {
                    edges.push((from.trim().parse()?, to.trim().parse()?, value.parse()?));
                }
                None => _ = weights.insert(name.trim().parse()?, value.parse()?),
            }
        }
        // Always the first of those that wait for nothing any more.
        let mut placed: BTreeMap<u32, usize> = BTreeMap::new();
        let mut tasks = Vec::new();
        while tasks.len() < weights.len() {
            let waits = |task: u32| {
                edges
                    .iter()
                    .any(|(from, to, _)| *to == task && !placed.contains_key(from))
            };
            let next = weights
                .keys()
                .copied()
                .find(|task| !placed.contains_key(task) && !waits(*task));
            let Some(next) = next else { bail!("it has a cycle") };
            let into = edges.iter().filter(|(_, to, _)| *to == next);
            let inputs = into.map(|(from, _, size)| (placed[from], *size)).collect();
            placed.insert(next, tasks.len());
            tasks.push((weights[&next], inputs));
        }
        Ok(Self(tasks))
    }
}
