//! The last events of a node, kept in memory so that `karman node logs` can show them.

use karman_mesh::wall_clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Events that are kept; the oldest goes first.
const MOST_EVENTS: usize = 2_000;

/// One event of the log.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LogEvent {
    /// Counts up from 1, without gaps.
    pub number: u64,
    /// Milliseconds since 1970, by the node's clock.
    pub unix_ms: u64,
    /// `error`, `warn`, `info`, `debug` or `trace`.
    pub level: String,
    /// The plugin that it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<String>,
    /// What happened.
    pub message: String,
}

/// The last events. Cheap to clone; also a [`Layer`] that fills it.
#[derive(Clone, Default)]
pub struct LogRing(Arc<Mutex<Ring>>);

#[derive(Default)]
struct Ring {
    last: u64,
    events: VecDeque<LogEvent>,
}

impl LogRing {
    /// The events after this number, oldest first, of one plugin if one is named.
    pub fn after(&self, number: u64, plugin: Option<&str>) -> Vec<LogEvent> {
        let ring = self.0.lock();
        ring.events
            .iter()
            .filter(|event| {
                event.number > number && plugin.is_none_or(|name| event.plugin.as_deref() == Some(name))
            })
            .cloned()
            .collect()
    }
}

impl<S: Subscriber> Layer<S> for LogRing {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text::default();
        event.record(&mut text);
        let unix_ms = wall_clock().as_millis() as u64;
        let mut ring = self.0.lock();
        ring.last += 1;
        if ring.events.len() == MOST_EVENTS {
            ring.events.pop_front();
        }
        let event = LogEvent {
            number: ring.last,
            unix_ms,
            level: event.metadata().level().as_str().to_ascii_lowercase(),
            plugin: text.plugin,
            message: text.message + &text.fields,
        };
        ring.events.push_back(event);
    }
}

#[derive(Default)]
struct Text {
    message: String,
    fields: String,
    plugin: Option<String>,
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.message = value.into(),
            "plugin" => self.plugin = Some(value.into()),
            name => write!(self.fields, "  {name}={value}").expect("writing to a string"),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "plugin" => self.plugin = Some(format!("{value:?}").trim_matches('"').into()),
            name => write!(self.fields, "  {name}={value:?}").expect("writing to a string"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing_subscriber::prelude::*;

    #[test]
    fn events_are_numbered_filtered_and_bounded() {
        let ring = LogRing::default();
        let subscriber = tracing_subscriber::registry().with(ring.clone());
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..MOST_EVENTS {
                tracing::info!(plugin = "a", took = 3, "ran");
            }
            tracing::warn!("off");
        });
        let all = ring.after(0, None);
        assert_eq!(
            (all.len(), all.last().unwrap().number),
            (MOST_EVENTS, MOST_EVENTS as u64 + 1)
        );
        assert_eq!(ring.after(MOST_EVENTS as u64, None)[0].message, "off");
        assert_eq!(ring.after(0, Some("a"))[0].message, "ran  took=3");
    }
}
