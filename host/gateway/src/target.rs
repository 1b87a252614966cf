//! What a request is for: how it is answered, counted and admitted.

use crate::refusal::Speaks;
use http::Method;

/// The service of gRPC, as its path names it.
pub(crate) const GRPC_SERVICE: &str = "/inference.GRPCInferenceService/";
/// The service that probes of gRPC ask.
pub(crate) const GRPC_HEALTH: &str = "/grpc.health.v1.Health/";

/// What a request is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) enum Target {
    /// Whether the gateway runs and answers.
    Health,
    /// The same, as probes of gRPC ask for it.
    GrpcHealth,
    /// What it measures.
    Metrics,
    /// The description of these routes.
    Document,
    /// The inference protocol over REST: everything but a run.
    Models,
    /// A run over REST.
    Infer,
    /// The inference protocol over gRPC.
    Grpc,
    /// A run over gRPC.
    GrpcInfer,
    /// A task, direct or to be accepted.
    Task,
    /// An accepted task: how far it is, its result.
    Accepted,
    /// A workflow.
    Flow,
    /// What happens to a workflow, as it happens.
    FlowEvents,
    /// An HTTP plugin.
    Plugin,
    /// How the mesh is run.
    Admin,
    /// Pages for people.
    Dashboard,
    /// Nothing that there is.
    Unknown,
}

impl Target {
    /// What is asked for at this path.
    pub(crate) fn of(path: &str) -> Self {
        let below = |prefix: &str| {
            path.strip_prefix(prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        match path {
            "/healthz" | "/readyz" => Self::Health,
            "/metrics" => Self::Metrics,
            "/openapi.json" => Self::Document,
            _ if path.strip_prefix(GRPC_SERVICE) == Some("ModelInfer") => Self::GrpcInfer,
            _ if path.starts_with(GRPC_SERVICE) => Self::Grpc,
            _ if path.starts_with(GRPC_HEALTH) => Self::GrpcHealth,
            _ if below("/v2") && path.ends_with("/infer") => Self::Infer,
            _ if below("/v2") => Self::Models,
            _ if below("/tasks") => Self::Task,
            _ if below("/accepted") => Self::Accepted,
            _ if below("/flows") && path.ends_with("/events") => Self::FlowEvents,
            _ if below("/flows") => Self::Flow,
            _ if below("/http") => Self::Plugin,
            _ if below("/admin") => Self::Admin,
            "/" => Self::Dashboard,
            _ if below("/dashboard") => Self::Dashboard,
            _ => Self::Unknown,
        }
    }

    /// Its name in metrics.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::GrpcHealth => "grpc-health",
            Self::Metrics => "metrics",
            Self::Document => "openapi",
            Self::Models => "models",
            Self::Infer => "infer",
            Self::Grpc => "grpc",
            Self::GrpcInfer => "grpc-infer",
            Self::Task => "task",
            Self::Accepted => "accepted",
            Self::Flow => "flow",
            Self::FlowEvents => "flow-events",
            Self::Plugin => "plugin",
            Self::Admin => "admin",
            Self::Dashboard => "dashboard",
            Self::Unknown => "unknown",
        }
    }

    /// Whether those ask for it who watch over the gateway: they have no token, and come when it is full, too.
    pub(crate) const fn is_probe(self) -> bool {
        matches!(self, Self::Health | Self::GrpcHealth)
    }

    /// Whether it is work, which takes a place among what runs at once. Who waits for a workflow to end takes none from what it
    /// waits for.
    pub(crate) fn is_work(self, method: &Method) -> bool {
        match self {
            Self::Infer | Self::GrpcInfer | Self::Task => true,
            Self::Flow => method == Method::POST,
            _ => false,
        }
    }

    /// Whether it takes a place beside what runs: who waits for an end, and plugins, which have limits of their own.
    pub(crate) fn is_beside(self, method: &Method) -> bool {
        match self {
            Self::Accepted | Self::FlowEvents | Self::Plugin => true,
            Self::Flow => method != Method::POST,
            _ => false,
        }
    }

    /// The most bytes of a body, where there is nothing in one that would be long, and no right is asked for.
    pub(crate) const fn most_body(self) -> Option<u64> {
        match self {
            Self::Document | Self::Models | Self::Grpc | Self::Dashboard => Some(64 << 10),
            _ => None,
        }
    }

    /// How refusals are said.
    pub(crate) const fn speaks(self) -> Speaks {
        match self {
            Self::Models | Self::Infer => Speaks::Inference,
            Self::Grpc | Self::GrpcInfer | Self::GrpcHealth => Speaks::Grpc,
            _ => Speaks::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        for (path, target) in [
            ("/v2", Target::Models),
            ("/v2x", Target::Unknown),
            ("/v2/models/a/infer", Target::Infer),
            ("/v2/models/a/versions/1/infer", Target::Infer),
            ("/v2/models/infer/ready", Target::Models),
            ("/inference.GRPCInferenceService/ModelInfer", Target::GrpcInfer),
            ("/inference.GRPCInferenceService/ServerLive", Target::Grpc),
            ("/inference.GRPCInferenceService/Other/ModelInfer", Target::Grpc),
            ("/grpc.health.v1.Health/Check", Target::GrpcHealth),
            ("/tasks/a/b", Target::Task),
            ("/flows", Target::Flow),
            ("/flows/a/why", Target::Flow),
            ("/flows/a/events", Target::FlowEvents),
            ("/http/a", Target::Plugin),
            ("/admin/nodes", Target::Admin),
            ("/", Target::Dashboard),
            ("/administrator", Target::Unknown),
        ] {
            assert_eq!(Target::of(path), target, "{path}");
        }
    }

    #[test]
    fn waiting_for_a_workflow_is_no_work() {
        assert!(Target::Flow.is_work(&Method::POST) && Target::Task.is_work(&Method::POST));
        assert!(!Target::Flow.is_work(&Method::GET) && !Target::Accepted.is_work(&Method::GET));
        for target in [Target::Flow, Target::FlowEvents, Target::Accepted, Target::Plugin] {
            assert!(target.is_beside(&Method::GET), "{target:?}");
        }
        assert!(!Target::Flow.is_beside(&Method::POST) && !Target::Health.is_beside(&Method::GET));
    }
}
