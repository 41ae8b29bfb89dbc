//! Words for what the state machine reports: for the log, and for the events.

use feedline_protocol::server::Notice;

use super::{Shared, State};
use crate::explain::Text;
use crate::options::Name;
use crate::text;

/// How others can avoid waiting for a slow consumer, if the ring is full, or if it is too many epochs behind.
fn without_waiting(by_epochs: bool) -> Text {
    let (skip, its_loss) = (Name::lag.of_value("skip"), " lets it lose samples");
    if by_epochs {
        let ahead = " lets them run more epochs ahead, where they fit the ring, ";
        return text![Name::epochs_ahead.named(), ahead, skip, its_loss];
    }
    let (kept, ahead) = (Name::history.named(), " lets them run ahead as far as ");
    text![Name::lag.of_value("history"), ahead, kept, " reaches, ", skip, its_loss]
}

impl Shared {
    /// Logs and records what has happened.
    pub(super) fn report(&self, state: &mut State) {
        for notice in state.machine.take_notices() {
            self.report_one(&notice, state);
        }
    }

    fn report_one(&self, notice: &Notice, state: &mut State) {
        let name = &self.name;
        let secs = self.options.stall_timeout_secs.as_secs_f64();
        let events = &mut state.events;
        match *notice {
            Notice::Joined { pid, epoch, batch_size } => {
                let batch_size = batch_size.map_or_else(String::new, |size| format!(", batch size {size}"));
                events.note("joined", Some(pid), &format!("epoch {epoch}{batch_size}"));
            }
            Notice::Left { pid } => events.note("left", Some(pid), "it left"),
            Notice::Died { pid } => events.note("died", Some(pid), "it was gone in mid-epoch"),
            Notice::Detached { pid, is_resting: true } => {
                events.note("detached", Some(pid), "it has not asked for its next epoch");
                tracing::info!("feed {name:?}: goes on without pid {pid}, which has not asked for its next epoch yet");
            }
            Notice::Detached { pid, is_resting: false } => {
                events.note("detached", Some(pid), "it stood still and held up the others");
                tracing::warn!("feed {name:?}: detached pid {pid}, which held up the others for {secs} s");
            }
            Notice::EpochBegan(epoch) => events.note("epoch", None, &format!("epoch {epoch} began")),
            Notice::EpochAbandoned(epoch) => {
                events.note("abandoned", None, &format!("epoch {epoch} broken off: nobody reads it any more"));
            }
            Notice::EpochLength { epoch, samples, expected } => {
                tracing::warn!("feed {name:?}: epoch {epoch} had {samples} samples where {expected} were expected");
            }
            Notice::Lagging { pid, behind, by_epochs } => {
                let way_out = without_waiting(by_epochs).worded(self.launch.reader);
                tracing::warn!(
                    "feed {name:?}: pid {pid} is {behind} samples behind, and the others wait for it\n  {way_out}"
                );
            }
            Notice::RanksMissing { epoch, came, world, waited } => {
                let (secs, limit) = (waited.as_secs_f64(), text![Name::stall_timeout_secs.named()]);
                let limit = limit.worded(self.launch.reader);
                tracing::warn!(
                    "feed {name:?}: {came} of {world} ranks have begun with epoch {epoch}, and after {secs} s it is not kept for \
                     the others any longer ({limit})\n  all ranks must do the same: iterate on all of them, or on none"
                );
            }
        }
    }
}
