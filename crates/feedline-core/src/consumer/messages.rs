//! Words for what a consumer's state machine reports: errors for the caller, lines for the log.

use std::time::Duration;

use feedline_protocol::Mark;
use feedline_protocol::consumer::{Config, Lost, Notice, Trouble, Waiting};
use feedline_protocol::message::Refusal;

use crate::error::Error;
use crate::explain::{Explanation, Text};
use crate::limits::{secs_text, size_text};
use crate::options::Name;
use crate::proc;
use crate::text;
use crate::wire::Stuck;

/// What the messages need to know about the consumer.
pub(super) struct Messages<'a> {
    /// The feed.
    pub name: &'a str,
    /// What the consumer wants.
    pub config: &'a Config,
    /// Whether its batches can be cut.
    pub is_cut: bool,
    /// Why they can't be, if so.
    pub why_whole: Option<&'a str>,
}

/// For a consumer that goes on in the middle of an epoch whose order may be another one now.
pub fn what_another_order_means(epoch: u64) -> Explanation {
    Explanation::new(format!("samples of epoch {epoch} may come twice or not at all")).hint(text![
        "serve it with ",
        Name::seed.named(),
        ", or with ",
        Name::state_file.named(),
        ", so that an epoch's order is the same in every run",
    ])
}

/// For a consumer that the server did not wait for.
fn have_it_wait(first: &str) -> Text {
    let (longer, more) = (Name::stall_timeout_secs.named(), Name::history.named());
    text![first, ", or give the server a longer ", longer, " or more ", more]
}

impl Messages<'_> {
    pub fn error(&self, trouble: Trouble) -> Error {
        let name = self.name;
        match trouble {
            Trouble::Gone(lost) => self.gone(lost),
            Trouble::Stalled { secs, lost } => {
                let what = lost.map_or_else(String::new, |lost| format!("; {}", what_is_gone(lost)));
                let pid = std::process::id();
                let what =
                    format!("this consumer (pid {pid}) held up feed {name:?} for {secs} s and was detached{what}");
                Error::Stalled(Explanation::new(what).hint(have_it_wait("iterate again to join the feed anew")))
            }
            Trouble::TooFew { epoch, samples } => {
                let what = if self.is_cut { "samples" } else { "batches that cannot be cut" };
                let world = self.world();
                let what = format!(
                    "feed {name:?}: epoch {epoch} has {samples} {what}, and {world} ranks share it: there is not one for each"
                );
                let way_out = "use fewer ranks, or drop_last=True to leave such an epoch out";
                Error::BatchSize(Explanation::new(what).hint(way_out))
            }
            Trouble::NoEndInSight(Waiting { epoch, running, at, .. }) => {
                let (secs, unit) = (secs_text(self.config.epoch_timeout.as_secs_f64()), self.unit());
                let now = self.join_now();
                let what = format!(
                    "feed {name:?}: this consumer waits for epoch {epoch}, and in {secs} s epoch {running} has come to {unit} {at} \
                     without an end in sight"
                );
                Error::Stalled(Explanation::new(what).hint(text![
                    now,
                    "have its server keep the running epoch for late jobs with ",
                    Name::history.of_value("2GB"),
                    "; if it does end, tell the server its length with ",
                    Name::samples.named(),
                    ", or wait longer with timeout_secs=",
                ]))
            }
            Trouble::Refused(refusal) => self.refused(&refusal),
            Trouble::ImpossiblePlace => Error::Protocol("the server gave an impossible place".into()),
            Trouble::ImpossibleHead(head) => {
                Error::Protocol(format!("the server of feed {name:?} is at sample {head}"))
            }
            Trouble::Unsteady => {
                Error::Protocol(format!("the server of feed {name:?} changes its answer again and again"))
            }
        }
    }

    fn gone(&self, lost: Lost) -> Error {
        let (name, what) = (self.name, what_is_gone(lost));
        if let (true, Some(shard)) = (lost.is_late_rank, self.config.shard) {
            let what = format!("feed {name:?}: {shard} came too late: {what}, where the others began");
            return Error::Gone(Explanation::new(what).hint(have_it_wait("start the ranks together")));
        }
        Error::Gone(Explanation::new(format!("feed {name:?}: {what}")).hint(text![
            "have its server keep more of an epoch with ",
            Name::history.named(),
            ", or iterate again to join the feed anew",
        ]))
    }

    fn refused(&self, refusal: &Refusal) -> Error {
        let name = self.name;
        let why = match refusal {
            Refusal::RanksWithSkip => {
                return Error::Protocol("ranks cannot share a feed whose slow consumers skip samples".into());
            }
            Refusal::Whole => self.why_whole.unwrap_or("its batches cannot be cut").to_owned(),
            Refusal::TooLarge { needed_bytes, free_bytes } => format!(
                "it needs a ring of {}, and {} of memory are left",
                size_text(*needed_bytes),
                size_text(*free_bytes)
            ),
            Refusal::NoRing(why) => why.clone(),
        };
        let what = match self.config.step_size() {
            Some(size) => format!("feed {name:?} cannot give batches of {size}: {why}"),
            None => format!("feed {name:?} cannot give a batch to each rank at once: {why}"),
        };
        Error::BatchSize(what.into())
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
                let unit = self.unit();
                let what = format!(
                    "feed {name:?}: this consumer (pid {pid}) waits for epoch {epoch} to begin; epoch {running} is at {unit} \
                     {at}{of}"
                );
                let way_out = text![
                    "if that takes too long, ",
                    self.join_now(),
                    "have its server keep the running epoch for late jobs with ",
                    Name::history.named(),
                ];
                tracing::warn!("{}", Explanation::new(what).hint(way_out));
            }
            Notice::FirstEpochGone(epoch) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) was to begin with epoch 0, which is gone; it begins with epoch {epoch}"
            ),
            Notice::ReadsAgain(epoch) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) broke off epoch {epoch} and reads it from its start again\n  \
                 join=\"next\" goes on to the next one instead"
            ),
            Notice::Skips(samples) => tracing::warn!(
                "feed {name:?}: this consumer (pid {pid}) is too slow and skips samples, {samples} so far ({})",
                Name::lag.of_value("skip"),
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

/// Logs where a loader hangs.
pub(super) fn warn_of_loader(name: &str, pid: u32, stuck: &Stuck) {
    let (secs, place) = (secs_text(stuck.secs), &stuck.place);
    tracing::warn!(
        "feed {name:?} waits for its loader (server pid {pid}), which has not yielded a batch for {secs} s\n{place}"
    );
}

/// Logs that the server lives and has not answered.
pub(super) fn warn_of_silence(name: &str, pid: u32, silence: Duration) {
    let (secs, state) = (secs_text(silence.as_secs_f64()), state_clause(pid));
    tracing::warn!("feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}");
}

/// The server lives and says nothing.
pub(super) fn silent_error(name: &str, pid: u32, silence: Duration) -> Error {
    let way_out = if proc::is_stopped(pid) {
        format!("let it go on with: kill -CONT {pid}")
    } else {
        format!("see what it does, with: py-spy dump --pid {pid}")
    };
    let (secs, state) = (secs_text(silence.as_secs_f64()), state_clause(pid));
    let what = format!("feed {name:?}: its server (pid {pid}) has not answered for {secs} s{state}");
    Error::Stalled(
        Explanation::new(what).hint(format!("{way_out}; then attach again, or wait longer with timeout_secs=")),
    )
}

fn state_clause(pid: u32) -> String {
    proc::state_text(pid).map_or_else(String::new, |state| format!("; {state}"))
}
