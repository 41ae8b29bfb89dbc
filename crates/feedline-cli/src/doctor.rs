//! `feedline doctor`.

use crate::Host;
use crate::args::Doctor;

pub(crate) fn run(_options: &Doctor, _host: &Host) -> anyhow::Result<u8> {
    anyhow::bail!("not there yet")
}
