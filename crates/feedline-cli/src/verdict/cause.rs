//! Why a loader is slow: what it computes with, and how much of that there is.

use feedline_core::options::Name;

use super::{Evidence, pool};
use crate::format::{cpu, percent, some};
use crate::machine::Machine;
use crate::view::{Process, own_cores};

/// A process that uses or waits for more than this share of a core computes without a pause.
const COMPUTES: f64 = 0.8;
/// A process that uses less than this mostly waits for something else.
const PAUSES: f64 = 0.5;
/// Other processes that keep more than this share of the cores busy are mentioned.
const OTHERS: f64 = 0.1;

/// A process whose pid is not known here.
const ELSEWHERE: &str = "its process is in another pid namespace (a container)";

/// What makes it slow, and what to change.
pub(super) fn slow(evidence: &Evidence<'_>) -> String {
    if is_elsewhere(evidence) {
        return format!("{ELSEWHERE}: feedline top there tells why");
    }
    if let Some(text) = stopped(evidence) {
        return text;
    }
    match (evidence.workers.is_empty(), evidence.stats.pool) {
        (true, Some(_)) => "its workers are not there yet".into(),
        (true, None) => alone(evidence),
        (false, _) => with_workers(evidence),
    }
}

/// Where a loader that does not come back may be.
pub(super) fn stuck_at(evidence: &Evidence<'_>) -> String {
    if is_elsewhere(evidence) {
        return format!("; {ELSEWHERE}: its log shows its stack after {}", Name::loader_warn_secs.keyword());
    }
    if let Some(text) = stopped(evidence) {
        return format!("; {text}");
    }
    let (number, each) = (evidence.workers.len(), mean_cpu(evidence));
    let who = if number == 0 {
        format!("its process is at {} CPU", cpu(evidence.server.cpu_cores))
    } else {
        format!("its process is at {} CPU, {} at {}", cpu(evidence.server.cpu_cores), some(number, "worker"), cpu(each))
    };
    let after = Name::loader_warn_secs.keyword();
    format!("; {who}{}: the server's log shows its stack after {after}", disk(evidence))
}

/// A worker that was stopped.
fn stopped(evidence: &Evidence<'_>) -> Option<String> {
    let worker = evidence.workers.iter().find(|worker| matches!(worker.state, 'T' | 't'))?;
    let (pid, state) = (worker.pid, worker.state);
    Some(format!("its worker pid {pid} is stopped (state {state}): kill -CONT {pid} lets it go on"))
}

fn with_workers(evidence: &Evidence<'_>) -> String {
    let (number, each) = (evidence.workers.len(), mean_cpu(evidence));
    let workers = format!("{} at {} CPU", some(number, "worker"), cpu(each));
    let main = evidence.server.cpu_cores;
    let wanted = evidence.workers.iter().map(wanted).sum::<f64>() / number as f64;
    let pool = evidence.stats.pool.as_ref();
    if let Some(taken) = out_of_cores(evidence, wanted) {
        return format!("{workers}, and {taken}{}", pool::without_cores(pool));
    }
    if main >= COMPUTES && wanted < PAUSES && !is_also_a_job(evidence) {
        return format!(
            "{workers}, while the server's process is at {}: what runs there (sampler, unpickling, whatever wraps the \
             DataLoader) holds them up; move it into the workers, or yield fewer and larger tensors",
            cpu(main)
        );
    }
    if let Some(text) = pool.and_then(|pool| pool::found(pool, wanted < PAUSES)) {
        return format!("{workers}{}: {text}", disk(evidence));
    }
    let more = pool::more(pool);
    if wanted >= COMPUTES {
        let add = if pool.is_some() { format!("give it {more}") } else { "add workers".into() };
        return format!("{workers}: {add} ({} free)", free(evidence));
    }
    if wanted < PAUSES {
        return format!(
            "{workers}{}: they wait for storage or network; use faster storage, or {more}, so that their waits overlap",
            disk(evidence)
        );
    }
    format!("{workers}{}: they compute and wait by turns; {more} would do both at once", disk(evidence))
}

fn alone(evidence: &Evidence<'_>) -> String {
    let main = evidence.server.cpu_cores;
    if is_also_a_job(evidence) {
        return "it runs in the process of a job: give it workers (num_workers=), or a process of its own (feedline serve)"
            .into();
    }
    let process = format!("it has no workers, and its process is at {} CPU", cpu(main));
    let wanted = wanted(evidence.server);
    if let Some(taken) = out_of_cores(evidence, wanted) {
        return format!("{process}, and {taken}");
    }
    if wanted >= COMPUTES {
        return format!("{process}: give it workers (num_workers=; {} free)", free(evidence));
    }
    if wanted < PAUSES {
        return format!(
            "{process}{}: it waits for storage or network; use faster storage, or workers (num_workers=), whose waits overlap",
            disk(evidence)
        );
    }
    format!("{process}{}: it computes and waits by turns; workers (num_workers=) would do both at once", disk(evidence))
}

/// Whether the source, while it copies, mostly waits for something other than a core.
pub(super) fn copying_waits(evidence: &Evidence<'_>) -> bool {
    let Evidence { server, rates, machine, .. } = *evidence;
    // If cores are free, nobody waits for one.
    let computes = if machine.is_busy() { wanted(server) } else { server.cpu_cores };
    !is_elsewhere(evidence) && computes < PAUSES * rates.copying_share
}

fn mean_cpu(evidence: &Evidence<'_>) -> f64 {
    let sum: f64 = evidence.workers.iter().map(|worker| worker.cpu_cores).sum();
    sum / evidence.workers.len().max(1) as f64
}

/// What it would use, if cores were free.
fn wanted(process: &Process) -> f64 {
    process.cpu_cores + process.core_wait
}

/// Whether processes that want this much of a core each have no core left: in words, with what to change. A process that is
/// throttled may not even be seen to want more.
fn out_of_cores(evidence: &Evidence<'_>, wanted: f64) -> Option<String> {
    let machine = evidence.machine;
    (machine.is_busy() && (wanted >= PAUSES || machine.is_throttled()))
        .then(|| all_busy(evidence, "make the transforms cheaper"))
}

/// Says that there is no core left, who has them, and what to change.
pub(super) fn all_busy(evidence: &Evidence<'_>, way_out: &str) -> String {
    let Machine { cores, allowed_cores, .. } = *evidence.machine;
    if allowed_cores < f64::from(cores) {
        return format!(
            "the {allowed_cores:.1} of {cores} cores that it may use (taskset, or a container's limit) are busy: add cores, or \
             {way_out}"
        );
    }
    let all = if cores == 1 { "the one core is busy".into() } else { format!("all {cores} cores are busy") };
    match other_cores(evidence).filter(|others| *others > OTHERS * f64::from(cores)) {
        Some(others) if cores == 1 => {
            format!(
                "{all}, {} of it with other processes: run those elsewhere, add cores, or {way_out}",
                percent(others)
            )
        }
        Some(others) => {
            format!("{all}, {others:.1} of them with other processes: run those elsewhere, add cores, or {way_out}")
        }
        None => format!("{all}: add cores, or {way_out}"),
    }
}

/// How many cores are busy with other processes, if all processes of this feed can be inspected.
fn other_cores(evidence: &Evidence<'_>) -> Option<f64> {
    let Evidence { server, workers, jobs, machine, .. } = *evidence;
    let is_hidden = server.pid == 0 || jobs.iter().any(|job| job.process.pid == 0);
    let all = f64::from(machine.cores);
    let others = all * machine.busy_share.min(1.0) - own_cores(server, workers, jobs);
    (!is_hidden && others.is_finite()).then_some(others.min(all))
}

fn free(evidence: &Evidence<'_>) -> String {
    let Machine { cores, allowed_cores, free_cores, .. } = *evidence.machine;
    let those = if allowed_cores < f64::from(cores) { format!("the {allowed_cores:.1}") } else { cores.to_string() };
    format!("{free_cores:.1} of {those} {}", if cores == 1 { "core is" } else { "cores are" })
}

/// If they were seen to wait for a disk.
fn disk(evidence: &Evidence<'_>) -> String {
    let seen = evidence.workers.iter().chain([evidence.server]).map(|process| process.disk_share).fold(0.0, f64::max);
    if seen > 0.0 {
        format!(" (one was seen waiting for a disk, state D, in {} of the samples)", percent(seen))
    } else {
        String::new()
    }
}

fn is_also_a_job(evidence: &Evidence<'_>) -> bool {
    evidence.stats.consumers.iter().any(|consumer| consumer.pid == evidence.server.pid)
}

/// Whether nothing can be known about the server's process from here.
fn is_elsewhere(evidence: &Evidence<'_>) -> bool {
    evidence.server.pid == 0
}
