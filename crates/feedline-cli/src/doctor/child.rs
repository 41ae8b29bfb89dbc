//! A second process with a time limit.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The process is killed when this is dropped.
pub(super) struct SecondProcess {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    complaints: Receiver<String>,
}

/// Why there is no line from it.
pub(super) enum Silence {
    /// The time is over.
    Late,
    /// The process ended; with the last line of its standard error.
    Ended(String),
}

impl SecondProcess {
    pub(super) fn start(command: &mut Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (line_sender, lines) = channel();
        let (complaint_sender, complaints) = channel();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        // Threads read the pipes, because children of the process may hold them open for longer than it lives.
        std::thread::spawn(move || {
            for line in stdout.into_iter().flat_map(|stdout| BufReader::new(stdout).lines()).map_while(Result::ok) {
                let _ = line_sender.send(line);
            }
        });
        std::thread::spawn(move || {
            let mut text = Vec::new();
            if let Some(mut stderr) = stderr {
                let _ = stderr.read_to_end(&mut text);
            }
            let _ = complaint_sender.send(String::from_utf8_lossy(&text).into_owned());
        });
        let stdin = child.stdin.take();
        Ok(Self { child, stdin, lines, complaints })
    }

    /// A process that is gone doesn't read it.
    pub(super) fn send(&mut self, line: &str) {
        if let Some(stdin) = &mut self.stdin {
            let _ = writeln!(stdin, "{line}").and_then(|()| stdin.flush());
        }
    }

    /// The next line that it writes.
    pub(super) fn next_line(&mut self, deadline: Instant) -> Result<String, Silence> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.lines.recv_timeout(left) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(Silence::Late),
            Err(RecvTimeoutError::Disconnected) => Err(Silence::Ended(self.stderr_tail(deadline))),
        }
    }

    fn stderr_tail(&mut self, deadline: Instant) -> String {
        let complaints = self.complaints.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
        let last = complaints.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default().trim().to_owned();
        let status = self.wait(deadline.max(Instant::now() + Duration::from_secs(1)));
        match status {
            Some(status) if last.is_empty() => format!("it ended with {status}"),
            Some(status) if status.code().is_none() => format!("it ended with {status}: {last}"),
            _ => last,
        }
    }

    fn wait(&mut self, deadline: Instant) -> Option<ExitStatus> {
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            if Instant::now() >= deadline {
                return None;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for SecondProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        // A process that is deep inside a driver may take long to die; we don't wait for that.
        self.wait(Instant::now() + Duration::from_secs(2));
    }
}
