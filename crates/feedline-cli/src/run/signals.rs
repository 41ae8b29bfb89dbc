//! Signals as something to wait for.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

/// What is handed on to the jobs, apart from a terminal's Ctrl-Z.
const HEARD: [Signal; 7] =
    [Signal::INT, Signal::TERM, Signal::HUP, Signal::USR1, Signal::USR2, Signal::TSTP, Signal::CHILD];

pub(super) struct Signals(Vec<(Signal, UnixStream)>);

impl Signals {
    /// From now on signals don't do what they usually do. Those that whoever started us had ignored stay ignored.
    pub fn listen() -> std::io::Result<Self> {
        let mut pipes = Vec::new();
        for signal in HEARD.into_iter().filter(|&signal| !is_ignored(signal)) {
            let (ear, mouth) = UnixStream::pair()?;
            ear.set_nonblocking(true)?;
            signal_hook::low_level::pipe::register(signal.as_raw(), mouth)?;
            pipes.push((signal, ear));
        }
        Ok(Self(pipes))
    }

    /// Waits for signals; none when the time is over.
    pub fn wait(&self, timeout: Duration) -> Vec<Signal> {
        let mut fds: Vec<_> = self.0.iter().map(|(_, ear)| PollFd::new(ear, PollFlags::IN)).collect();
        let _ = poll(&mut fds, Timespec::try_from(timeout).ok().as_ref());
        let mut buffer = [0; 64];
        let heard = self.0.iter().filter(|(_, ear)| (&*ear).read(&mut buffer).is_ok_and(|count| count > 0));
        heard.map(|&(signal, _)| signal).collect()
    }
}

/// Has the kernel keep how our children end until we ask: whoever started us may ignore SIGCHLD, and then it doesn't.
pub(crate) fn heed_children() -> std::io::Result<()> {
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
