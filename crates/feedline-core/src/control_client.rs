//! Asks a server for its numbers, or to stop, without a cursor and without its memory.
//!
//! A client costs the feed nothing but the answers: the control thread gives them; the producer and the consumers don't notice.

use std::time::{Duration, Instant};

use feedline_shm::peer::Peer;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::access::Allow;
use crate::consumer::connect_to;
use crate::error::{Error, FailureKind};
use crate::explain::{Explanation, Reader};
use crate::names;
use crate::stats::ServerStats;
use crate::wire::{Channel, MAGIC, Reply, Request, VERSION, WireError};

/// A connection to a server.
#[derive(Debug)]
pub struct ControlClient {
    name: String,
    channel: Channel,
    server: Peer,
    /// Questions without an answer, and when the first of them was asked.
    unanswered: u32,
    asked: Instant,
    end_notice: Option<EndNotice>,
}

/// A server's last message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndNotice {
    /// "ended", "stopped" or "failed", as in [`ServerStats::state`].
    pub state: &'static str,
    /// The reason, for a person; empty if there is nothing to add.
    pub text: String,
}

/// A server that is stopped is sent no more than this many questions.
const MOST_UNANSWERED: u32 = 4;

impl ControlClient {
    /// Connects to the feed of that name, at once or not at all.
    pub fn connect(name: &str) -> Result<Self, Error> {
        let path = names::socket_path(name)?;
        let Some((mut channel, server)) = connect_to(&path, &Allow::default(), owner)? else {
            // A server with a full queue accepts nobody any more.
            if let Some(pid) = names::server_of(&path) {
                return Err(silent(name, pid));
            }
            return Err(Error::NotFound { name: name.to_owned(), waited_secs: 0.0, running: names::running_text() });
        };
        let hello = Request::Hello { magic: MAGIC, version: VERSION, consumer: false };
        let sent = channel.send(&hello, vec![]);
        let client =
            Self { name: name.to_owned(), channel, server, unanswered: 0, asked: Instant::now(), end_notice: None };
        sent.map_err(|error| client.lost(&error))?;
        Ok(client)
    }

    /// The server's process.
    pub fn server_pid(&self) -> u32 {
        self.server.pid
    }

    /// The server's numbers. A server that doesn't answer in this time is stopped, or its machine is very busy; it may be asked
    /// again.
    pub fn stats(&mut self, timeout: Duration) -> Result<ServerStats, Error> {
        self.ask_stats()?;
        self.receive_stats(timeout)
    }

    /// Asks for the numbers without waiting for the answer: several servers can be asked at once.
    pub fn ask_stats(&mut self) -> Result<(), Error> {
        if self.unanswered == 0 {
            self.asked = Instant::now();
        }
        if self.unanswered < MOST_UNANSWERED {
            self.ask(&Request::Stats)?;
            self.unanswered += 1;
        }
        Ok(())
    }

    /// The answer to the last question.
    pub fn receive_stats(&mut self, timeout: Duration) -> Result<ServerStats, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            match self.receive(deadline)? {
                Some(Reply::Stats(stats)) => {
                    self.unanswered = self.unanswered.saturating_sub(1);
                    // Earlier questions were asked when the server didn't answer.
                    if self.unanswered == 0 {
                        return Ok(self.as_seen_from_here(*stats));
                    }
                }
                Some(Reply::Refused { why, .. }) => return Err(Error::Protocol(why)),
                Some(Reply::Failed(failure)) if failure.kind != FailureKind::Stopped => {
                    return Err(Error::Failed(failure));
                }
                Some(_) => {}
                None => {
                    let what = format!(
                        "feed {:?} (pid {}) has not answered for {:.1} s",
                        self.name,
                        self.server.pid,
                        self.asked.elapsed().as_secs_f64()
                    );
                    return Err(Error::Stalled(what.into()));
                }
            }
        }
    }

    /// A server in another pid namespace has other process numbers: its process 1 is not our process 1.
    fn as_seen_from_here(&self, mut stats: ServerStats) -> ServerStats {
        if stats.pid != self.server.pid {
            stats.pid = self.server.pid;
            stats.consumers.iter_mut().for_each(|consumer| consumer.pid = 0);
            stats.pool.iter_mut().for_each(|pool| pool.forker_pid = 0);
            stats.events.iter_mut().for_each(|event| event.pid = None);
        }
        stats
    }

    /// Ends the feed and waits until its server has confirmed it. False if it has not in this time.
    pub fn stop(mut self, timeout: Duration) -> Result<bool, Error> {
        self.ask(&Request::Stop)?;
        let deadline = Instant::now() + timeout;
        loop {
            match self.receive(deadline) {
                Ok(Some(Reply::Refused { why, .. })) => return Err(Error::Protocol(why)),
                Ok(Some(_)) => {}
                Ok(None) => return Ok(false),
                // The server has closed the connection, as we asked it to.
                Err(_) => break,
            }
        }
        while names::server_of(&names::socket_path(&self.name)?) == Some(self.server.pid) {
            if Instant::now() >= deadline {
                return Ok(false);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(true)
    }

    /// What the server said when it ended; `None` if it has not ended, or could not say anything.
    pub fn end_notice(&mut self) -> Option<EndNotice> {
        while let Ok(Some(_)) = self.receive(Instant::now()) {}
        self.end_notice.clone()
    }

    fn ask(&mut self, request: &Request) -> Result<(), Error> {
        let sent = self.channel.send(request, vec![]);
        sent.map_err(|error| self.lost(&error))
    }

    /// The next message; `None` when the time is over.
    fn receive(&mut self, deadline: Instant) -> Result<Option<Reply>, Error> {
        loop {
            let received = self.channel.receive::<Reply>();
            if let Some((reply, _)) = received.map_err(|error| self.lost(&error))? {
                match &reply {
                    Reply::Ended => self.end_notice = Some(EndNotice { state: "ended", text: String::new() }),
                    Reply::Failed(failure) => {
                        let state = if failure.kind == FailureKind::Stopped { "stopped" } else { "failed" };
                        self.end_notice = Some(EndNotice { state, text: failure.message.worded(Reader::CommandLine) });
                    }
                    _ => {}
                }
                return Ok(Some(reply));
            }
            if self.server.is_dead() {
                return Err(self.lost(&WireError::Closed));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            let mut fds = vec![PollFd::new(&self.channel, PollFlags::IN)];
            fds.extend(self.server.pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
            let _ = poll(&mut fds, Timespec::try_from(left).ok().as_ref());
        }
    }

    fn lost(&self, error: &WireError) -> Error {
        let what = format!("lost the server of feed {:?} (pid {}): {error}", self.name, self.server.pid);
        Error::ServerLost(what.into())
    }
}

fn owner(uid: u32) -> String {
    format!("user {uid} and root can look at it and end it")
}

fn silent(name: &str, pid: u32) -> Error {
    let what = format!("feed {name:?} (pid {pid}) does not answer: its process is stopped, or very busy");
    let way_out = format!("let it go on with kill -CONT {pid}, or end it with kill -9 {pid}");
    Error::Stalled(Explanation::new(what).hint(way_out))
}
