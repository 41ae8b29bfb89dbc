//! Signals that can be waited for.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// Signals that are forwarded to the jobs, apart from a terminal's Ctrl-Z.
const HANDLED: [Signal; 7] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::TSTP, Signal::CHILD];

pub(super) struct Signals(Vec<(Signal, UnixStream)>);

impl Signals {
    /// From now on these signals don't have their usual effect. Signals that our parent process ignored stay ignored.
    pub fn listen() -> std::io::Result<Self> {
        let mut pipes = Vec::new();
        for signal in HANDLED.into_iter().filter(|&signal| !is_ignored(signal)) {
            let (reader, writer) = UnixStream::pair()?;
            reader.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal.as_raw(), writer)?;
            pipes.push((signal, reader));
        }
        Ok(Self(pipes))
    }

    /// Waits for signals; returns none when the time is over.
    pub fn wait(&self, timeout: Duration) -> Vec<Signal> {
        let mut fds: Vec<_> = self.0.iter().map(|(_, reader)| PollFd::new(reader, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
        let mut buffer = [0; 64];
        let arrived = self.0.iter().filter(|(_, reader)| (&*reader).read(&mut buffer).is_ok_and(|count| count > 0));
        arrived.map(|&(signal, _)| signal).collect()
    }
}

/// Makes the kernel keep the exit status of our children until we ask for it: our parent process may ignore SIGCHLD, and we
/// inherit that.
pub(crate) fn stop_ignoring_children() -> std::io::Result<()> {
    if is_ignored(Signal::CHILD) {
        signal_hook::flag::register(Signal::CHILD.as_raw(), Arc::default())?;
    }
    Ok(())
}

fn is_ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).unwrap_or(0);
    bits & (1 << (signal.as_raw() - 1)) != 0
}
