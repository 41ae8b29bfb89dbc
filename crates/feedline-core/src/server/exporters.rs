//! What a server exports: a port for Prometheus, a file of JSON lines.

use std::sync::Arc;
use std::time::Duration;

use super::stats::stats;
use super::{Options, Shared};
use crate::error::Error;
use crate::metrics::{Exporter, HttpExporter, JsonLinesExporter, ReadStats};

/// Opened before anybody can attach, so that errors are reported early.
pub(super) struct OpenExporters {
    port: Option<HttpExporter>,
    lines: Option<JsonLinesExporter>,
    interval: Duration,
}

impl OpenExporters {
    pub fn new(options: &Options, interval: Duration) -> Result<Self, Error> {
        Ok(Self {
            port: options.metrics_port.map(HttpExporter::open).transpose()?,
            lines: options.metrics_file.as_deref().map(JsonLinesExporter::open).transpose()?,
            interval,
        })
    }

    pub fn port(&self) -> Option<u16> {
        self.port.as_ref().map(HttpExporter::number)
    }

    /// Exporters have threads of their own: a slow reader or a slow disk delays nothing else.
    pub fn start(self, shared: &Arc<Shared>) -> Result<Vec<Exporter>, Error> {
        let read_stats = || -> ReadStats {
            let shared = Arc::clone(shared);
            Box::new(move || vec![stats(&shared)])
        };
        let mut exporters = Vec::new();
        if let Some(port) = self.port {
            exporters.push(port.serve(read_stats())?);
        }
        if let Some(lines) = self.lines {
            let name = shared.name.clone();
            let warn = move |text: &str| tracing::warn!("feed {name:?}: {text}");
            exporters.push(lines.write(self.interval, read_stats(), Box::new(warn))?);
        }
        Ok(exporters)
    }
}
