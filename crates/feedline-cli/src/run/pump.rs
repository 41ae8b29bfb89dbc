//! Forwards a job's output to our own streams, on a thread of its own: a slow reader of our output must not delay signals to the
//! jobs.

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStderr, ChildStdout};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::lines::Lines;
use crate::output::is_coloured;

/// How long processes that a job left running may keep its pipes open after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Colours of the prefixes: cyan, yellow, green, magenta, blue, red.
const COLOURS: [u8; 6] = [36, 33, 32, 35, 34, 31];

/// The thread. It ends with the streams, or a moment after [`Self::let_go`] has said that the job has ended.
pub(super) struct Pump {
    thread: JoinHandle<()>,
    leash: Option<UnixStream>,
}

impl Pump {
    /// Takes the child's pipes.
    pub fn start(child: &mut Child, label: &str, number: usize) -> std::io::Result<Self> {
        let (leash, end) = UnixStream::pair()?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let lines = |is_coloured: bool| Lines::new(prefix(label, number, is_coloured), is_coloured);
        let mut streams = Vec::new();
        if let Some(pipe) = stdout {
            let sink = std::io::stdout();
            streams.push(Stream { lines: lines(is_coloured(&sink)), pipe: Pipe::Out(pipe), sink: Box::new(sink) });
        }
        if let Some(pipe) = stderr {
            let sink = std::io::stderr();
            streams.push(Stream { lines: lines(is_coloured(&sink)), pipe: Pipe::Err(pipe), sink: Box::new(sink) });
        }
        let thread =
            std::thread::Builder::new().name(format!("output of {label}")).spawn(move || run(streams, &end))?;
        Ok(Self { thread, leash: Some(leash) })
    }

    /// Tells it that the job has ended.
    pub fn let_go(&mut self) {
        self.leash = None;
    }

    pub fn is_done(&self) -> bool {
        self.thread.is_finished()
    }
}

fn prefix(label: &str, number: usize, is_coloured: bool) -> Vec<u8> {
    let colour = COLOURS[number % COLOURS.len()];
    if is_coloured { format!("\x1b[{colour}m[{label}]\x1b[0m ") } else { format!("[{label}] ") }.into_bytes()
}

enum Pipe {
    Out(ChildStdout),
    Err(ChildStderr),
}

impl Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Out(pipe) => pipe.as_fd(),
            Self::Err(pipe) => pipe.as_fd(),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Out(pipe) => pipe.read(buffer),
            Self::Err(pipe) => pipe.read(buffer),
        }
    }
}

struct Stream {
    lines: Lines,
    pipe: Pipe,
    sink: Box<dyn Write + Send>,
}

impl Stream {
    /// Forwards what is there; false at the end. Once nobody reads our stream, the job's own writes fail too.
    fn carry(&mut self, buffer: &mut [u8]) -> bool {
        let mut out = Vec::new();
        let goes_on = match self.pipe.read(buffer) {
            Ok(0) => {
                self.lines.finish(&mut out);
                false
            }
            Ok(count) => {
                self.lines.take(&buffer[..count], Instant::now(), &mut out);
                true
            }
            Err(error) => error.kind() == ErrorKind::Interrupted,
        };
        goes_on & self.write(&out)
    }

    fn write(&mut self, out: &[u8]) -> bool {
        out.is_empty() || self.sink.write_all(out).and_then(|()| self.sink.flush()).is_ok()
    }
}

fn run(mut streams: Vec<Stream>, leash: &UnixStream) {
    let mut buffer = vec![0; 64 << 10];
    let mut deadline: Option<Instant> = None;
    while !streams.is_empty() {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut fds: Vec<_> =
            streams.iter().map(|stream| PollFd::from_borrowed_fd(stream.pipe.as_fd(), PollFlags::IN)).collect();
        if deadline.is_none() {
            fds.push(PollFd::new(leash, PollFlags::IN));
        }
        if poll(&mut fds, timeout.as_ref()).is_err() {
            continue;
        }
        let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
        if deadline.is_none() && ready.last() == Some(&true) {
            deadline = Some(Instant::now() + LAST_WORDS);
        }
        if left.is_some_and(|left| left.is_zero()) {
            break;
        }
        let mut ready = ready.into_iter();
        streams.retain_mut(|stream| !ready.next().unwrap_or(false) || stream.carry(&mut buffer));
    }
    for stream in &mut streams {
        let mut out = Vec::new();
        stream.lines.finish(&mut out);
        stream.write(&out);
    }
}
