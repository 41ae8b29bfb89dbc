//! `feedline doctor`: what this machine offers, by trying it rather than reading version numbers.
//!
//! | module | what it tries |
//! |---|---|
//! | `kernel` | sealed memory, mirrored mappings, wake-ups, descriptors of processes |
//! | `limits` | memory, descriptors, address space, cores |
//! | `folder` | whether sockets can be made where feeds are looked for |
//! | `round_trip` | a feed, and a second process that reads it |
//! | `python` | versions, GPUs, and the same round trip to NumPy and torch |
//! | `feeds` | whether those that run answer |
//!
//! Each group of checks has its own thread and time limit: a group that hangs is reported and left behind.

mod child;
mod feeds;
mod folder;
mod kernel;
mod limits;
mod python;
mod report;
pub(crate) mod round_trip;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use self::report::{Check, Report};
use crate::Invocation;
use crate::args::Doctor;

/// The time limit of a group of checks, unless stated otherwise.
const GROUP: Duration = Duration::from_secs(5);

pub(crate) fn run(options: &Doctor, invocation: &Invocation) -> anyhow::Result<u8> {
    if let Some(name) = &options.probe {
        return round_trip::probe(name);
    }
    let whole = Duration::from_secs_f64(options.timeout_secs);
    let deadline = Instant::now() + whole;
    let mut report = Report::new(options.json);
    // Importing takes a while: Python is started first, and asked last.
    let python = python::Interpreter::start(invocation);
    report.add(bounded("kernel", deadline, GROUP, kernel::checks))?;
    let mut needs = bounded("limits", deadline, GROUP, limits::checks);
    needs.extend(bounded("socket folder", deadline, GROUP, folder::checks));
    let has_all = !needs.iter().any(Check::is_bad);
    report.add(needs)?;
    let command = invocation.command.clone();
    report.add(bounded("round trip", deadline, GROUP * 3, move || round_trip::checks(&command, has_all)))?;
    report.add(bounded("feeds", deadline, GROUP, feeds::checks))?;
    // So that Python itself can report what is late.
    let answers = deadline - (whole / 10).min(Duration::from_secs(1));
    report.add(bounded("Python", deadline, whole, move || python::checks(python, answers, has_all)))?;
    Ok(report.finish()?)
}

/// Runs a group of checks within a time limit; a panic in it is a finding too.
fn bounded(
    name: &'static str,
    deadline: Instant,
    limit: Duration,
    checks: impl FnOnce() -> Vec<Check> + Send + 'static,
) -> Vec<Check> {
    let (sender, receiver) = channel();
    let work = move || {
        let _ = sender.send(checks());
    };
    if let Err(error) = std::thread::Builder::new().name("feedline-doctor".into()).spawn(work) {
        let advice = "let this user have more processes and memory: ulimit -u, ulimit -v";
        return vec![Check::bad(name, format!("no thread can be started: {error}"), advice)];
    }
    let limit = limit.min(deadline.saturating_duration_since(Instant::now()));
    match receiver.recv_timeout(limit) {
        Ok(checks) => checks,
        Err(RecvTimeoutError::Timeout) => {
            let found = format!("no answer in {} s", limit.as_secs());
            let advice =
                "the machine is very busy, or a file system does not answer: check `top` and `dmesg`, and try again";
            vec![Check::bad(name, found, advice)]
        }
        Err(RecvTimeoutError::Disconnected) => {
            vec![Check::bad(name, "this check itself failed", "report it, with what was printed above")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_hangs_or_panics_is_a_finding() {
        let soon = || Instant::now() + Duration::from_millis(20);
        let hung = bounded("x", soon(), GROUP, || {
            std::thread::sleep(Duration::from_secs(60));
            vec![]
        });
        assert!(hung[0].is_bad());
        let panicked = bounded("x", Instant::now() + GROUP, GROUP, || panic!("on purpose"));
        assert!(panicked[0].is_bad());
    }
}
