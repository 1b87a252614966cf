//! What the gateway measures of itself, beside what its node measures: OpenMetrics, under OpenTelemetry's names where it has them.

use crate::access::{Access, FailedTokens};
use crate::admission::Admission;
use crate::target::Target;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use karman_node::{Node, TaskDemand};
use karman_types::ErrorKind;
use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Seconds: from what a cached answer takes to what a call to another continent takes.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
];

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Labels {
    http_route: &'static str,
    http_response_status_code: u16,
}

/// Of a model or task that there is: whoever counts has seen to that, for callers may make up any name.
#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct OfModel {
    model: String,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct Outcome {
    model: String,
    /// `ok`, or the kind of the error.
    outcome: &'static str,
}

#[derive(Clone, Debug)]
struct Fresh;

impl MetricConstructor<Histogram> for Fresh {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// Models and tasks that are counted by their names, each in some twenty series; those that come after them are counted together.
const MOST_NAMED: usize = 256;
const OTHER: &str = "other";

/// What is measured.
pub(crate) struct Metrics {
    durations: Family<Labels, Histogram, Fresh>,
    named: Mutex<HashSet<String>>,
    inferences: Family<Outcome, Counter>,
    inference_durations: Family<OfModel, Histogram, Fresh>,
    admission: Arc<Admission>,
    access: Arc<Access>,
    connections: Mutex<Option<Box<dyn Fn() -> usize + Send + Sync>>>,
}

impl Metrics {
    pub(crate) fn new(admission: Arc<Admission>, access: Arc<Access>) -> Self {
        Self {
            durations: Family::new_with_constructor(Fresh),
            named: Mutex::default(),
            inferences: Family::default(),
            inference_durations: Family::new_with_constructor(Fresh),
            admission,
            access,
            connections: Mutex::default(),
        }
    }

    /// Where the number of connections comes from.
    pub(crate) fn count_connections(&self, count: impl Fn() -> usize + Send + Sync + 'static) {
        *self.connections.lock() = Some(Box::new(count));
    }

    /// Counts a request.
    pub(crate) fn answered(&self, target: Target, status: StatusCode, took: Duration) {
        let labels = Labels {
            http_route: target.name(),
            http_response_status_code: status.as_u16(),
        };
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Counts an answer of a model or task.
    pub(crate) fn inferred(&self, model: &str, took: Duration) {
        let model = self.named(model);
        let labels = Outcome {
            model: model.clone(),
            outcome: "ok",
        };
        self.inferences.get_or_create(&labels).inc();
        let durations = self.inference_durations.get_or_create(&OfModel { model });
        durations.observe(took.as_secs_f64());
    }

    /// Counts a request that a model or task did not answer. There has to be one of this name.
    pub(crate) fn refused_to_infer(&self, model: &str, kind: ErrorKind) {
        let labels = Outcome {
            model: self.named(model),
            outcome: kind.as_str(),
        };
        self.inferences.get_or_create(&labels).inc();
    }

    /// Under which name it is counted.
    fn named(&self, model: &str) -> String {
        let mut named = self.named.lock();
        if !named.contains(model) {
            if named.len() >= MOST_NAMED {
                return OTHER.to_owned();
            }
            named.insert(model.to_owned());
        }
        model.to_owned()
    }

    /// Whether a model or task of this name has answered.
    pub(crate) fn has_inferred(&self, model: &str) -> bool {
        let model = model.to_owned();
        self.inference_durations.get(&OfModel { model }).is_some()
    }

    /// What the gateway has on its hands.
    pub(crate) fn load(&self) -> Load {
        let (running, waiting, bodies) = self.admission.load();
        let FailedTokens { judged, kept_out } = self.access.failed();
        Load {
            running,
            waiting,
            beside: self.admission.beside(),
            connections: self.connections.lock().as_ref().map_or(0, |count| count()),
            bodies,
            failed_tokens: judged,
            tokens_kept_out: kept_out,
        }
    }

    /// Everything as text.
    pub(crate) fn show(self: &Arc<Self>, node: &Node) -> Response {
        let mut registry = Registry::default();
        registry.register_with_unit(
            "http_server_request_duration",
            "Time from a request to the head of its response",
            Unit::Seconds,
            self.durations.clone(),
        );
        registry.register(
            "karman_inference_requests",
            "Requests of the inference protocol by model or task, and what came of them",
            self.inferences.clone(),
        );
        registry.register_with_unit(
            "karman_inference_request_duration",
            "Time of those that were answered",
            Unit::Seconds,
            self.inference_durations.clone(),
        );
        registry.register_collector(Box::new(Loads(self.clone())));
        registry.register_collector(Box::new(Demands(node.demand())));
        node.register_metrics(&mut registry);
        let mut body = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut body, &registry);
        let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
        ([(header::CONTENT_TYPE, kind)], body).into_response()
    }
}

/// What the gateway has on its hands.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Load {
    running: usize,
    waiting: usize,
    /// Requests beside those that run: that HTTP plugins answer, that wait for an end, or ask how something is.
    beside: usize,
    connections: usize,
    /// Bytes of bodies.
    bodies: u64,
    /// Tokens that did not hold, since it began; and those that nobody looked at, for too many had come from there.
    failed_tokens: u64,
    tokens_kept_out: u64,
}

/// What an autoscaler goes by.
#[derive(Debug)]
struct Demands(Vec<TaskDemand>);

impl Collector for Demands {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Says = fn(&TaskDemand) -> u32;
        let gauges: [(&str, &str, Says); 2] = [
            (
                "karman_task_desired_replicas",
                "Nodes that should offer a task, by its calls that go to other nodes",
                |demand| demand.wanted,
            ),
            (
                "karman_task_replicas",
                "Nodes in reach that offered a task when it was last called",
                |demand| demand.nodes,
            ),
        ];
        for (name, help, says) in gauges {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for demand in &self.0 {
                let labels = [("task", demand.task.as_str())];
                ConstGauge::new(i64::from(says(demand))).encode(family.encode_family(&labels)?)?;
            }
        }
        let (name, help) = (
            "karman_task_calls_per_second",
            "Calls of a task that go to other nodes, smoothed",
        );
        let mut rates = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for demand in &self.0 {
            let labels = [("task", demand.task.as_str())];
            ConstGauge::new(demand.rate).encode(rates.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

struct Loads(Arc<Metrics>);

impl fmt::Debug for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loads")
    }
}

impl Collector for Loads {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let load = self.0.load();
        for (name, help, unit, value) in [
            (
                "karman_gateway_connections",
                "Connections",
                None,
                load.connections as i64,
            ),
            (
                "karman_gateway_running",
                "Requests that run",
                None,
                load.running as i64,
            ),
            (
                "karman_gateway_waiting",
                "Requests that wait for their turn",
                None,
                load.waiting as i64,
            ),
            (
                "karman_gateway_beside",
                "Requests beside those that run: which plugins answer, which wait for an end, or ask how something is",
                None,
                load.beside as i64,
            ),
            (
                "karman_gateway_bodies",
                "Bodies of requests that are held",
                Some(&Unit::Bytes),
                load.bodies as i64,
            ),
        ] {
            let descriptor = encoder.encode_descriptor(name, help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(descriptor)?;
        }
        let (name, help) = ("karman_gateway_failed_tokens", "Tokens that did not hold");
        let mut tokens = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (outcome, count) in [
            ("refused", load.failed_tokens),
            ("not_looked_at", load.tokens_kept_out),
        ] {
            let labels = [("outcome", outcome)];
            ConstCounter::new(count).encode(tokens.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{CallerLimits, Revoked};
    use crate::config::GatewayLimits;

    #[test]
    fn models_beyond_so_many_are_counted_together() {
        let folder = tempfile::tempdir().unwrap();
        let revoked = Revoked::of(folder.path());
        let access = Access::new(Vec::new(), Vec::new(), CallerLimits::default(), revoked, 1);
        let metrics = Metrics::new(Admission::new(&GatewayLimits::default()), Arc::new(access));
        for n in 0..MOST_NAMED + 2 {
            metrics.inferred(&format!("model-{n}"), Duration::ZERO);
        }
        let first_beyond = format!("model-{MOST_NAMED}");
        assert!(metrics.has_inferred("model-0") && !metrics.has_inferred(&first_beyond));
        let others = OfModel { model: OTHER.into() };
        assert!(metrics.inference_durations.get(&others).is_some());
    }
}
