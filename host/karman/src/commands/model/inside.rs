//! `karman model plan --inside`: a model split inside its layers.

use crate::app::App;
use crate::control::{Control, escape};
use crate::output::table;
use http::Method;
use karman_node::{InsideOrder, InsidePlan};
use karman_types::{ByteSize, TaskError, format_bytes, format_duration};
use serde_json::json;
use std::time::Duration;

/// The memory of a piece: on all nodes, or on those that a selector names.
pub(super) type Memory = (Option<String>, ByteSize);

/// Reads `192KiB` or `tier=edge=192KiB`.
pub(super) fn memory(text: &str) -> Result<Memory, String> {
    let (selector, size) = match text.rsplit_once('=') {
        Some((selector, size)) => (Some(selector.to_owned()), size),
        None => (None, text),
    };
    let size: ByteSize = size
        .parse()
        .map_err(|error: karman_types::ParseUnitError| error.to_string())?;
    Ok((selector, size))
}

/// Has the node divide the layers, and shows what each of the others has to do.
pub(super) fn inside(
    app: &App,
    name: &str,
    on: &[String],
    memory: &[Memory],
    apply: bool,
) -> Result<(), TaskError> {
    let all = memory.iter().rev().find(|(selector, _)| selector.is_none());
    let some = memory
        .iter()
        .filter_map(|(selector, size)| Some((selector.clone()?, *size)));
    let order = InsideOrder {
        on: on.to_vec(),
        memory: all.map(|(_, size)| *size),
        memory_of: some.collect(),
        apply,
    };
    let body = serde_json::to_vec(&order).map_err(|error| TaskError::internal(error.to_string()))?;
    let path = format!("/models/{}/inside", escape(name));
    let progress = app.progress("asking the nodes; each computes a piece to say how fast it is");
    let planned: Result<InsidePlan, TaskError> = Control::new(app)?.order(Method::POST, &path, body.into());
    drop(progress);
    let planned = planned?;
    app.output.result(|| shown(&planned), || json!(planned))?;
    if !planned.applied {
        app.output.note("to run it like that: --apply");
    }
    Ok(())
}

fn shown(plan: &InsidePlan) -> String {
    let head = ["NODE", "TIER", "MAY TAKE", "TAKES", "SENT", "BACK", "CALLS"].map(str::to_owned);
    let nodes = plan.nodes.iter().map(|node| {
        vec![
            node.node.short(),
            node.tier.to_string(),
            format_bytes(node.memory),
            format_bytes(node.peak),
            format_bytes(node.sent),
            format_bytes(node.received),
            node.calls.to_string(),
        ]
    });
    let rows: Vec<Vec<String>> = std::iter::once(head.to_vec()).chain(nodes).collect();
    let by_rows = plan.layers.iter().filter(|layer| layer.by == "rows").count();
    let seconds = Duration::try_from_secs_f64(plan.seconds).unwrap_or(Duration::MAX);
    format!(
        "{}: {} layers in whole numbers, {by_rows} by rows and {} by channels, in about {}; then {} here\n\n{}\n\n\
         one node alone would take {}; this one holds up to {} of activations",
        plan.model,
        plan.layers.len(),
        plan.layers.len() - by_rows,
        format_duration(seconds),
        plan.rest.join(", "),
        table(&rows),
        format_bytes(plan.alone),
        format_bytes(plan.held)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_for_all_nodes_or_for_some() {
        let kib = ByteSize::kib;
        assert_eq!(memory("192KiB"), Ok((None, kib(192))));
        assert_eq!(memory("9c01d2e7=64 KiB"), Ok((Some("9c01d2e7".into()), kib(64))));
        assert_eq!(
            memory("tier=edge=1MiB"),
            Ok((Some("tier=edge".into()), kib(1024)))
        );
        for text in ["", "much", "tier=edge", "9c01d2e7="] {
            assert!(memory(text).is_err(), "{text}");
        }
    }
}
