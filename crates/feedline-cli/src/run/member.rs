//! One process of a run: a job, or the feed. It leads a process group, which its own children belong to.

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
    /// Its log file, if it has one.
    pub log: Option<PathBuf>,
    child: Child,
    pump: Option<Pump>,
    began: Instant,
    pub end: Option<End>,
}

/// A file for all output of a process.
pub(super) struct Log {
    pub path: PathBuf,
    pub file: File,
}

/// How it ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    pub status: Status,
    pub after: Duration,
    /// Whether we ended it.
    pub ended_by_us: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Code(u8),
    Signal(i32),
    /// Another part of the program has reaped it.
    Unknown,
}

impl Status {
    fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(u8::try_from(code & 0xff).unwrap_or(1)),
            (None, number) => Self::Signal(number.unwrap_or(0)),
        }
    }

    /// As a shell reports it.
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
    /// Starts the process; its output gets a prefix, or goes to a log.
    pub fn start(
        mut command: Command,
        label: String,
        number: usize,
        is_feed: bool,
        log: Option<Log>,
    ) -> std::io::Result<Self> {
        // Several jobs can't share a keyboard, and a job in a group of its own would be stopped when it reads from the terminal.
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

    /// Checks whether the process has ended; if it has just ended, closes what belongs to it.
    pub fn poll_end(&mut self, ended_by_us: bool) -> Option<End> {
        if self.end.is_some() {
            return None;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let status = match waitid(WaitId::Pid(Pid::from_child(&self.child)), options) {
            Ok(status) => Status::of(&status?),
            Err(_) => Status::Unknown,
        };
        self.end = Some(End { status, after: self.began.elapsed(), ended_by_us });
        // What the process has left running ends with it.
        self.signal(Signal::TERM);
        if let Some(pump) = &mut self.pump {
            pump.let_go();
        }
        self.end
    }

    /// Whether all of its output is written.
    pub fn has_written_all(&self) -> bool {
        self.pump.as_ref().is_none_or(Pump::is_done)
    }

    /// Reaps it, which frees its process id, after a last signal to its children.
    pub fn reap(&mut self) {
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_was_reaped_elsewhere_has_ended() {
        let mut member = Member::start(Command::new("true"), "0".into(), 0, false, None).unwrap();
        waitid(WaitId::Pid(Pid::from_child(&member.child)), WaitIdOptions::EXITED).unwrap();
        let end = member.poll_end(false).unwrap();
        assert_eq!((end.status.code(), end.status.text().as_str()), (1, "unknown"));
        assert!(member.poll_end(false).is_none());
    }
}
