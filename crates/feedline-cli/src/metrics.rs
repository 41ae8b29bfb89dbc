//! `feedline metrics`.

use crate::args::Metrics;

pub(crate) fn run(_options: &Metrics) -> anyhow::Result<u8> {
    anyhow::bail!("not there yet")
}
