//! One request from its head to the head of its response: who calls, whether there is room, who answers.

use crate::access::{Access, Caller, Place, Right};
use crate::admission::{Admission, Admitted};
use crate::body;
use crate::config::{GatewayConfig, GatewayLimits};
use crate::connections::{Busy, Reused, Sending};
use crate::cors::Cors;
use crate::decisions::Decisions;
use crate::health;
use crate::hosts::Hosts;
use crate::inference::{Inference, Named, answer_grpc, must_be_method, run_rest};
use crate::line::{Line, REQUEST_ID};
use crate::metrics::Metrics;
use crate::proxies::{Peer, Proxies};
use crate::refusal::Refusal;
use crate::sites::{Asked, Led, Sites};
use crate::span;
use crate::target::Target;
use axum::Router;
use axum::body::Body;
use axum::response::Response;
use futures::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, header};
use hyper::body::{Body as _, Incoming};
use karman_mesh::membership::Pattern;
use karman_node::{FlowOrder, Node, must_name_one_host, set_apart};
use karman_types::{TaskError, format_duration};
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tower_service::Service;
use tracing::{Instrument, Span};

/// What is sent, with what the request holds until then.
pub(crate) type Answer = http::Response<Sending>;

/// Places that a request holds until its response is sent.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    /// Among those of its caller.
    _place: Option<Place>,
    /// Beside what runs.
    _beside: Option<OwnedSemaphorePermit>,
    /// Among what runs.
    _admitted: Option<Admitted>,
    /// Of its body, among those of all.
    _room: Option<OwnedSemaphorePermit>,
}

/// What requests are answered with.
pub(crate) struct Pipeline {
    pub(crate) node: Node,
    pub(crate) access: Arc<Access>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) limits: GatewayLimits,
    pub(crate) cors: Cors,
    pub(crate) hosts: Hosts,
    pub(crate) proxies: Proxies,
    pub(crate) sites: Sites,
    /// What browsers are told of TLS, where it is on.
    pub(crate) strict_transport: Option<HeaderValue>,
    pub(crate) decisions: Arc<Decisions>,
    pub(crate) inference: Inference,
    /// Everything that is a route.
    pub(crate) routes: Router,
}

impl Pipeline {
    pub(crate) fn new(node: Node, config: &GatewayConfig, access: Access) -> Self {
        let admission = Admission::new(&config.limits);
        let access = Arc::new(access);
        let metrics = Arc::new(Metrics::new(admission.clone(), access.clone()));
        let inference = Inference::new(
            node.clone(),
            config.limits.time.0,
            admission.clone(),
            metrics.clone(),
        );
        let decisions = Arc::new(Decisions::default());
        let routes = crate::routes::router(&node, &inference, &metrics, &decisions);
        Self {
            access,
            metrics,
            admission,
            limits: config.limits,
            cors: Cors::new(&config.cors),
            strict_transport: config.strict_transport(),
            hosts: Hosts::new(config, node.runtime().config().listen),
            proxies: Proxies::new(config.trusted_proxies.clone()),
            sites: Sites::new(config),
            decisions,
            inference,
            routes,
            node,
        }
    }

    /// Answers one request, as part of the trace that it comes from.
    pub(crate) fn answer(
        self: Arc<Self>,
        request: Request<Incoming>,
        busy: Busy,
        peer: SocketAddr,
    ) -> Reused {
        let asked = self.sites.asked(&request);
        let peer = self.proxies.peer(request.headers(), peer);
        let is_known = || self.access.is_known(request.headers(), peer.address);
        let span = span::of(&request, asked.target, is_known);
        let answered = self.answer_in(span.clone(), asked, request, busy, peer);
        Reused::new(answered.instrument(span))
    }

    async fn answer_in(
        self: Arc<Self>,
        span: Span,
        asked: Asked,
        request: Request<Incoming>,
        mut busy: Busy,
        peer: Peer,
    ) -> Answer {
        let target = asked.target;
        let line = Line::of(&request, &asked, peer);
        let origin = self.cors.origin(request.headers());
        let mut caller = None;
        let answered = match self.cors.preflight(&request, origin.as_ref()) {
            Some(response) => Ok((response, Taken::default())),
            None => {
                let is_forged = Cors::is_forged(&request, origin.as_ref());
                let attempt = self.attempt(asked, request, peer, is_forged, &mut busy, &mut caller);
                AssertUnwindSafe(attempt)
                    .catch_unwind()
                    .await
                    .unwrap_or_else(|_| Err(TaskError::internal("the request failed in the host").into()))
            }
        };
        let refused = |refusal: Refusal| (refusal.response(target.speaks()), Taken::default());
        let (mut response, taken) = answered.unwrap_or_else(refused);
        self.cors.allow(&mut response, origin);
        response.headers_mut().insert(REQUEST_ID, line.id.clone());
        if let Some(told) = &self.strict_transport {
            let headers = response.headers_mut();
            headers.insert(header::STRICT_TRANSPORT_SECURITY, told.clone());
        }
        let took = line.started.elapsed();
        self.metrics.answered(target, response.status(), took);
        self.decisions
            .keep(response.headers(), &line.id, SystemTime::now(), took);
        line.log(target, &response, caller.as_deref());
        let answer = response.map(|body| Sending::new(body, busy, taken));
        span::ends(&span, &answer);
        answer
    }

    async fn attempt(
        &self,
        Asked { target, led }: Asked,
        request: Request<Incoming>,
        peer: Peer,
        is_forged: bool,
        busy: &mut Busy,
        known: &mut Option<Arc<Caller>>,
    ) -> Result<(Response, Taken), Refusal> {
        if target.is_probe() {
            let answered = match target {
                Target::GrpcHealth => Box::pin(self.probed(request)).await?,
                _ => self.route(request.map(Body::new)).await,
            };
            return Ok((answered, Taken::default()));
        }
        must_name_one_host(&request)?;
        let caller = self.access.caller(request.headers(), peer.address)?;
        *known = Some(caller.clone());
        if caller.is_anyone() {
            self.hosts.must_know(&request)?;
            if is_forged {
                return Err(forged());
            }
        }
        judge(target, led.as_ref(), &request, &caller)?;
        let place = caller.clone().enter(self.access.now())?;
        if let Some(led) = led {
            busy.is_whole();
            let taken = Taken {
                _beside: Some(self.admission.enter_beside()?),
                _place: Some(place),
                ..Taken::default()
            };
            return Ok((Box::pin(self.plugin(&led, request)).await?, taken));
        }
        let most = caller.most_body().unwrap_or(u64::MAX);
        let most = most
            .min(target.most_body().unwrap_or(u64::MAX))
            .min(self.limits.body.0);
        let (mut head, body) = request.into_parts();
        body::must_be_plain(&head.headers)?;
        let body = body::read(body, most, &self.limits, &self.admission).await?;
        busy.is_whole();
        if target == Target::Flow && head.method == Method::POST {
            may_submit(&caller, &body.bytes)?;
        }
        let admitted = match target.is_work(&head.method) {
            true => Some(self.admission.enter().await?),
            false => None,
        };
        let beside = match target.is_beside(&head.method) {
            true => Some(self.admission.enter_beside()?),
            false => None,
        };
        let room = body.room;
        let to_run = match target == Target::Infer && head.method == Method::POST {
            true => Named::plainly(head.uri.path()),
            false => None,
        };
        let response = match (target, to_run) {
            (_, Some(named)) => run_rest(&self.inference, &caller, named, &head.headers, body.bytes).await?,
            (Target::Grpc | Target::GrpcInfer, None) => {
                let request = Request::from_parts(head, body.bytes);
                Box::pin(answer_grpc(self.inference.clone(), caller, request)).await
            }
            (_, None) => {
                head.extensions.insert(caller);
                let routed = self.route(Request::from_parts(head, Body::from(body.bytes)));
                match target {
                    Target::Task => Box::pin(in_time(self.limits.time.0, routed)).await?,
                    _ => routed.await,
                }
            }
        };
        // Where the work is done, what is left of the request is its response. A task that streams, and what follows a workflow, have only
        // begun.
        let streams = target == Target::Task && response.body().size_hint().exact().is_none();
        let taken = Taken {
            _place: Some(place),
            _beside: beside.filter(|_| target == Target::FlowEvents),
            _admitted: admitted.filter(|_| streams),
            _room: room.filter(|_| streams),
        };
        Ok((response, taken))
    }

    async fn route(&self, request: Request<Body>) -> Response {
        let answered = self.routes.clone().call(request).await;
        answered.unwrap_or_else(|never| match never {})
    }

    /// A probe of gRPC has a body, which takes no room among those of requests: it is short, and nobody waits for it for long.
    async fn probed(&self, request: Request<Incoming>) -> Result<Response, Refusal> {
        let most = self.limits.body_pause.0;
        let answered = timeout(most, health::answer(self.node.is_ready(), request)).await;
        answered.map_err(|_| body::too_slow(most))
    }

    /// An HTTP plugin reads its body and sends its response as it likes, within its own limits.
    async fn plugin(&self, led: &Led, mut request: Request<Incoming>) -> Result<Response, Refusal> {
        led.lead(&mut request, self.strict_transport.is_some());
        hide(request.headers_mut());
        let mut response = self.node.serve_http(&led.plugin, request).await?;
        let headers = response.headers_mut();
        disown(headers);
        // A plugin that has a host for itself is an origin of its own already, and may keep something there.
        if !led.is_alone {
            set_apart(headers);
        }
        Ok(response)
    }
}

/// Whether the caller may come to the target at all.
fn judge(
    target: Target,
    led: Option<&Led>,
    request: &Request<Incoming>,
    caller: &Caller,
) -> Result<(), Refusal> {
    let path = request.uri().path();
    let named = |prefix: &str, kind: fn(Pattern) -> Right| {
        let name = path.strip_prefix(prefix).unwrap_or_default();
        caller.must(&kind(pattern(name.trim_start_matches('/'))?))
    };
    match target {
        Target::Metrics => caller.must(&Right::Metrics),
        Target::Admin => caller.must(&Right::Admin),
        Target::Task => named("/tasks", Right::Call),
        Target::Plugin => {
            let led = led.ok_or_else(unknown)?;
            caller.must(&Right::Http(pattern(&led.plugin)?))
        }
        // Knowing the id of a task is enough to ask for it: it cannot be guessed.
        Target::Accepted => caller.must_some(|right| matches!(right, Right::Call(_)), "call:…"),
        Target::Flow | Target::FlowEvents => {
            caller.must_some(|right| matches!(right, Right::Flow(_)), "flow:…")
        }
        // Which models they may run is judged where the name is read; others need not send a body.
        Target::Infer | Target::GrpcInfer => {
            caller.must_some(|right| matches!(right, Right::Infer(_)), "infer:…")
        }
        // That of a stream has no end: what is no method is not waited for.
        Target::Grpc => must_be_method(path),
        Target::Health | Target::GrpcHealth | Target::Document | Target::Models | Target::Dashboard => Ok(()),
        // Nobody has a right to what has no name here, whatever the routes may come to have.
        Target::Unknown => Err(unknown()),
    }
}

/// Gives a task the time that any request has. What is accepted, and who waits for it, has a time of its own.
async fn in_time(most: Duration, routed: impl Future<Output = Response>) -> Result<Response, Refusal> {
    timeout(most, routed).await.map_err(|_| {
        let late = TaskError::deadline(format!("the task did not answer within {}", format_duration(most)));
        Refusal::from(late.with_hint(
            "`gateway.limits.time` of node.toml bounds every request; have work that takes longer accepted (`karman-accept`)",
        ))
    })
}

/// A page of another origin sends what would be done without a token.
fn forged() -> Refusal {
    let error = TaskError::denied("pages of other origins may not call without a token");
    let error = error.with_field("origin");
    error
        .with_hint("name the origin in `cors` below `[gateway]`, or send a token")
        .into()
}

/// Hides what is for the gateway alone: with the token of its caller a plugin could do whatever that one may.
fn hide(headers: &mut HeaderMap) {
    headers.remove(header::AUTHORIZATION);
}

/// Takes back what only the gateway says of an answer, who ran what and why: logs, traces and the dashboard would believe it.
fn disown(headers: &mut HeaderMap) {
    let is_ours = |name: &&HeaderName| name.as_str().starts_with("karman-");
    let ours: Vec<HeaderName> = headers.keys().filter(is_ours).cloned().collect();
    for name in ours {
        headers.remove(name);
    }
}

/// Whether the caller may submit the workflow that a body describes. What does not read is refused where it is read.
fn may_submit(caller: &Caller, body: &[u8]) -> Result<(), Refusal> {
    match serde_json::from_slice::<FlowOrder>(body) {
        Ok(order) => caller.must(&Right::Flow(pattern(order.workflow.name())?)),
        Err(_) => Ok(()),
    }
}

/// A name as it stands in a path. What is written with `%` is none: below it would be another one, and names need no escapes.
fn pattern(name: &str) -> Result<Pattern, TaskError> {
    let read: Result<Pattern, &'static str> = name.parse();
    read.map_err(|why| TaskError::invalid(format!("`{name}` is no name: {why}")).with_field("path"))
}

pub(crate) fn unknown() -> Refusal {
    let error = TaskError::invalid("no such path").with_field("path");
    Refusal::unknown(error.with_hint("GET /openapi.json describes those that there are"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{CallerLimits, Revoked};
    use std::net::Ipv4Addr;

    #[test]
    fn a_plugin_gets_no_token_and_speaks_for_itself_alone() {
        let mut headers = HeaderMap::new();
        for name in ["authorization", "karman-node", "Karman-Why", "karmann", "x-own"] {
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).unwrap(),
                HeaderValue::from_static("a"),
            );
        }
        headers.append("authorization", HeaderValue::from_static("b"));
        hide(&mut headers);
        disown(&mut headers);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["karmann", "x-own"]);
    }

    #[test]
    fn a_right_to_one_workflow_is_none_to_others() {
        let folder = tempfile::tempdir().unwrap();
        let open = vec!["flow:flood-*".parse().unwrap()];
        let revoked = Revoked::of(folder.path());
        let access = Access::new(Vec::new(), open, CallerLimits::default(), revoked, 1);
        let caller = access
            .caller(&HeaderMap::new(), Ipv4Addr::LOCALHOST.into())
            .unwrap();
        let may = |name: &str| {
            let body = format!(r#"{{ "workflow": "name = '{name}'\n[task.tiny]", "input": 1 }}"#);
            may_submit(&caller, body.as_bytes())
        };
        assert_eq!(may("flood-response"), Ok(()));
        let refused = may("other").unwrap_err();
        assert!(refused.error.message.contains("flow:other"), "{refused:?}");
        assert_eq!(may_submit(&caller, b"no workflow"), Ok(()));
    }
}
