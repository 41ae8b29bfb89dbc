//! What a consumer's state machine has to say, in words: errors for the caller, lines for the log.

use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::consumer::{Config, Lost, Notice, Trouble, Waiting};
use feedline_protocol::message::Refusal;

use crate::error::Error;
use crate::limits::{secs_text, size_text};
use crate::proc;
use crate::wire::Stuck;

/// Whose words they are.
pub(super) struct Speaker<'a> {
    /// The feed.
    pub name: &'a str,
    /// What the consumer wants.
    pub config: &'a Config,
    /// Whether its batches can be cut.
    pub is_cut: bool,
    /// Why they can't be, if so.
    pub why_whole: Option<&'a str>,
}

/// For whoever goes on in the middle of an epoch whose order may be another now.
pub fn what_another_order_means(epoch: u64) -> String {
    format!(
        "samples of epoch {epoch} may come twice or not at all\n  serve it with seed=, or with state_file=, so that an epoch's \
         order is the same in every run"
    )
}

impl Speaker<'_> {
    pub fn error(&self, trouble: Trouble) -> Error {
        let name = self.name;
        match trouble {
            Trouble::Gone(lost) => self.gone(lost),
            Trouble::Stalled { secs, lost } => {
                let what = lost.map_or_else(String::new, |lost| format!("; {}", what_is_gone(lost)));
                Error::Stalled(format!(
                    "this consumer (pid {}) held up feed {name:?} for {secs} s and was detached{what}\n  \
                     iterate again to join the feed anew, or give the server a longer stall_timeout_secs or more history=",
                    std::process::id(),
                ))
            }
            Trouble::TooFew { epoch, samples } => {
                let what = if self.is_cut { "samples" } else { "batches that cannot be cut" };
                let world = self.world();
                Error::BatchSize(format!(
                    "feed {name:?}: epoch {epoch} has {samples} {what}, and {world} ranks share it: there is not one for each\n  \
                     use fewer ranks, or drop_last=True to leave such an epoch out"
                ))
            }
            Trouble::NoEndInSight(Waiting { epoch, running, at, .. }) => {
                let (secs, unit) = (secs_text(self.config.patience.as_secs_f64()), self.unit());
                let now = self.join_now();
                Error::Stalled(format!(
                    "feed {name:?}: this consumer waits for epoch {epoch}, and in {secs} s epoch {running} has come to {unit} {at} \
                     without an end in sight\n  \
                     {now}have the running epoch kept for late jobs with Server(history=\"2GB\"); if it does end, tell the \
                     server its length with samples=, or wait longer with timeout_secs="
                ))
            }
            Trouble::Refused(refusal) => self.refused(&refusal),
            Trouble::ImpossiblePlace => Error::Protocol("the server gave a place that cannot be".into()),
            Trouble::ImpossibleHead(head) => {
                Error::Protocol(format!("the server of feed {name:?} is at sample {head}"))
            }
            Trouble::Unsteady => Error::Protocol(format!("the server of feed {name:?} changes its mind without end")),
        }
    }

    fn gone(&self, lost: Lost) -> Error {
        let (name, what) = (self.name, what_is_gone(lost));
        if let (true, Some(shard)) = (lost.is_late_rank, self.config.shard) {
            return Error::Gone(format!(
                "feed {name:?}: {shard} came too late: {what}, where the others began\n  \
                 start the ranks together, or give the server a longer stall_timeout_secs or more history="
            ));
        }
        Error::Gone(format!(
            "feed {name:?}: {what}\n  \
             keep more of an epoch with Server(history=...), or iterate again to join the feed anew"
        ))
    }

    fn refused(&self, refusal: &Refusal) -> Error {
        let name = self.name;
        let why = match refusal {
            Refusal::RanksWithSkip => {
                return Error::Protocol("ranks cannot share a feed that is served with lag=\"skip\"".into());
            }
            Refusal::Whole => self.why_whole.unwrap_or("its batches cannot be cut").to_owned(),
            Refusal::TooLarge { needed_bytes, free_bytes } => format!(
                "it needs a ring of {}, and {} of memory are left",
                size_text(*needed_bytes),
                size_text(*free_bytes)
            ),
            Refusal::NoRing(why) => why.clone(),
        };
        Error::BatchSize(match self.config.step_size() {
            Some(size) => format!("feed {name:?} cannot give batches of {size}: {why}"),
            None => format!("feed {name:?} cannot give a batch to each rank at once: {why}"),
        })
    }

    pub fn log(&self, notice: &Notice) {
        let (name, pid) = (self.name, std::process::id());
        match *notice {
            Notice::WaitsForLaterEpoch { epoch, running } => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) waits for epoch {epoch}, and the feed is at {running}"
            ),
            Notice::WaitsForEpoch(Waiting { epoch, running, at, length }) => {
                let of =
                    length.map_or_else(|| ", and its length is not known".into(), |length| format!(" of {length}"));
                let (unit, now) = (self.unit(), self.join_now());
                tracing::warn!(
                    "feed {name:?}: this consumer (pid {pid}) waits for epoch {epoch} to begin; epoch {running} is at {unit} \
                     {at}{of}\n  \
                     if that takes too long, {now}have the running epoch kept for late jobs with Server(history=...)"
                );
            }
            Notice::FirstEpochGone(epoch) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) was to begin with epoch 0, which is gone; it begins with epoch {epoch}"
            ),
            Notice::ReadsAgain(epoch) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) broke off epoch {epoch} and reads it from its start again\n  \
                 join=\"next\" goes on to the next one instead"
            ),
            Notice::Skips(samples) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) is too slow and skips samples, {samples} so far (lag=\"skip\")"
            ),
            Notice::SkippedInEpoch(skipped) => {
                tracing::info!("feed {name:?}: {skipped} samples of the last epoch were skipped");
            }
            Notice::LeftOut { batches, epoch } => tracing::warn!(
                "feed {name:?}: its batches cannot be cut, and the last {batches} of epoch {epoch} are too few for {} ranks: left \
                 out",
                self.world(),
            ),
        }
    }

    fn unit(&self) -> &'static str {
        if self.is_cut { "sample" } else { "batch" }
    }

    fn world(&self) -> u32 {
        self.config.shard.map_or(1, |shard| shard.world)
    }

    fn join_now(&self) -> &'static str {
        if self.config.shard.is_none() { "begin with the newest sample (join=\"now\"), or " } else { "" }
    }
}

fn what_is_gone(Lost { mark: Mark { epoch, index }, until, .. }: Lost) -> String {
    match until {
        Some(until) if until == index + 1 => format!("sample {index} of epoch {epoch} is gone"),
        Some(until) => format!("samples {index} to {} of epoch {epoch} are gone", until - 1),
        None => format!("epoch {epoch}, from sample {index} on, is gone"),
    }
}

/// Says where a loader hangs.
pub(super) fn warn_of_loader(name: &str, pid: u32, stuck: &Stuck) {
    let (secs, place) = (secs_text(stuck.secs), &stuck.place);
    tracing::warn!(
        "feed {name:?} waits for its loader (server pid {pid}), which has not yielded a batch for {secs} s\n{place}"
    );
}

/// Says that the server lives and has not answered.
pub(super) fn warn_of_silence(name: &str, pid: u32, silence: Duration) {
    let (secs, state) = (secs_text(silence.as_secs_f64()), state_clause(pid));
    tracing::warn!("feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}");
}

/// The server lives and says nothing.
pub(super) fn silent_error(name: &str, pid: u32, silence: Duration) -> Error {
    let way_out = if proc::is_stopped(pid) {
        format!("let it go on with: kill -CONT {pid}")
    } else {
        format!("look at what it does, with: py-spy dump --pid {pid}")
    };
    let (secs, state) = (secs_text(silence.as_secs_f64()), state_clause(pid));
    Error::Stalled(format!(
        "feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}\n  \
         {way_out}; then attach again, or wait longer with timeout_secs="
    ))
}

fn state_clause(pid: u32) -> String {
    proc::state_text(pid).map_or_else(String::new, |state| format!("; {state}"))
}
