use serde::{Deserialize, Serialize};

/// Where traces and logs go, besides standard error.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct TelemetryConfig {
    /// A collector that takes OTLP over HTTP with protobuf, without the path of a signal: `http://127.0.0.1:4318`. Default: what
    /// `OTEL_EXPORTER_OTLP_ENDPOINT` names; nothing is sent where neither does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub otlp: Option<String>,
}
