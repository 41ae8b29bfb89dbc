//! `feedline dashboard`.

use crate::args::Dashboard;

pub(crate) fn run(_options: &Dashboard) -> anyhow::Result<u8> {
    anyhow::bail!("not there yet")
}
