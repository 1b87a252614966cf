//! `/metrics` in the OpenMetrics text format, under the names of OpenTelemetry's FaaS conventions.

use crate::node::Node;
use crate::services::BatchCounts;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use karman_engine::Plugin;
use karman_mesh::{Mesh, Path};
use karman_types::{ErrorKind, NodeId};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::registry::{Registry, Unit};
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// Nodes that have what was sent to them counted in a series each.
const MOST_LINKS: usize = 32;

pub(crate) async fn show(State(node): State<Node>) -> Response {
    let mut registry = Registry::default();
    node.register_metrics(&mut registry);
    let mut body = String::new();
    // Writing to a string cannot fail.
    let _ = text::encode(&mut body, &registry);
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    ([(header::CONTENT_TYPE, kind)], body).into_response()
}

impl Node {
    /// Adds what there is to measure of its plugins, its models and its mesh, as it is now.
    pub fn register_metrics(&self, registry: &mut Registry) {
        let shut: Gauge = Gauge::default();
        shut.set(self.trouble().is_some().into());
        let help = "Whether the disk does not take what is to be kept";
        registry.register("karman_store_shut", help, shut);
        registry.register_collector(Box::new(Plugins(self.plugins().all())));
        let batches = self.runtime().models().batch_counts();
        if !batches.is_empty() {
            registry.register_collector(Box::new(Batches(batches)));
        }
        if let Some(mesh) = self.mesh() {
            registry.register_collector(Box::new(Network(mesh.clone())));
        }
    }
}

struct Network(Mesh);

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Network")
    }
}

impl Collector for Network {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge};
        let Self(mesh) = self;
        let help = "Nodes that this one is connected with, by the path to them";
        let mut peers = encoder.encode_descriptor("karman_mesh_peers", help, None, Gauge)?;
        let known = mesh.peers();
        for path in [Path::Direct, Path::Tcp, Path::Relayed] {
            let here = known.iter().filter(|peer| peer.path == Some(path)).count();
            let labels = [("path", path.to_string())];
            ConstGauge::new(here as i64).encode(peers.encode_family(&labels)?)?;
        }
        let help = "Connections and calls of other nodes that were refused";
        let mut refusals = encoder.encode_descriptor("karman_mesh_refusals", help, None, Counter)?;
        for (reason, count) in mesh.standing().refusals() {
            let labels = [("reason", reason)];
            ConstCounter::new(count).encode(refusals.encode_family(&labels)?)?;
        }
        let help = "Bytes on the streams of the swarm, direct calls left out";
        let unit = Some(&Unit::Bytes);
        let mut bytes = encoder.encode_descriptor("karman_mesh_traffic", help, unit, Counter)?;
        for traffic in mesh.traffic() {
            for (direction, count) in [("sent", traffic.sent), ("received", traffic.received)] {
                let labels = [("protocol", traffic.protocol.as_str()), ("direction", direction)];
                ConstCounter::new(count).encode(bytes.encode_family(&labels)?)?;
            }
        }
        let help = "Bytes sent to each of the nodes that most was sent to, whatever for";
        let mut links = encoder.encode_descriptor("karman_mesh_link_sent", help, unit, Counter)?;
        let met = known.into_iter();
        let sent = met.filter_map(|peer| Some((peer.member?.node, peer.sent)));
        for (node, sent) in most_sent(sent.collect()) {
            let labels = [("node", node.to_string())];
            ConstCounter::new(sent).encode(links.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Those to which most was sent: each node is a series of its own, and a mesh may have thousands. There is no sum of the others: it would
/// fall when one of them takes a place among these, and a counter may not.
fn most_sent(mut nodes: Vec<(NodeId, u64)>) -> Vec<(NodeId, u64)> {
    nodes.sort_by_key(|(node, sent)| (Reverse(*sent), *node));
    nodes.truncate(MOST_LINKS);
    nodes
}

/// Models whose requests are run together.
#[derive(Debug)]
struct Batches(Vec<BatchCounts>);

impl Collector for Batches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        type Of = fn(&BatchCounts) -> u64;
        let families: [(&str, &str, Of); 4] = [
            (
                "karman_model_batches",
                "Runs of a model for several requests at once",
                |counts| counts.batches,
            ),
            (
                "karman_model_batched",
                "Requests that such runs answered",
                |counts| counts.requests,
            ),
            (
                "karman_model_batches_apart",
                "Runs for several requests that failed: each of these was run by itself",
                |counts| counts.apart,
            ),
            (
                "karman_model_early_exits",
                "Requests that an early exit of a model answered",
                |counts| counts.early,
            ),
        ];
        for (name, help, of) in families {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for counts in &self.0 {
                let labels = [("model", counts.model.as_str())];
                ConstCounter::new(of(counts)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Plugins(Vec<Arc<Plugin>>);

impl Plugins {
    fn family<M: EncodeMetric>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        (name, help, unit, kind): (&str, &str, Option<&Unit>, MetricType),
        metric: impl Fn(&Plugin) -> M,
    ) -> fmt::Result {
        let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
        for plugin in &self.0 {
            let labels = [("faas_name", plugin.manifest().name.as_str())];
            metric(plugin).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

impl Collector for Plugins {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        use MetricType::{Counter, Gauge, Histogram};
        let e = &mut encoder;
        self.family(
            e,
            ("faas_invocations", "Calls that ended", None, Counter),
            |plugin| ConstCounter::new(plugin.stats().calls()),
        )?;
        self.family(
            e,
            ("faas_coldstarts", "Instances made", None, Counter),
            |plugin| ConstCounter::new(plugin.stats().cold_starts()),
        )?;
        self.family(
            e,
            ("karman_plugin_running", "Calls under way", None, Gauge),
            |plugin| ConstGauge::new(plugin.stats().running() as i64),
        )?;
        self.family(e, ("karman_plugin_fuel", "Fuel used", None, Counter), |plugin| {
            ConstCounter::new(plugin.stats().fuel())
        })?;
        self.family(
            e,
            (
                "faas_mem_usage",
                "Most memory of one instance",
                Some(&Unit::Bytes),
                Gauge,
            ),
            |plugin| ConstGauge::new(plugin.stats().memory_peak() as i64),
        )?;
        self.family(
            e,
            (
                "faas_invoke_duration",
                "Time of a call",
                Some(&Unit::Seconds),
                Histogram,
            ),
            |plugin| plugin.stats().latency().clone(),
        )?;
        let mut errors =
            e.encode_descriptor("faas_errors", "Calls that ended with an error", None, Counter)?;
        for plugin in &self.0 {
            for kind in ErrorKind::ALL {
                let labels = [
                    ("faas_name", plugin.manifest().name.as_str()),
                    ("error_type", kind.as_str()),
                ];
                ConstCounter::new(plugin.stats().errors(kind)).encode(errors.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_nodes_to_which_most_was_sent_have_a_series() {
        let node = |n: u64| NodeId::of_key(&n.to_le_bytes());
        let sent = (0..100).map(|n| (node(n), n)).collect();
        let most: Vec<u64> = most_sent(sent).into_iter().map(|(_, sent)| sent).collect();
        assert_eq!(most, (68..100).rev().collect::<Vec<_>>());
    }
}
