//! What a server tells of itself unasked: a port for Prometheus, a file of JSON lines.

use std::sync::Arc;
use std::time::Duration;

use super::stats::stats;
use super::{Options, Shared};
use crate::error::Error;
use crate::metrics::{Lines, Look, Outlet, Port};

/// What can't be had is known before anybody can attach.
pub(super) struct Opened {
    port: Option<Port>,
    lines: Option<Lines>,
    interval: Duration,
}

impl Opened {
    pub fn new(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            port: options.metrics_port.map(Port::open).transpose()?,
            lines: options.metrics_file.as_deref().map(Lines::open).transpose()?,
            interval: options.metrics_interval,
        })
    }

    pub fn port(&self) -> Option<u16> {
        self.port.as_ref().map(Port::number)
    }

    /// Threads of their own: neither a slow reader nor a slow disk is anybody else's business.
    pub fn start(self, shared: &Arc<Shared>) -> Result<Vec<Outlet>, Error> {
        let look = || -> Look {
            let shared = Arc::clone(shared);
            Box::new(move || vec![stats(&shared)])
        };
        let mut outlets = Vec::new();
        if let Some(port) = self.port {
            outlets.push(port.serve(look())?);
        }
        if let Some(lines) = self.lines {
            let name = shared.name.clone();
            let warn = move |text: &str| tracing::warn!("feed {name:?}: {text}");
            outlets.push(lines.write(self.interval, look(), Box::new(warn))?);
        }
        Ok(outlets)
    }
}
