use anyhow::{Context, Result, bail, ensure};
use karman_sched::serve::Exit;
use karman_sim::{
    ExitEntry, ModelEntry, NodeGroup, RateStep, Scenario, ServePolicy, Shape, TelemetryEntry, Workload,
};
use karman_types::{ByteSize, Tier, serde_duration};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;

/// What was written down before the study runs.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Registered {
    pub(super) seeds: u64,
    pub(super) tuning_seeds: Vec<u64>,
    pub(super) margins: Vec<f64>,
    #[serde(with = "serde_duration")]
    length: Duration,
    #[serde(with = "serde_duration")]
    warm_up: Duration,
    #[serde(with = "serde_duration")]
    cool_down: Duration,
    /// The cells with a row of violations: those in which, on the tuning seeds, that row means something.
    pub(super) violations: Vec<String>,
    family: Vec<Family>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Family {
    name: String,
    mixes: Vec<String>,
    slos: Vec<u64>,
    rates: Vec<u64>,
    #[serde(default = "eight")]
    batch: usize,
    #[serde(default)]
    gaps: Shape,
    #[serde(default = "three_percent")]
    noise: f64,
    #[serde(default)]
    foreign: f64,
    #[serde(default = "one")]
    shift: f64,
    #[serde(default)]
    refuse_late: bool,
}

/// B_max is not published: 8, and 32 beside it.
const fn eight() -> usize {
    8
}

const fn three_percent() -> f64 {
    0.03
}

const fn one() -> f64 {
    1.0
}

/// A cell of the study: a scenario that every policy meets.
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) family: String,
    pub(super) refuse_late: bool,
    scenario: Scenario,
}

impl Cell {
    /// What happens under a seed.
    pub(super) fn scenario(&self, seed: u64) -> Scenario {
        Scenario {
            seed,
            ..self.scenario.clone()
        }
    }
}

impl Registered {
    pub(super) fn read() -> Result<Self> {
        Ok(karman_types::from_toml(include_str!("registered.toml"))?)
    }

    pub(super) fn cells(&self, networks: &[Network]) -> Result<Vec<Cell>> {
        let mut cells = Vec::new();
        for family in &self.family {
            for mix in &family.mixes {
                for &slo in &family.slos {
                    for &rate in &family.rates {
                        cells.push(self.cell(family, networks, mix, slo, rate)?);
                    }
                }
            }
        }
        Ok(cells)
    }

    fn cell(&self, family: &Family, networks: &[Network], mix: &str, slo: u64, rate: u64) -> Result<Cell> {
        let instances = instances(mix, networks)?;
        let shift = Duration::from_secs(self.length.as_secs() / 2);
        let workload = |(index, share): (usize, u64)| {
            let rate = (share * rate) as f64;
            let later = RateStep {
                at: shift,
                rate: rate * family.shift,
            };
            Workload {
                name: format!("requests-{index}"),
                model: format!("instance-{index}"),
                others: Vec::new(),
                select: None,
                slo: None,
                at: "device".into(),
                rate,
                steps: (family.shift != 1.0).then_some(later).into_iter().collect(),
                gaps: family.gaps,
                route: karman_sim::Route::Here,
                to: Vec::new(),
                request: ByteSize(0),
                answer: ByteSize(0),
            }
        };
        let models = instances.iter().enumerate();
        let models = models.map(|(index, network)| network.entry(index, slo, family));
        Ok(Cell {
            name: format!("{}.{mix}-slo{slo}-r{rate}", family.name),
            family: family.name.clone(),
            refuse_late: family.refuse_late,
            scenario: Scenario {
                seed: 0,
                length: self.length,
                warm_up: self.warm_up,
                cool_down: self.cool_down,
                keep_answers: false,
                telemetry: TelemetryEntry::default(),
                models: models.collect(),
                nodes: vec![device(family.foreign)],
                contacts: Vec::new(),
                workloads: [3, 2, 1].into_iter().enumerate().map(workload).collect(),
            },
        })
    }
}

fn device(foreign: f64) -> NodeGroup {
    NodeGroup {
        name: "device".into(),
        count: 1,
        tier: Tier::Edge,
        cores: 1,
        memory: ByteSize::gib(8),
        speed: 1.0,
        foreign,
        idle_watts: 0.0,
        busy_watts: 0.0,
        transmit_watts: 0.0,
        serve: ServePolicy::default(),
        refuse_late: false,
        failures: None,
        links: Vec::new(),
    }
}

/// The three instances of a mix such as `0+1+2`, the smaller networks first.
fn instances<'a>(mix: &str, networks: &'a [Network]) -> Result<Vec<&'a Network>> {
    let counts: Vec<usize> = mix.split('+').map(str::parse).collect::<Result<_, _>>()?;
    let of_each = networks.iter().zip(counts);
    let instances: Vec<_> = of_each
        .flat_map(|(network, count)| vec![network; count])
        .collect();
    ensure!(
        instances.len() == 3,
        "the mix {mix} has {} instances",
        instances.len()
    );
    Ok(instances)
}

/// A network with its exits: accuracy, and the milliseconds of a batch of five.
pub(super) struct Network {
    name: String,
    exits: Vec<(f64, f64)>,
}

impl Network {
    /// The instance of this number. A batch of B takes (4 + B)/9 of one of five: of its time, 4/9 does not depend on its size.
    /// Exits that another one beats are left out for every policy, so the last one is the most accurate.
    fn entry(&self, index: usize, slo: u64, family: &Family) -> ModelEntry {
        let each = |ms: f64| Duration::from_secs_f64(ms / 1e3 / 9.0);
        let exits = self.exits.iter().map(|&(accuracy, ms)| Exit {
            depth: 0,
            accuracy,
            times: vec![(1, each(ms) * 5)],
        });
        let exits = Exit::pareto(exits.collect());
        let entry = |exit: Exit| ExitEntry {
            accuracy: exit.accuracy,
            time: exit.times[0].1,
            each_more: exit.times[0].1 / 5,
        };
        ModelEntry {
            name: format!("instance-{index}"),
            slo: Duration::from_millis(slo),
            batch: family.batch,
            cost: 0.0,
            memory: ByteSize(0),
            variation: Shape::LogNormal { sigma: family.noise },
            exits: exits.into_iter().map(entry).collect(),
        }
    }

    /// The networks of `edgeserving/early_exit_profiles.csv`, the first data set, in its order.
    pub(super) fn read_all(data: &Path) -> Result<Vec<Self>> {
        let path = data.join("edgeserving/early_exit_profiles.csv");
        let missing = || {
            let path = path.display();
            format!("{path} is missing: name the folder of the recorded profiles with --data DIR")
        };
        let text = std::fs::read_to_string(&path).with_context(missing)?;
        let mut networks: Vec<Self> = Vec::new();
        for line in text.lines().skip(1) {
            let columns: Vec<&str> = line.split(',').collect();
            let &[dataset, network, _, best, _, time, ..] = &columns[..] else {
                bail!("{}: `{line}` has too few columns", path.display());
            };
            // The other data set has no times.
            if !dataset.starts_with("cifar100") {
                continue;
            }
            let exit = (best.parse::<f64>()? / 100.0, time.parse::<f64>()?);
            match networks.last_mut().filter(|last| last.name == network) {
                Some(last) => last.exits.push(exit),
                None => networks.push(Self {
                    name: network.into(),
                    exits: vec![exit],
                }),
            }
        }
        ensure!(
            networks.len() == 3,
            "{} has {} networks",
            path.display(),
            networks.len()
        );
        Ok(networks)
    }
}
