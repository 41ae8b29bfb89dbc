//! `feedline top`.

use crate::args::Top;

pub(crate) fn run(_options: &Top) -> anyhow::Result<u8> {
    anyhow::bail!("not there yet")
}
