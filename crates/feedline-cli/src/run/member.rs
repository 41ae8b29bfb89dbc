//! One process of a run: a job, or the feed. It leads a process group, which its own children are in.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use feedline_core::proc::die_with_parent;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group, waitid};
use std::os::unix::process::CommandExt;

use super::pump::Pump;

pub(super) struct Member {
    /// "0", "1", ..., or "feed".
    pub label: String,
    pub is_feed: bool,
    /// Where it writes to, if that is a file.
    pub log: Option<PathBuf>,
    child: Child,
    pump: Option<Pump>,
    began: Instant,
    pub end: Option<End>,
}

/// A file for all that it writes.
pub(super) struct Log {
    pub path: PathBuf,
    pub file: File,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub status: Status,
    pub after: Duration,
    /// It was told to.
    pub was_told: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Code(u8),
    Signal(i32),
    /// Somebody else was told.
    Unknown,
}

impl Status {
    fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(u8::try_from(code & 0xff).unwrap_or(1)),
            (None, number) => Self::Signal(number.unwrap_or(0)),
        }
    }

    /// As a shell counts.
    pub fn code(self) -> u8 {
        match self {
            Self::Code(code) => code,
            Self::Signal(number) => 128_u8.saturating_add(u8::try_from(number).unwrap_or(127)),
            Self::Unknown => 1,
        }
    }

    pub fn text(self) -> String {
        match self {
            Self::Code(code) => code.to_string(),
            Self::Signal(number) => signal_hook::low_level::signal_name(number)
                .map_or_else(|| format!("signal {number}"), ToOwned::to_owned),
            Self::Unknown => "unknown".into(),
        }
    }
}

impl Member {
    /// Starts it; what it writes gets a prefix, or goes to a log.
    pub fn start(
        mut command: Command,
        label: String,
        number: usize,
        is_feed: bool,
        log: Option<Log>,
    ) -> std::io::Result<Self> {
        // Nobody types into several jobs at once, and in a group of its own a job would be stopped for reading a terminal.
        command.stdin(Stdio::null()).process_group(0);
        die_with_parent(&mut command, Signal::TERM);
        let log = if let Some(Log { path, file }) = log {
            command.stdout(file.try_clone()?).stderr(file);
            Some(path)
        } else {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            None
        };
        let began = Instant::now();
        let child = command.spawn()?;
        let mut member = Self { label, is_feed, log, child, pump: None, began, end: None };
        if member.log.is_none() {
            let pump = Pump::start(&mut member.child, &member.label, number);
            member.pump = Some(pump.inspect_err(|_| member.reap())?);
        }
        Ok(member)
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn name(&self) -> String {
        if self.is_feed { "the feed".into() } else { format!("job {}", self.label) }
    }

    /// Sends a signal to it and its children. Until `reap` the group's number can't be anybody else's.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process_group(Pid::from_child(&self.child), signal);
    }

    /// Looks whether it has ended, and if it has just now, lets go of it.
    pub fn look(&mut self, was_told: bool) -> Option<End> {
        if self.end.is_some() {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match waitid(WaitId::Pid(Pid::from_child(&self.child)), options) {
            Ok(status) => Status::of(&status?),
            Err(_) => Status::Unknown,
        };
        self.end = Some(End { status, after: self.began.elapsed(), was_told });
        // What it has left running ends with it.
        self.signal(Signal::TERM);
        if let Some(pump) = &mut self.pump {
            pump.let_go();
        }
        self.end
    }

    /// Whether all that it wrote is written.
    pub fn is_silent(&self) -> bool {
        self.pump.as_ref().is_none_or(Pump::is_done)
    }

    /// Frees its number, after a last word to its children.
    pub fn reap(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_whose_end_somebody_else_was_told_of_has_ended() {
        let mut member = Member::start(Command::new("true"), "0".into(), 0, false, None).unwrap();
        waitid(WaitId::Pid(Pid::from_child(&member.child)), WaitIdOptions::EXITED).unwrap();
        let end = member.look(false).unwrap();
        assert_eq!((end.status.code(), end.status.text().as_str()), (1, "unknown"));
        assert!(member.look(false).is_none());
    }
}
