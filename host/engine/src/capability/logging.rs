//! `wasi:logging`, and the lines that a plugin writes to its standard output and error: all become events of the
//! target `plugin`.

use super::bindings::host::wasi::logging::logging::{Host as Logging, Level};
use crate::host::{Host, PluginInfo};
use crate::log_limit::LogLimit;
use bytes::Bytes;
use karman_types::escape_steering;
use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// A longer message or line is cut.
const MOST_BYTES: usize = 8 << 10;

impl Logging for Host {
    async fn log(&mut self, level: Level, context: String, message: String) -> wasmtime::Result<()> {
        let (plugin, task) = (&*self.plugin.name, self.call.task);
        let written = match level {
            Level::Trace => tracing::enabled!(target: "plugin", tracing::Level::TRACE),
            Level::Debug => tracing::enabled!(target: "plugin", tracing::Level::DEBUG),
            Level::Info => tracing::enabled!(target: "plugin", tracing::Level::INFO),
            Level::Warn => tracing::enabled!(target: "plugin", tracing::Level::WARN),
            Level::Error | Level::Critical => tracing::enabled!(target: "plugin", tracing::Level::ERROR),
        };
        if !written {
            return Ok(());
        }
        let (context, message) = (one_line(&context), one_line(&message));
        if !self.plugin.log.takes(plugin, context.len() + message.len()) {
            return Ok(());
        }
        let context = &*context;
        match level {
            Level::Trace => tracing::trace!(target: "plugin", plugin, %task, context, "{message}"),
            Level::Debug => tracing::debug!(target: "plugin", plugin, %task, context, "{message}"),
            Level::Info => tracing::info!(target: "plugin", plugin, %task, context, "{message}"),
            Level::Warn => tracing::warn!(target: "plugin", plugin, %task, context, "{message}"),
            Level::Error | Level::Critical => {
                tracing::error!(target: "plugin", plugin, %task, context, "{message}")
            }
        }
        Ok(())
    }
}

/// A text that is cut and cannot be taken for several lines, nor for any of the host's.
fn one_line(text: &str) -> Cow<'_, str> {
    escape_steering(&text[..text.floor_char_boundary(MOST_BYTES)], &[])
}

/// Standard output or error of a plugin that serves requests.
#[derive(Clone)]
pub(crate) struct LogLines {
    plugin: Arc<str>,
    limit: Arc<LogLimit>,
    stream: &'static str,
    line: Arc<parking_lot::Mutex<Vec<u8>>>,
}

impl LogLines {
    pub(crate) fn new(plugin: &PluginInfo, stream: &'static str) -> Self {
        Self {
            plugin: plugin.name.as_str().into(),
            limit: plugin.log.clone(),
            stream,
            line: Arc::default(),
        }
    }

    fn take(&self, bytes: &[u8]) {
        let mut line = self.line.lock();
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = MOST_BYTES.saturating_sub(line.len());
            line.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                self.emit(&line);
                line.clear();
            }
        }
    }

    fn emit(&self, line: &[u8]) {
        if !tracing::enabled!(target: "plugin", tracing::Level::INFO) {
            return;
        }
        let text = String::from_utf8_lossy(line);
        let text = one_line(text.trim_end());
        if self.limit.takes(&self.plugin, text.len()) {
            tracing::info!(target: "plugin", plugin = &*self.plugin, stream = self.stream, "{text}");
        }
    }
}

impl Drop for LogLines {
    fn drop(&mut self) {
        // The last handle of this stream: what has no newline is a line too.
        if let Some(line) = Arc::get_mut(&mut self.line)
            .map(std::mem::take)
            .map(parking_lot::Mutex::into_inner)
            && !line.is_empty()
        {
            self.emit(&line);
        }
    }
}

impl IsTerminal for LogLines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for LogLines {
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }

    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }
}

impl OutputStream for LogLines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.take(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(64 << 10)
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for LogLines {
    async fn ready(&mut self) {}
}

impl AsyncWrite for LogLines {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.take(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
