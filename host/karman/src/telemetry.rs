//! Traces and logs to a collector: OTLP over HTTP with protobuf, where the operator names one.
//!
//! What is sent, how often and of how many traces is set by the standard variables (`OTEL_TRACES_SAMPLER`, `OTEL_BSP_SCHEDULE_DELAY`,
//! `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_RESOURCE_ATTRIBUTES`, …). Spans and events wait in bounded queues, and are dropped where
//! the collector does not keep up: a node does not stand still because nobody takes what it tells.

mod watched;

use crate::app::App;
use karman_mesh::trace::SPANS;
use karman_types::TaskError;
use opentelemetry::trace::TracerProvider;
use opentelemetry::{Key, KeyValue};
use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_otlp::{LogExporter, Protocol, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::SdkLoggerProvider;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::SdkTracerProvider;
use reqwest::blocking::Client;
use reqwest::redirect::Policy;
use std::fmt::Display;
use std::time::Duration;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::registry::LookupSpan;
use watched::Watched;

/// How long the collector may take to take something.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long the end of the node waits until what is left is sent.
const LAST: Duration = Duration::from_secs(3);

/// What goes to the collector. What is left goes there when this is dropped.
pub(crate) struct Telemetry {
    traces: SdkTracerProvider,
    logs: SdkLoggerProvider,
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        // A collector that is gone gets nothing, and there is nobody left to tell.
        let _ = self.traces.shutdown_with_timeout(LAST);
        let _ = self.logs.shutdown_with_timeout(LAST);
    }
}

impl Telemetry {
    /// To the collector that the configuration names, or the environment; nothing where neither does.
    ///
    /// # Errors
    /// `invalid` for a collector that is none, and for a configuration that does not read.
    pub(crate) fn of(app: &App) -> Result<Option<Self>, TaskError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let configured = app.config()?.telemetry.otlp;
        let Some(endpoint) = configured.or_else(|| variable("OTEL_EXPORTER_OTLP_ENDPOINT")) else {
            return Ok(None);
        };
        if variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true")) {
            return Ok(None);
        }
        let keys = app.keys()?;
        let mut resource = Resource::builder().with_attributes([
            KeyValue::new("service.instance.id", keys.node().id().to_string()),
            KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        ]);
        if is_unnamed(&Resource::builder().build()) {
            resource = resource.with_service_name("karman");
        }
        Self::to(endpoint.trim_end_matches('/'), resource.build()).map(Some)
    }

    fn to(endpoint: &str, resource: Resource) -> Result<Self, TaskError> {
        let client = client(endpoint)?;
        let spans = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(PATIENCE)
            .with_endpoint(format!("{endpoint}/v1/traces"))
            .build()
            .map_err(|error| wrong(endpoint, &error))?;
        let events = LogExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_protocol(Protocol::HttpBinary)
            .with_timeout(PATIENCE)
            .with_endpoint(format!("{endpoint}/v1/logs"))
            .build()
            .map_err(|error| wrong(endpoint, &error))?;
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        Ok(Self {
            traces: SdkTracerProvider::builder()
                .with_batch_exporter(Watched::new("spans", spans))
                .with_resource(resource.clone())
                .build(),
            logs: SdkLoggerProvider::builder()
                .with_batch_exporter(Watched::new("events", events))
                .with_resource(resource)
                .build(),
        })
    }

    /// Sends spans.
    pub(crate) fn spans<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        let layer = tracing_opentelemetry::layer()
            .with_tracer(self.traces.tracer("karman"))
            .with_location(false)
            .with_threads(false)
            .with_target(false)
            .with_tracked_inactivity(false);
        let ours = Targets::new().with_target(SPANS, LevelFilter::INFO);
        layer.with_filter(ours).boxed()
    }

    /// Sends events that pass this filter, each with the span in which it happened.
    pub(crate) fn events<S>(&self, which: Targets) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: tracing::Subscriber + for<'span> LookupSpan<'span> + Send + Sync,
    {
        // What sends them says things, too; and of the access log they get what is meant for them.
        let silent = [
            "access",
            "hyper",
            "hyper_util",
            "reqwest",
            "rustls",
            "opentelemetry",
        ];
        let which = silent
            .into_iter()
            .fold(which, |which, target| which.with_target(target, LevelFilter::OFF))
            .with_target(SPANS, LevelFilter::INFO);
        OpenTelemetryTracingBridge::new(&self.logs)
            .with_filter(which)
            .boxed()
    }
}

/// Whether none of the variables that may name the service does.
fn is_unnamed(found: &Resource) -> bool {
    let name = found.get(&Key::from_static_str("service.name"));
    name.is_none_or(|name| name.as_str().starts_with("unknown_service"))
}

fn client(endpoint: &str) -> Result<Client, TaskError> {
    let uri: http::Uri = endpoint.parse().map_err(|error| wrong(endpoint, &error))?;
    let builder = Client::builder().timeout(PATIENCE).redirect(Policy::none());
    let builder = match uri.scheme_str() {
        // Nothing is to be trusted where nothing is encrypted: a machine without certificates may send all the same.
        Some("http") => builder.tls_certs_only(Vec::new()),
        Some("https") => builder,
        _ => return Err(wrong(endpoint, &"it begins with neither http:// nor https://")),
    };
    // Two libraries bring cryptography, so one of them has to be named; another command of this process may have.
    let _ = rustls::crypto::ring::default_provider().install_default();
    builder.build().map_err(|error| wrong(endpoint, &error))
}

fn wrong(endpoint: &str, why: &dyn Display) -> TaskError {
    TaskError::invalid(format!("`{endpoint}` is no collector: {why}"))
        .with_field("telemetry.otlp")
        .with_hint("a collector that takes OTLP over HTTP has an address such as http://127.0.0.1:4318")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_has_a_name_keeps_it() {
        let named = |name: &'static str| Resource::builder_empty().with_service_name(name).build();
        assert!(is_unnamed(&named("unknown_service:karman")));
        assert!(is_unnamed(&Resource::builder_empty().build()));
        assert!(!is_unnamed(&named("flood-watch")));
    }

    #[test]
    fn what_is_no_collector_is_named() {
        for wrong in [
            "collector:4318",
            "127.0.0.1:4318",
            "ftp://collector",
            "http://",
            "",
        ] {
            let error = client(wrong).unwrap_err();
            assert_eq!(error.field.as_deref(), Some("telemetry.otlp"), "{error}");
        }
        assert!(client("http://127.0.0.1:4318").is_ok());
    }
}
