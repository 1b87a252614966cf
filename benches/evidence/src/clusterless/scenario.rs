//! The clusters, the workflows and the arrivals, from the registered file, the recorded profiles and a seed.

use crate::placement::world::Trace;
use anyhow::{Context, Result, ensure};
use karman_sched::place::{Component, Fleet, Input, Job, Node, State, Task};
use karman_sim::{Arrivals, Instant, Shape, Streams, normal};
use karman_study::pairs::percentile;
use karman_types::NodeId;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

pub(super) const CELLS: [&str; 3] = ["uniform", "skewed", "dynamic"];

/// Seconds of drain after the last arrival: the latest deadline.
const DRAIN: f64 = 250.0;
/// Start of an instance where its image is, at speed 1; further seconds of fetching the image at the mean rate.
const SCALE_OUT: f64 = 0.5;
const FETCH: f64 = 4.0;
const IMAGE: u64 = 300_000_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    seeds: u64,
    tuning_seeds: u64,
    seconds: f64,
    noise: f64,
    kubernetes: BTreeMap<String, f64>,
    zipf: f64,
    class: BTreeMap<String, Class>,
    cluster: Vec<Cluster>,
    burst: Burst,
    lte: Lte,
    workflow: Vec<Workflow>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    cores: usize,
    memory: f64,
    speed: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cluster {
    nodes: BTreeMap<String, usize>,
    rate: f64,
    uniform: f64,
    skewed: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Burst {
    first: f64,
    every: f64,
    seconds: f64,
    rate: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lte {
    sigma: f64,
    correlation: f64,
    step: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Workflow {
    #[serde(rename = "name")]
    _name: String,
    deadlines: [[f64; 3]; 3],
    input: [f64; 3],
    function: Vec<Function>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Function {
    name: String,
    r#as: String,
    after: Vec<String>,
    out: [f64; 3],
}

/// What is drawn from, with the recorded times of each function for the three sizes of input.
pub(super) struct Scenario {
    pub(super) seeds: u64,
    pub(super) tuning_seeds: u64,
    file: File,
    times: BTreeMap<String, [f64; 3]>,
}

impl Scenario {
    pub(super) fn read(data: &Path) -> Result<Self> {
        let file: File = karman_types::from_toml(include_str!("../clusterless.toml"))?;
        let times = times(data)?;
        for function in file.workflow.iter().flat_map(|workflow| &workflow.function) {
            ensure!(
                times.contains_key(&function.r#as),
                "no recorded function `{}`",
                function.r#as
            );
        }
        Ok(Self {
            seeds: file.seeds,
            tuning_seeds: file.tuning_seeds,
            file,
            times,
        })
    }

    pub(super) fn published(&self, cell: &str) -> f64 {
        self.file.kubernetes[cell]
    }

    /// The share of jobs whose longest way fits into their time on warm instances of the fastest nodes, alone: no policy does better.
    pub(super) fn feasible(&self, trace: &Trace) -> f64 {
        let fits = |job: &Job| {
            let way = job
                .upward_ranks(1.0, f64::INFINITY)
                .into_iter()
                .fold(0.0, f64::max);
            job.deadline.is_none_or(|deadline| job.arrived + way <= deadline)
        };
        trace.jobs.iter().filter(|job| fits(job)).count() as f64 / trace.jobs.len() as f64
    }

    /// The work of all jobs over what all nodes could do while they come.
    pub(super) fn utilisation(&self, trace: &Trace) -> f64 {
        let work: f64 = trace
            .jobs
            .iter()
            .flat_map(|job| &job.tasks)
            .map(|task| task.work)
            .sum();
        let nodes = trace.fleet.nodes.iter();
        work / nodes
            .map(|node| node.speed * node.slots.len() as f64)
            .sum::<f64>()
            / self.file.seconds
    }

    /// What happens in a cell under a seed.
    pub(super) fn trace(&self, cell: &str, multiplier: f64, seed: u64) -> Trace {
        let streams = Streams::new(seed);
        let (fleet, means) = self.fleet();
        let end = self.file.seconds + DRAIN;
        let rates = self.rates(&fleet, &means, &streams, end);
        let mut jobs = self.jobs(cell, multiplier, &fleet, &streams);
        jobs.sort_by(|a, b| a.arrived.total_cmp(&b.arrived));
        let mut random = streams.stream("factors", 0);
        let noise = self.file.noise;
        let mut factor = || (noise * normal(&mut random) - noise * noise / 2.0).exp();
        for (place, job) in jobs.iter_mut().enumerate() {
            job.id = place as u64;
        }
        let factors = jobs
            .iter()
            .map(|job| job.tasks.iter().map(|_| factor()).collect())
            .collect();
        Trace {
            fleet,
            jobs,
            factors,
            rates,
            end,
        }
    }

    fn fleet(&self) -> (Fleet, Vec<f64>) {
        let (mut nodes, mut means) = (Vec::new(), Vec::new());
        for (place, cluster) in self.file.cluster.iter().enumerate() {
            for (class, count) in &cluster.nodes {
                let class = &self.file.class[class];
                for _ in 0..*count {
                    let rate = cluster.rate * 1e6 / 8.0;
                    let id = NodeId::of_key(&nodes.len().to_le_bytes());
                    let memory = (class.memory * 1e9) as u64;
                    nodes.push(Node::new(id, place, class.speed, rate, memory, class.cores));
                    means.push(rate);
                }
            }
        }
        let mean = means.iter().sum::<f64>() / means.len() as f64;
        let component = Component {
            bytes: IMAGE,
            fetch: (FETCH * mean) as u64,
            warm: 0.0,
            scale_out: SCALE_OUT,
            cold: SCALE_OUT,
        };
        let functions = self
            .file
            .workflow
            .iter()
            .map(|workflow| workflow.function.len())
            .sum();
        let fleet = Fleet {
            nodes,
            components: vec![component; functions],
            latency: [0.02, 0.06],
        };
        (fleet, means)
    }

    /// A trace of bandwidth for each cluster, shifted for each of its nodes.
    fn rates(&self, fleet: &Fleet, means: &[f64], streams: &Streams, end: f64) -> Vec<(f64, usize, f64)> {
        let Lte {
            sigma,
            correlation,
            step,
        } = self.file.lte;
        let steps = (end / step) as usize;
        let traces: Vec<Vec<f64>> = (0..self.file.cluster.len())
            .map(|cluster| {
                let mut random = streams.stream("lte", cluster as u64);
                let mut state = normal(&mut random);
                let fresh = (1.0 - correlation * correlation).sqrt();
                let mut next = || {
                    state = correlation * state + fresh * normal(&mut random);
                    (sigma * state - sigma * sigma / 2.0).exp()
                };
                (0..steps).map(|_| next()).collect()
            })
            .collect();
        let mut rates = Vec::with_capacity(steps * fleet.nodes.len());
        for at in 0..steps {
            for (place, node) in fleet.nodes.iter().enumerate() {
                let factor = traces[node.cluster][(at + 7 * place) % steps];
                rates.push((at as f64 * step, place, means[place] * factor));
            }
        }
        rates
    }

    fn jobs(&self, cell: &str, multiplier: f64, fleet: &Fleet, streams: &Streams) -> Vec<Job> {
        let gaps = Shape::Exponential.sampler().expect("it has no numbers");
        let mut jobs = Vec::new();
        let mut ranks: Vec<usize> = (0..18).collect();
        Streams::new(0).stream("ranks", 0).shuffle(&mut ranks);
        for place in 0..self.file.cluster.len() {
            let arrivals =
                Arrivals::varying(self.steps(cell, place), gaps).expect("registered rates are rates");
            let mut random = streams.stream("arrivals", place as u64);
            let mut kinds = streams.stream("kinds", place as u64);
            let members: Vec<usize> = (0..fleet.nodes.len())
                .filter(|&node| fleet.nodes[node].cluster == place)
                .collect();
            let mut at = Instant::START;
            while let Some(next) = arrivals.next(at, &mut random) {
                at = next;
                if at.as_secs_f64() > self.file.seconds {
                    break;
                }
                let origin = members[kinds.usize(..members.len())];
                let kind = self.kind(&ranks, &mut kinds);
                jobs.push(self.job(kind, multiplier, at.as_secs_f64(), origin));
            }
        }
        jobs
    }

    fn steps(&self, cell: &str, place: usize) -> Vec<(Instant, f64)> {
        let cluster = &self.file.cluster[place];
        let at = Instant::from_secs_f64;
        match cell {
            "skewed" => vec![(at(0.0), cluster.skewed)],
            "dynamic" => {
                let burst = &self.file.burst;
                let begins = burst.first + burst.every * place as f64;
                vec![
                    (at(0.0), cluster.uniform),
                    (at(begins), burst.rate),
                    (at(begins + burst.seconds), cluster.uniform),
                ]
            }
            _ => vec![(at(0.0), cluster.uniform)],
        }
    }

    /// One of the 18 kinds by Zipf's law: workflow, size of input, strictness.
    fn kind(&self, ranks: &[usize], random: &mut fastrand::Rng) -> (usize, usize, usize) {
        let weights: Vec<f64> = (1..=18)
            .map(|rank| f64::from(rank).powf(-self.file.zipf))
            .collect();
        let mut left = random.f64() * weights.iter().sum::<f64>();
        let drawn = weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        });
        let kind = ranks[drawn.unwrap_or(17)];
        (kind % 2, kind / 2 % 3, kind / 6)
    }

    fn job(
        &self,
        (workflow, size, strictness): (usize, usize, usize),
        multiplier: f64,
        at: f64,
        origin: usize,
    ) -> Job {
        let before: usize = self.file.workflow[..workflow]
            .iter()
            .map(|other| other.function.len())
            .sum();
        let workflow = &self.file.workflow[workflow];
        let bytes = |megabytes: f64| (megabytes * 1e6) as u64;
        let place_of = |name: &String| {
            workflow
                .function
                .iter()
                .position(|function| function.name == *name)
        };
        let task = |(place, function): (usize, &Function)| {
            let after = function.after.iter().filter_map(place_of);
            let mut inputs: Vec<Input> = after
                .map(|from| Input {
                    from: Some(from),
                    bytes: bytes(workflow.function[from].out[size]),
                })
                .collect();
            if inputs.is_empty() {
                inputs.push(Input {
                    from: None,
                    bytes: bytes(workflow.input[size]),
                });
            }
            Task {
                component: before + place,
                work: self.times[&function.r#as][size] * multiplier,
                inputs,
                state: State::Waiting,
            }
        };
        Job {
            id: 0,
            arrived: at,
            deadline: Some(at + workflow.deadlines[strictness][size]),
            origin,
            tasks: workflow.function.iter().enumerate().map(task).collect(),
        }
    }
}

/// Seconds of each recorded function at 2048 MiB and one core: median, upper quartile and maximum over its inputs.
fn times(data: &Path) -> Result<BTreeMap<String, [f64; 3]>> {
    let path = data.join("chunk-func/function_profiles_gcf.csv");
    let text = fs::read_to_string(&path).with_context(|| {
        format!(
            "{} cannot be read: say with --data where the recorded profiles are",
            path.display()
        )
    })?;
    let mut sizes: BTreeMap<String, BTreeMap<u64, f64>> = BTreeMap::new();
    for line in text.lines().skip(1) {
        let fields: Vec<&str> = line.split(',').collect();
        let [_, function, size, "2048mib-1000m", "200", time, _] = fields[..] else {
            continue;
        };
        let (Ok(size), Ok(millis)) = (size.parse(), time.parse::<f64>()) else {
            continue;
        };
        sizes
            .entry(function.into())
            .or_default()
            .insert(size, millis / 1e3);
    }
    let three = |times: BTreeMap<u64, f64>| {
        let times: Vec<f64> = times.into_values().collect();
        [0.5, 0.75, 1.0].map(|share| percentile(&times, share))
    };
    Ok(sizes
        .into_iter()
        .map(|(name, times)| (name, three(times)))
        .collect())
}
