//! `feedline run`.

use crate::Host;
use crate::args::Run;

pub(crate) fn run(_options: &Run, _host: &Host) -> anyhow::Result<u8> {
    anyhow::bail!("not there yet")
}
