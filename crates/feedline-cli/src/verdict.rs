//! What the numbers mean, in one line, and what to change. Pure: numbers in, words out.
//!
//! ```text
//! over, starting, nobody there ──▶ Quiet        nobody waits ── the source does ──▶ TrainersBound
//! the loader doesn't come back ──▶ Stuck             │       ├─ nor does it ──────▶ Balanced
//!                                                    │       └─ it falls behind ──▶ LoaderBound
//!                                               somebody waits ── so does the source, for one who doesn't ──▶ HeldBack
//!                                                    └── the source copies most of the time ──▶ DiskBound, CopyBound
//!                                                    └── it loads ──▶ LoaderBound (`cause` says why)
//! ```
//!
//! A source that waits is never what holds up the others, however slow it is while it loads. The ranks of one job go at one pace,
//! so the job waits as long as the rank that waits most. Waiting for another rank is not waiting for data.

mod cause;
mod pool;
#[cfg(test)]
mod tests;

use feedline_core::options::Name;
use feedline_core::stats::{ConsumerStats, ServerStats};
use serde::Serialize;

use crate::format::{bytes, count, percent, rate, secs, some};
use crate::machine::Machine;
use crate::view::{Job, Process, Rates};

/// A shorter observation says too little for a verdict.
const LEAST_SECS: f64 = 0.4;
/// A consumer that waits for a smaller share of its time than this is not called waiting.
const WAITS: f64 = 0.1;
/// A source that waits for more than this has time to spare.
const SPARE: f64 = 0.15;
/// A job that takes this many times what the source yields will run out of samples.
const FASTER: f64 = 1.2;
/// A consumer is held up by the disk if this share of what it takes has to be read from there.
const FROM_DISK: f64 = 0.1;
/// A first batch may take this long, and any other this many times the usual, but no less than the last constant.
const FIRST_BATCH_SECS: f64 = 30.0;
const TIMES_THE_USUAL: f64 = 5.0;
const STUCK_SECS: f64 = 10.0;

/// Who holds up whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// There is nothing to judge yet, or any more.
    #[default]
    Quiet,
    /// Jobs wait for the loader.
    LoaderBound,
    /// The loader has not come back for long.
    Stuck,
    /// Jobs wait for one of them.
    HeldBack,
    /// Jobs wait for the disk that the history is on.
    DiskBound,
    /// Jobs wait for batches to be copied into memory.
    CopyBound,
    /// The jobs are busy, and the loader waits for them.
    TrainersBound,
    /// Everybody waits a little for somebody.
    Balanced,
    /// All is loaded: jobs only read.
    Loaded,
    /// The feed is over, by an error.
    Failed,
}

/// A judgement.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// Of which kind.
    pub kind: Kind,
    /// In plain words, with the numbers behind it.
    pub text: String,
    /// The process that it is about, if it is one.
    pub pid: Option<u32>,
}

/// What it is judged by.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// What the server says.
    pub stats: &'a ServerStats,
    /// How that changes.
    pub rates: &'a Rates,
    /// The server's process.
    pub server: &'a Process,
    /// The loader's workers.
    pub workers: &'a [Process],
    /// In the order of `stats.consumers`.
    pub jobs: &'a [Job],
    /// Where it runs.
    pub machine: &'a Machine,
}

/// Gives the verdict.
pub fn judge(evidence: &Evidence<'_>) -> Verdict {
    let settled = over(evidence).or_else(|| starting(evidence)).or_else(|| idle(evidence.stats));
    settled.or_else(|| stuck(evidence)).unwrap_or_else(|| pace(evidence))
}

fn verdict(kind: Kind, text: String) -> Verdict {
    Verdict { kind, text, pid: None }
}

/// There is nothing left to load.
fn over(evidence: &Evidence<'_>) -> Option<Verdict> {
    let stats = evidence.stats;
    let readers = stats.consumers.iter().filter(|consumer| consumer.joined).count();
    match stats.state.as_str() {
        "ended" => return Some(verdict(Kind::Quiet, "ended: every epoch is written and read".into())),
        "stopped" => return Some(verdict(Kind::Quiet, "stopped: its consumers got an error that says so".into())),
        "failed" => {
            let failure = stats.events.iter().rev().find(|event| event.kind == "failed");
            let why = failure.map_or("its log says why", |event| &event.text);
            return Some(verdict(Kind::Failed, format!("failed: {why}")));
        }
        _ if !stats.all_written => return None,
        _ => {}
    }
    if let Some(verdict) = reads_from_disk(evidence) {
        return Some(verdict);
    }
    let text = if stats.replay {
        let (all, units) = (count(stats.samples as f64), stats.units());
        format!("all {all} {units} are loaded and kept (replay): {}, and nothing to load", reading(readers))
    } else {
        let last = stats.consumers.iter().filter(|one| one.joined).max_by_key(|one| one.lag_samples);
        let last = last.filter(|one| one.lag_samples > 0);
        let rest = last.map_or_else(String::new, |one| {
            format!(", pid {} has {} {} to go", one.pid, count(one.lag_samples as f64), stats.units())
        });
        format!("every epoch is written: {}{rest}", reading(readers))
    };
    Some(verdict(Kind::Loaded, text))
}

fn reading(jobs: usize) -> String {
    if jobs == 0 {
        "nobody reads".into()
    } else {
        format!("{} read", some(jobs, "job")).replace("1 job read", "1 job reads")
    }
}

/// There was no batch yet.
fn starting(evidence: &Evidence<'_>) -> Option<Verdict> {
    let stats = evidence.stats;
    if stats.batches > 0 {
        return None;
    }
    let at_it = stats.loader_call_secs;
    let waiting = match stats.consumers.iter().filter(|one| one.waiting).count() {
        0 => String::new(),
        jobs => format!(", and {} for it", who_waits(jobs, jobs)),
    };
    if at_it < FIRST_BATCH_SECS {
        let text = if at_it > 0.0 {
            format!("starting: the loader has been at its first batch for {}{waiting}", secs(at_it))
        } else {
            "starting".into()
        };
        return Some(verdict(Kind::Quiet, text));
    }
    let text = format!(
        "stuck: the loader has been at its first batch for {}{waiting}{}",
        secs(at_it),
        cause::stuck_at(evidence)
    );
    Some(verdict(Kind::Stuck, text))
}

/// Nobody reads.
fn idle(stats: &ServerStats) -> Option<Verdict> {
    let joined = stats.consumers.iter().filter(|consumer| consumer.joined).count();
    let (here, ready) = (stats.consumers.len(), format!("{} {}", count(stats.ring_used_samples as f64), stats.units()));
    let text = if !stats.gate_open && stats.wait_for > 1 {
        let missing = (stats.wait_for as usize).saturating_sub(joined).max(1);
        let asked = Name::wait_for.of_value(i128::from(stats.wait_for));
        format!("waits for {missing} of {}: {asked}", some(stats.wait_for as usize, "job"))
    } else if here == 0 {
        format!("nobody reads this feed; {ready} are ready")
    } else if joined == 0 {
        format!("{} attached, and none has asked for a batch; {ready} are ready", are(here))
    } else if stats.consumers.iter().filter(|one| one.joined).all(|one| one.resting) {
        "every job is between two epochs".into()
    } else if stats.consumers.iter().filter(|one| one.joined).all(|one| waits_for_epoch(stats, one)) {
        format!(
            "every job came late and waits for epoch {}; a larger {} lets late jobs in",
            stats.epoch + 1,
            Name::history.named(),
        )
    } else {
        return None;
    };
    Some(verdict(Kind::Quiet, text))
}

fn are(jobs: usize) -> String {
    if jobs == 1 { "1 job is".into() } else { format!("{jobs} jobs are") }
}

/// The loader does not come back, and somebody waits for it.
fn stuck(evidence: &Evidence<'_>) -> Option<Verdict> {
    let stats = evidence.stats;
    let at_it = stats.loader_call_secs;
    let usual = (stats.loading_secs - at_it).max(0.0) / stats.batches.max(1) as f64;
    let is_long = at_it >= STUCK_SECS && at_it >= TIMES_THE_USUAL * usual;
    if !is_long || !stats.consumers.iter().any(|consumer| consumer.waiting) {
        return None;
    }
    let text = format!(
        "stuck: the loader has been at one batch for {} ({} is usual){}",
        secs(at_it),
        secs(usual),
        cause::stuck_at(evidence)
    );
    Some(verdict(Kind::Stuck, text))
}

/// A job: one consumer, or the ranks that belong together.
struct Pace<'a> {
    /// The rank that waits most.
    wait_share: f64,
    /// The rank that is furthest behind.
    last: (&'a ConsumerStats, &'a Job),
}

impl Pace<'_> {
    fn is_stopped(&self) -> bool {
        matches!(self.last.1.process.state, 'T' | 't')
    }
}

/// Everything runs: which part is the slowest?
fn pace(evidence: &Evidence<'_>) -> Verdict {
    let jobs = paces(evidence);
    if jobs.is_empty() || evidence.rates.window_secs < LEAST_SECS {
        return verdict(Kind::Quiet, "measuring ...".into());
    }
    let starved: Vec<f64> = jobs.iter().map(|job| job.wait_share).filter(|share| *share >= WAITS).collect();
    let Rates { loading_share, copying_share, waiting_share, .. } = *evidence.rates;
    if starved.is_empty() {
        let stopped = jobs.iter().filter(|job| job.is_stopped()).max_by_key(|job| job.last.0.lag_samples);
        if let Some(holder) = stopped.filter(|job| waiting_share >= SPARE && holds_up(evidence.stats, &jobs, job)) {
            return held_back(evidence, holder, "the loader waits for it");
        }
        let hurt = losing(evidence).or_else(|| reads_from_disk(evidence));
        let verdict = hurt.unwrap_or_else(|| nobody_waits(evidence, &jobs));
        return match stopped {
            Some(job) => beside(verdict, job),
            None => verdict,
        };
    }
    let mean = starved.iter().sum::<f64>() / starved.len() as f64;
    let who = who_waits(starved.len(), jobs.len());
    if waiting_share >= SPARE && evidence.stats.lag != "skip" {
        let unhurried = jobs.iter().filter(|job| job.wait_share < mean / 2.0);
        return match unhurried.max_by_key(|job| job.last.0.lag_samples) {
            Some(holder) => held_back(evidence, holder, &format!("{who} {} of the time for it", percent(mean))),
            None => by_turns(evidence, &format!("{who} {}", percent(mean))),
        };
    }
    if copying_share > loading_share.max(0.3) {
        return copies(evidence, &format!("{who} {} of the time", percent(mean)));
    }
    let text = format!("loader-bound: {who} {} of the time for the loader; {}", percent(mean), cause::slow(evidence));
    verdict(Kind::LoaderBound, text)
}

/// The source has what it needs, and copies it.
fn copies(evidence: &Evidence<'_>, who: &str) -> Verdict {
    let Rates { copying_share, bytes_per_sec, .. } = *evidence.rates;
    let copying = format!("takes {} of the source's time, at {}/s", percent(copying_share), bytes(bytes_per_sec));
    if !evidence.stats.history_in_file {
        let text = format!(
            "copy-bound: {who}, and copying into the ring {copying}: that is what memory gives; let the loader yield smaller \
             samples (uint8, not float32)"
        );
        return verdict(Kind::CopyBound, text);
    }
    let copying = format!("{who}, and copying into the history's file {copying}");
    let memory = format!("memory (no {})", Name::history_dir.keyword());
    if cause::copying_waits(evidence) {
        let way_out = format!("use a faster disk, less {}, or {memory}", Name::history.named());
        return verdict(Kind::DiskBound, format!("disk-bound: {copying}, waiting for the disk: {way_out}"));
    }
    let text = format!(
        "copy-bound: {copying}, without waiting for the disk: {memory} is faster, and so are smaller samples \
         (uint8, not float32)"
    );
    verdict(Kind::CopyBound, text)
}

/// Jobs that read the history from a disk wait where no counter sees them wait: in the middle of a batch.
fn reads_from_disk(evidence: &Evidence<'_>) -> Option<Verdict> {
    let pairs = evidence.stats.consumers.iter().zip(evidence.jobs);
    let rates: Vec<f64> = pairs.filter_map(|(consumer, job)| from_disk(evidence.stats, consumer, job)).collect();
    (!rates.is_empty()).then(|| {
        let text = format!(
            "disk-bound: {} what is kept from the disk, {}/s: use a faster disk, or memory for it (no history_dir)",
            reading(rates.len()),
            bytes(rates.iter().sum())
        );
        verdict(Kind::DiskBound, text)
    })
}

/// How many bytes a second are read from the history's disk for a job, if they are more than a small part of what it takes.
fn from_disk(stats: &ServerStats, consumer: &ConsumerStats, job: &Job) -> Option<f64> {
    let taken = job.samples_per_sec * stats.bytes as f64 / stats.samples.max(1) as f64;
    let read = job.process.disk_bytes_per_sec;
    let is_seen = stats.history_in_file && consumer.joined && job.seen_secs >= LEAST_SECS;
    (is_seen && read > 0.0 && read >= FROM_DISK * taken).then_some(read)
}

/// Whether a job came late and waits for the next epoch: only the epoch's end helps it.
pub(crate) fn waits_for_epoch(stats: &ServerStats, consumer: &ConsumerStats) -> bool {
    consumer.joined && !stats.replay && consumer.epoch > stats.epoch
}

/// The jobs that have been observed for long enough, and have work to do.
fn paces<'a>(evidence: &Evidence<'a>) -> Vec<Pace<'a>> {
    let mut jobs: Vec<(u64, Pace<'a>)> = Vec::new();
    for (consumer, job) in evidence.stats.consumers.iter().zip(evidence.jobs) {
        let is_new = job.seen_secs.is_nan() || job.seen_secs < LEAST_SECS;
        if !consumer.joined || is_new || waits_for_epoch(evidence.stats, consumer) {
            continue;
        }
        match jobs.iter_mut().find(|(number, _)| *number == consumer.job) {
            Some((_, pace)) => {
                pace.wait_share = pace.wait_share.max(job.wait_share);
                if consumer.lag_samples > pace.last.0.lag_samples {
                    pace.last = (consumer, job);
                }
            }
            None => jobs.push((consumer.job, Pace { wait_share: job.wait_share, last: (consumer, job) })),
        }
    }
    jobs.into_iter().map(|(_, pace)| pace).collect()
}

/// `4 jobs wait`, `1 of 4 jobs waits`.
fn who_waits(starved: usize, all: usize) -> String {
    let verb = if starved == 1 { "waits" } else { "wait" };
    if starved == all { format!("{} {verb}", some(all, "job")) } else { format!("{starved} of {all} jobs {verb}") }
}

/// A job is too slow for a feed that waits for nobody.
fn losing(evidence: &Evidence<'_>) -> Option<Verdict> {
    let pairs = evidence.stats.consumers.iter().zip(evidence.jobs);
    let (consumer, job) = pairs.max_by(|a, b| a.1.skipped_per_sec.total_cmp(&b.1.skipped_per_sec))?;
    if job.skipped_per_sec <= 0.0 {
        return None;
    }
    let (pid, lost, taken) = (consumer.pid, job.skipped_per_sec, job.samples_per_sec);
    let units = evidence.stats.units();
    let [skip, block, history] = ["skip", "block", "history"].map(|lag| Name::lag.given(lag.into()));
    let text = format!(
        "pid {pid} is too slow and loses {} of its {units} ({} {units}/s are lost): {skip} waits for nobody; {block} or {history} \
         loses none",
        percent(lost / (lost + taken.max(0.0))),
        count(lost.round())
    );
    Some(Verdict { kind: Kind::HeldBack, text, pid: Some(pid) })
}

/// Whether a loader that waits may be waiting for this job, which is stopped: it does so for the slowest of all, once all
/// the space lies between that job and the newest sample.
fn holds_up(stats: &ServerStats, jobs: &[Pace<'_>], job: &Pace<'_>) -> bool {
    let is_last = jobs.iter().all(|other| other.last.0.lag_samples <= job.last.0.lag_samples);
    match stats.lag.as_str() {
        _ if stats.replay => false,
        "skip" => jobs.iter().all(Pace::is_stopped),
        "history" => is_last && is_full(stats.history_used_samples, stats.history_samples),
        _ => is_last,
    }
}

/// A verdict on the others, and that this job is stopped.
fn beside(verdict: Verdict, stopped: &Pace<'_>) -> Verdict {
    let Verdict { kind, text, pid: about } = verdict;
    let (consumer, job) = stopped.last;
    let (pid, state) = (consumer.pid, job.process.state);
    let text = format!("{text}; pid {pid} is stopped (state {state}): kill -CONT {pid} lets it go on");
    Verdict { kind, text, pid: about.or(Some(pid)) }
}

fn is_full(used: u64, all: u64) -> bool {
    used as f64 >= 0.75 * all as f64
}

fn nobody_waits(evidence: &Evidence<'_>, jobs: &[Pace<'_>]) -> Verdict {
    let rates = evidence.rates;
    let most = jobs.iter().map(|job| job.wait_share).fold(0.0, f64::max);
    let most = if most < 0.005 { String::new() } else { format!(" more than {} of the time", percent(most)) };
    if rates.waiting_share >= SPARE {
        let spare = percent(rates.waiting_share);
        let text = format!(
            "trainers are the bottleneck: nothing to gain here (no job waits{most}, the loader has {spare} of its time to \
             spare)"
        );
        return verdict(Kind::TrainersBound, text);
    }
    if let Some(text) = uses_up(evidence, jobs) {
        return verdict(Kind::LoaderBound, format!("loader-bound: {text}; {}", cause::slow(evidence)));
    }
    let busy = percent(rates.loading_share + rates.copying_share);
    let text =
        format!("balanced: no job waits{most}, and the loader is busy {busy}: it keeps up, with little to spare");
    verdict(Kind::Balanced, text)
}

/// Says that a job takes more than the loader yields, and how long what was loaded ahead will last.
fn uses_up(evidence: &Evidence<'_>, jobs: &[Pace<'_>]) -> Option<String> {
    let Evidence { stats, rates, .. } = *evidence;
    let yields = rates.samples_per_sec;
    let outrun = jobs.iter().filter_map(|job| {
        let (consumer, seen) = job.last;
        let takes = seen.samples_per_sec * consumer.rank.map_or(1.0, |(_, world)| f64::from(world));
        // One batch more or less in the observed time says nothing.
        let batch = consumer.batch_size.unwrap_or(stats.samples / stats.batches.max(1));
        let is_seen = (takes - yields) * rates.window_secs.min(seen.seen_secs) > 2.0 * batch as f64;
        (is_seen && takes > FASTER * yields).then(|| (consumer.lag_samples as f64 / (takes - yields), takes))
    });
    let (left, takes) = outrun.min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some(format!(
        "nobody waits yet, but a job takes {} {}/s and the loader yields {}: what is loaded ahead lasts {}",
        rate(takes),
        stats.units(),
        rate(yields),
        secs(left)
    ))
}

fn held_back(evidence: &Evidence<'_>, holder: &Pace<'_>, who: &str) -> Verdict {
    let stats = evidence.stats;
    let (consumer, job) = holder.last;
    let pid = consumer.pid;
    let rank = consumer.rank.map_or_else(String::new, |(rank, world)| format!(" (rank {rank} of {world})"));
    let full = if stats.lag == "history" {
        let (used, all) = (stats.history_used_samples, stats.history_samples);
        let share = if is_full(used, all) { String::new() } else { format!("{} ", percent(used as f64 / all as f64)) };
        format!("history {share}full ({})", bytes(stats.history_bytes as f64))
    } else if stats.ring_fill >= 0.75 {
        "ring full".into()
    } else {
        format!("ring {} full", percent(stats.ring_fill))
    };
    let advice = if matches!(job.process.state, 'T' | 't') {
        format!("it is stopped (state {}): kill -CONT {pid} lets it go on", job.process.state)
    } else if consumer.resting {
        "it has read its epoch and not asked for the next".into()
    } else if let Some(read) = from_disk(stats, consumer, job) {
        let file = Name::history_dir.keyword();
        format!("it reads the history from the disk ({}/s): use a faster disk, or memory (no {file})", bytes(read))
    } else if stats.lag == "history" {
        format!("a larger {} lets the others run further ahead", Name::history.named())
    } else {
        let [history, skip] = ["history", "skip"].map(|lag| Name::lag.given(lag.into()));
        format!("try {history}, or {skip} if it may lose samples")
    };
    let text = format!(
        "held back by pid {pid}{rank}: {who}; lag {} ({} {}), {full}; {advice}",
        secs(consumer.lag_secs),
        count(consumer.lag_samples as f64),
        stats.units()
    );
    Verdict { kind: Kind::HeldBack, text, pid: Some(pid) }
}

/// The source waits, and so do all jobs, each for a part of the time.
fn by_turns(evidence: &Evidence<'_>, who: &str) -> Verdict {
    let spare = percent(evidence.rates.waiting_share);
    let largest = evidence.stats.consumers.iter().filter_map(|one| one.batch_size).max().unwrap_or(1);
    let text = if evidence.machine.is_busy() {
        format!("; {}", cause::all_busy(evidence, "use fewer jobs"))
    } else if evidence.stats.ring_samples < largest.saturating_mul(4) {
        let samples = count(evidence.stats.ring_samples as f64);
        format!(
            "; the ring has room for {samples} samples and the largest batch is {largest}: a larger {} would even it out",
            Name::ring.named(),
        )
    } else {
        String::new()
    };
    verdict(Kind::Balanced, format!("balanced: {who} of the time, and the loader {spare}, for each other{text}"))
}
