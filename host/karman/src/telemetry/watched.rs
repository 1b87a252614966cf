//! Whether the collector takes what it is sent: the operator hears when it begins not to, and when it does again.

use opentelemetry::logs::Severity;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::logs::{LogBatch, LogExporter};
use opentelemetry_sdk::trace::{SpanData, SpanExporter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An exporter of which is told when it begins to fail, and when it works again.
#[derive(Debug)]
pub(super) struct Watched<E> {
    exporter: E,
    /// What it sends.
    what: &'static str,
    fails: AtomicBool,
}

/// What is new about an exporter.
#[derive(Debug, Eq, PartialEq)]
enum News {
    Fails,
    Works,
}

impl<E> Watched<E> {
    pub(super) const fn new(what: &'static str, exporter: E) -> Self {
        Self {
            exporter,
            what,
            fails: AtomicBool::new(false),
        }
    }

    fn news(&self, fails: bool) -> Option<News> {
        match (self.fails.swap(fails, Ordering::Relaxed), fails) {
            (false, true) => Some(News::Fails),
            (true, false) => Some(News::Works),
            _ => None,
        }
    }

    fn tell(&self, went: &OTelSdkResult) {
        let what = self.what;
        match (self.news(went.is_err()), went) {
            (Some(News::Fails), Err(error)) => {
                tracing::warn!(%error, "the collector does not take {what}: they are dropped until it does");
            }
            (Some(News::Works), _) => tracing::info!("the collector takes {what} again"),
            _ => {}
        }
    }
}

impl<E: SpanExporter> SpanExporter for Watched<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let went = self.exporter.export(batch).await;
        self.tell(&went);
        went
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.exporter.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

impl<E: LogExporter> LogExporter for Watched<E> {
    async fn export(&self, batch: LogBatch<'_>) -> OTelSdkResult {
        let went = self.exporter.export(batch).await;
        self.tell(&went);
        went
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.exporter.shutdown_with_timeout(timeout)
    }

    fn event_enabled(&self, level: Severity, target: &str, name: Option<&str>) -> bool {
        self.exporter.event_enabled(level, target, name)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.exporter.set_resource(resource);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_is_gone_is_news_once_and_its_return_once() {
        let watched = Watched::new("spans", ());
        let news = [false, true, true, false, false, true].map(|fails| watched.news(fails));
        assert_eq!(
            news,
            [
                None,
                Some(News::Fails),
                None,
                Some(News::Works),
                None,
                Some(News::Fails)
            ]
        );
    }
}
