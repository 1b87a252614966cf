//! Spans, for those who collect them: what a call is part of goes along with it, as W3C Trace Context, so that what all nodes did for one
//! request is one trace. Where nobody collects there are no spans, and nothing goes along.
//!
//! A trace begins where a request comes in from outside, with a span of the target [`SPANS`]; calls within it have spans on both sides.
//! Calls that a node makes on its own, such as those by which nodes hear of each other, have none.

use crate::ask::CallHead;
use opentelemetry::global::get_text_map_propagator;
use opentelemetry::trace::TraceContextExt;
use std::collections::HashMap;
use tracing::span::Id;
use tracing::{Span, info_span};
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// The target of spans: a collector asks for it, and no log shows it.
pub const SPANS: &str = "karman_spans";
/// The longest header that is taken.
const MOST_BYTES: usize = 512;
/// The headers by which a trace goes from one side to the other.
pub const HEADERS: [&str; 2] = ["traceparent", "tracestate"];

/// Propagated trace context: headers of the W3C Trace Context by their names.
pub type Carried = Vec<(String, String)>;

/// What goes along with what this span has others do; nothing where nobody collects.
pub fn along(span: &Span) -> Carried {
    if span.is_disabled() {
        return Carried::new();
    }
    let (mut carried, context) = (HashMap::new(), span.context());
    get_text_map_propagator(|propagator| propagator.inject_context(&context, &mut carried));
    carried.into_iter().collect()
}

/// Lets a span be part of what came along. What does not read begins a trace of its own.
pub fn follow(span: &Span, carried: Carried) {
    if span.is_disabled() || carried.is_empty() {
        return;
    }
    let carried = carried.into_iter();
    // It may come from any member, and goes along with what this span has others do.
    let known = carried.filter(|(name, value)| HEADERS.contains(&name.as_str()) && value.len() <= MOST_BYTES);
    let carried: HashMap<String, String> = known.collect();
    let from = get_text_map_propagator(|propagator| propagator.extract(&carried));
    // It fails where no collector's layer is there, or the span was asked for its context before: neither is the case here.
    let _ = span.set_parent(from);
}

/// The span of a call to another node, where it is part of a trace.
pub(crate) fn calling(head: &CallHead, to: &str) -> Span {
    if !is_of_a_trace(&Span::current()) {
        return Span::none();
    }
    info_span!(
        target: SPANS,
        "call",
        otel.name = format!("call {}", head.name),
        otel.kind = "client",
        karman.node = to,
        karman.attempt = head.attempt,
    )
}

/// Whether this is a span of ours. What libraries say of themselves may stand in spans, too, where a log asks for it.
fn is_of_a_trace(span: &Span) -> bool {
    !span.is_disabled() && span.context().span().span_context().is_valid()
}

/// The span of its answer, on the other side.
pub(crate) fn answering(head: &CallHead, carried: Carried) -> Span {
    if carried.is_empty() {
        return Span::none();
    }
    let span = info_span!(
        target: SPANS,
        parent: None::<Id>,
        "answer",
        otel.name = format!("answer {}", head.name),
        otel.kind = "server",
    );
    follow(&span, carried);
    span
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_nothing_goes_along() {
        let span = info_span!(target: SPANS, "request");
        assert!(along(&span).is_empty() && along(&Span::none()).is_empty());
        // What comes from outside may be anything.
        follow(&span, vec![("traceparent".into(), "00-zz-zz-01".into())]);
        assert!(along(&span).is_empty());
    }
}
