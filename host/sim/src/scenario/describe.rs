use super::ScenarioError;
use crate::{Instant, Power, Quality, Shape};
use karman_sched::serve::{Deferred, Edf, EdfFinal, EdgeServing, LongestQueue, RefuseLate, Serve};
use karman_space::{Link, Rate};
use karman_types::{ByteSize, Slo, Tier, from_toml, serde_duration};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A part of the continuum, what is asked of it, and for how long.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Scenario {
    /// All chance comes from it. Default 1.
    #[serde(default = "one")]
    pub seed: u64,
    /// How long it runs, in virtual time.
    #[serde(with = "serde_duration")]
    pub length: Duration,
    /// Requests that come earlier do not count, nor does energy. Default 0.
    #[serde(default, with = "serde_duration")]
    pub warm_up: Duration,
    /// Requests that come in so long before the end do not count, so that those that count can end. Default 0.
    #[serde(default, with = "serde_duration")]
    pub cool_down: Duration,
    /// Whether every answer is kept, as a row. Default false.
    #[serde(default)]
    pub keep_answers: bool,
    /// What routes know of nodes, and how often series of queues are kept.
    #[serde(default)]
    pub telemetry: TelemetryEntry,
    /// What is served.
    #[serde(rename = "model")]
    pub models: Vec<ModelEntry>,
    /// Groups of equal nodes.
    #[serde(rename = "node")]
    pub nodes: Vec<NodeGroup>,
    /// Links that exist in contacts only.
    #[serde(default, rename = "contact")]
    pub contacts: Vec<ContactEntry>,
    /// What is asked.
    #[serde(rename = "workload")]
    pub workloads: Vec<Workload>,
}

/// Periods after which a reading that no newer one has followed says nothing any more.
const FRESH: u32 = 3;

/// What is known elsewhere of a node, and how well.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TelemetryEntry {
    /// Each node tells its load so often. Default 1 s.
    #[serde(with = "serde_duration")]
    pub period: Duration,
    /// How long that is on its way. Default 0.
    #[serde(with = "serde_duration")]
    pub lag: Duration,
    /// Its standard deviation, as a share of the value. Default 0.
    pub noise: f64,
    /// The share that is lost. Default 0.
    pub dropped: f64,
}

impl Default for TelemetryEntry {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(1),
            lag: Duration::ZERO,
            noise: 0.0,
            dropped: 0.0,
        }
    }
}

impl TelemetryEntry {
    pub(super) const fn quality(&self) -> Quality {
        Quality {
            lag: self.lag,
            noise: self.noise,
            dropped: self.dropped,
        }
    }

    /// How old a reading may be by which requests are routed.
    pub(super) const fn fresh(&self) -> Duration {
        self.lag.saturating_add(self.period.saturating_mul(FRESH))
    }
}

/// A model: its exits, and how long they take on a node of speed 1.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ModelEntry {
    /// Its name.
    pub name: String,
    /// By when an answer is due, after its request.
    #[serde(with = "serde_duration")]
    pub slo: Duration,
    /// How many requests a batch may have. Default 1.
    #[serde(default = "one_usize")]
    pub batch: usize,
    /// Money for one request that it serves. Default 0.
    #[serde(default)]
    pub cost: f64,
    /// What it takes of the memory of every node that may serve it. Default 0.
    #[serde(default)]
    pub memory: ByteSize,
    /// How the time of a batch varies. Policies plan with the 95th percentile. Default constant.
    #[serde(default = "constant")]
    pub variation: Shape,
    /// From shallow to deep.
    #[serde(rename = "exit")]
    pub exits: Vec<ExitEntry>,
}

/// An exit of a model.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ExitEntry {
    /// The share of its answers that are right. Default 1.
    #[serde(default = "one_f64")]
    pub accuracy: f64,
    /// How long a batch of one takes, on average.
    #[serde(with = "serde_duration")]
    pub time: Duration,
    /// How much longer it takes with each further request. Default 0.
    #[serde(default, with = "serde_duration")]
    pub each_more: Duration,
}

/// Nodes that are alike; the first is called `NAME-0`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct NodeGroup {
    /// Its name.
    pub name: String,
    /// How many. Default 1.
    #[serde(default = "one_u32")]
    pub count: u32,
    /// Where they stand. Default edge.
    #[serde(default)]
    pub tier: Tier,
    /// Batches that one runs at a time. Default 1.
    #[serde(default = "one_u32")]
    pub cores: u32,
    /// Memory of one; it holds every model that it may be asked for. Default 1 GiB.
    #[serde(default = "gib")]
    pub memory: ByteSize,
    /// How fast a core is. Default 1.
    #[serde(default = "one_f64")]
    pub speed: f64,
    /// The share of it that others take without its policy knowing. Default 0.
    #[serde(default)]
    pub foreign: f64,
    /// What one draws while it does nothing. Default 0.
    #[serde(default)]
    pub idle_watts: f64,
    /// What one draws while all its cores work. Default 0.
    #[serde(default)]
    pub busy_watts: f64,
    /// What one draws on top while it sends. Default 0.
    #[serde(default)]
    pub transmit_watts: f64,
    /// What runs next on it. Default edgeserving.
    #[serde(default)]
    pub serve: ServePolicy,
    /// Whether requests are refused that cannot be answered in time any more. Default false.
    #[serde(default)]
    pub refuse_late: bool,
    /// How often it fails. Default never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failures: Option<FailureEntry>,
    /// The links that leave it, as in a link profile; where none leads, what is sent is there at once.
    #[serde(default, rename = "link", skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<Link>,
}

impl NodeGroup {
    pub(super) const fn power(&self) -> Power {
        Power {
            idle: self.idle_watts,
            busy: self.busy_watts,
            transmit: self.transmit_watts,
        }
    }
}

/// A node fails and comes back; both times are exponential. What waits or runs there then is lost, and what comes while it is
/// gone: the simulator does not retry.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct FailureEntry {
    /// How long it works on average.
    #[serde(with = "serde_duration")]
    pub mean_up: Duration,
    /// How long it is gone on average.
    #[serde(with = "serde_duration")]
    pub mean_down: Duration,
}

/// Which policy of `karman_sched::serve` a node runs.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServePolicy {
    /// [`EdgeServing`].
    #[default]
    Edgeserving,
    /// [`EdgeServing::published`].
    EdgeservingPublished,
    /// [`Edf`].
    Edf,
    /// [`EdfFinal`].
    EdfFinal,
    /// [`LongestQueue`].
    LongestQueue,
    /// [`Deferred`], without early exits.
    Deferred,
    /// [`Deferred`], with early exits.
    DeferredExits,
}

impl ServePolicy {
    /// A policy in its first state.
    pub fn policy(self, refuse_late: bool) -> Box<dyn Serve> {
        fn boxed(policy: impl Serve + 'static, refuse_late: bool) -> Box<dyn Serve> {
            match refuse_late {
                true => Box::new(RefuseLate(policy)),
                false => Box::new(policy),
            }
        }
        let deferred = |exits| Deferred { exits, margin: 0.0 };
        match self {
            Self::Edgeserving => boxed(EdgeServing::default(), refuse_late),
            Self::EdgeservingPublished => boxed(EdgeServing::published(), refuse_late),
            Self::Edf => boxed(Edf, refuse_late),
            Self::EdfFinal => boxed(EdfFinal, refuse_late),
            Self::LongestQueue => boxed(LongestQueue, refuse_late),
            Self::Deferred => boxed(deferred(false), refuse_late),
            Self::DeferredExits => boxed(deferred(true), refuse_late),
        }
    }
}

/// A window of time in which a link exists. Between two nodes that have contacts there is no other link.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ContactEntry {
    /// The node that sends, as `edge-0`.
    pub from: String,
    /// The node that receives.
    pub to: String,
    /// Since the start of the run.
    #[serde(with = "serde_duration")]
    pub start: Duration,
    /// Since the start of the run.
    #[serde(with = "serde_duration")]
    pub end: Duration,
    /// How fast it sends.
    pub rate: Rate,
    /// How long a bit is on its way. Default 0.
    #[serde(default, with = "serde_duration")]
    pub delay: Duration,
    /// Whether the other one sends as well. Default false.
    #[serde(default)]
    pub both_ways: bool,
}

/// Requests of one kind.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Workload {
    /// Its name.
    pub name: String,
    /// Which model it asks.
    pub model: String,
    /// Models that may serve instead: who does is chosen for each request. Default none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<String>,
    /// Who chooses: a [built-in policy](karman_sched::select::BuiltIn), or one that a plugin brings. Default `pixie`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<String>,
    /// Within what it is chosen. Default: no limits over 1,000 requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slo: Option<Slo>,
    /// The group at each node of which it comes.
    pub at: String,
    /// How many come each second at each of these nodes.
    pub rate: f64,
    /// Other rates from later on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<RateStep>,
    /// How the gaps between them vary. Default exponential.
    #[serde(default)]
    pub gaps: Shape,
    /// How the node is found that serves a request. Default here.
    #[serde(default)]
    pub route: Route,
    /// The groups whose nodes may serve it. Default: `at`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub to: Vec<String>,
    /// The size of a request. Default 0.
    #[serde(default)]
    pub request: ByteSize,
    /// The size of an answer. Default 0.
    #[serde(default)]
    pub answer: ByteSize,
}

/// Another rate from some moment on.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RateStep {
    /// Since the start of the run.
    #[serde(with = "serde_duration")]
    pub at: Duration,
    /// How many come each second at each node.
    pub rate: f64,
}

/// How the node is found that serves a request.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Route {
    /// Where it comes.
    #[default]
    Here,
    /// Any, each as likely as another.
    Random,
    /// Each in its turn.
    RoundRobin,
    /// The one that has least to do for each core, as far as telemetry tells. One that has told nothing for three periods may be down: it
    /// comes after the others. Of several the first after the one that was chosen last.
    LeastLoaded,
}

impl Scenario {
    /// The most bytes of a text that is read.
    pub const MAX_TEXT: usize = 16 << 20;

    /// Reads a scenario and checks that it holds together.
    ///
    /// # Errors
    /// [`ScenarioError::Text`] with the line for what cannot be read, and the nearest known key for an unknown one; the others
    /// for what does not fit.
    pub fn from_toml(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > Self::MAX_TEXT {
            return Err(ScenarioError::TooLong { bytes: text.len() });
        }
        let scenario: Self = from_toml(text)?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Writes it, times to the microsecond.
    ///
    /// # Errors
    /// [`ScenarioError::Unwritable`]: TOML has no numbers above 2^63.
    pub fn to_toml(&self) -> Result<String, ScenarioError> {
        toml::to_string(self).map_err(|error| ScenarioError::Unwritable(error.to_string()))
    }

    pub(super) fn counts(&self, came: Instant) -> bool {
        let came = came.since_start();
        came >= self.warm_up && came < self.length.saturating_sub(self.cool_down)
    }
}

const fn one() -> u64 {
    1
}

const fn one_u32() -> u32 {
    1
}

const fn one_usize() -> usize {
    1
}

const fn one_f64() -> f64 {
    1.0
}

const fn gib() -> ByteSize {
    ByteSize::gib(1)
}

const fn constant() -> Shape {
    Shape::Constant
}
