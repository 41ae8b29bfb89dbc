//! The connection to a server: finding it, the handshake, its messages, its death.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use feedline_shm::peer::Peer;
use feedline_shm::{CursorHandle, Doorbell, HeadReader};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use feedline_protocol::consumer::MIN_TIMEOUT;

use super::messages::{silent_error, warn_of_loader};
use super::{Check, Config, WhenMissing};
use crate::access::Allow;
use crate::error::{Error, Failure, FailureKind};
use crate::explain::Explanation;
use crate::ring_info::RingInfo;
use crate::wire::{Channel, MAGIC, MAX_ORDER, Reply, Request, Stuck, VERSION, WireError};
use crate::{names, proc};

const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
const RETRY: Duration = Duration::from_millis(25);
/// A server that was started together with us may take this long; after that the name may be mistyped.
const LONG_WAIT: Duration = Duration::from_secs(5);
/// How long before the end of the wait to ask what the loader does.
const LAST_QUESTION: Duration = Duration::from_secs(2);

/// What can come over a connection.
pub(super) enum Event {
    Reply(Reply, Vec<OwnedFd>),
    Lost,
}

/// What a welcome brings.
pub(super) struct Welcome {
    pub ring: RingInfo,
    pub run: Option<u64>,
    pub order: Arc<str>,
    pub head: HeadReader,
    pub memory: OwnedFd,
    pub page: CursorHandle,
    pub bell: Doorbell,
}

pub(super) struct Link {
    channel: Channel,
    server: Peer,
    open: bool,
    failure: Option<Failure>,
}

/// Connects, without a handshake. `None` if nobody is there. `way_in` says what to do about a server of another user.
pub(crate) fn connect_to(
    path: &std::path::Path,
    allow: &Allow,
    way_in: impl Fn(u32) -> String,
) -> Result<Option<(Channel, Peer)>, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(Error::io("making a socket"))?;
    let address = SocketAddrUnix::new(path).map_err(Error::io("naming a socket"))?;
    match connect(&socket, &address) {
        Ok(()) => {}
        // AGAIN: its queue is full, it will have time soon.
        Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::NOTDIR | Errno::INTR) => return Ok(None),
        Err(Errno::ACCESS) => {
            let uid = rustix::process::geteuid().as_raw();
            return Err(Error::Protocol(format!(
                "{} is not open to user {uid}\n  its owner can let you in: Server(..., allow=({uid},)), in a folder \
                 that you can reach",
                path.display(),
            )));
        }
        Err(errno) => return Err(Error::Folder { path: path.to_owned(), why: errno.to_string() }),
    }
    let server = Peer::of(&socket)?;
    // A worker of a dead server may still hold the listening socket open.
    if server.is_dead() {
        return Ok(None);
    }
    if !allow.permits(&server) {
        return Err(Error::Protocol(format!(
            "the server at {} (pid {}) belongs to user {}, and what it sends is taken only from yourself and root\n  \
             {}",
            path.display(),
            server.pid,
            server.uid,
            way_in(server.uid),
        )));
    }
    Ok(Some((Channel::for_consumer(socket), server)))
}

fn trust(uid: u32) -> String {
    format!("if you trust that user, attach with allow=({uid},)")
}

impl Link {
    /// Finds a server and waits until it has its first batch; says what it waits for, unless it `has_said` so.
    pub fn open(
        config: &Config,
        timeout: Duration,
        mut has_said: bool,
        check: Check<'_>,
    ) -> Result<(Self, Welcome), Error> {
        let Config { name, allow, when_missing, .. } = config;
        let path = names::socket_path(name)?;
        let began = Instant::now();
        loop {
            let mut closed_by = None;
            if let Some((channel, server)) = connect_to(&path, allow, trust)? {
                let mut link = Self { channel, server, open: true, failure: None };
                link.send(&Request::Hello { magic: MAGIC, version: VERSION, consumer: true })?;
                link.send(&Request::Ping)?;
                if let Some(welcome) = link.await_welcome(name, began, timeout, check)? {
                    return Ok((link, welcome));
                }
                closed_by = (!link.server.is_dead()).then_some(link.server.pid);
            }
            if began.elapsed() >= timeout {
                let waited_secs = timeout.as_secs_f64();
                if let Some(pid) = closed_by {
                    return Err(full_error(name, pid, waited_secs));
                }
                return Err(Error::NotFound { name: name.clone(), waited_secs, running: names::running_text() });
            }
            check()?;
            if !has_said && closed_by.is_none() && began.elapsed() >= LONG_WAIT {
                has_said = true;
                let secs = timeout.as_secs_f64();
                tracing::warn!(
                    "waiting up to {secs} s for a feed named {name:?}\n  running now: {}",
                    names::running_text()
                );
            }
            if let Some(WhenMissing(act)) = when_missing {
                act()?;
            }
            std::thread::sleep(RETRY.min(timeout.saturating_sub(began.elapsed())));
        }
    }

    /// `None` if the server went away meanwhile: another one may come.
    fn await_welcome(
        &mut self,
        name: &str,
        began: Instant,
        timeout: Duration,
        check: Check<'_>,
    ) -> Result<Option<Welcome>, Error> {
        let (mut has_answered, mut has_asked) = (false, false);
        let mut stuck: Option<Stuck> = None;
        loop {
            match self.wait(check)? {
                Some(Event::Reply(Reply::Welcome { ring, run, order }, fds)) => {
                    return unpack(ring, run, &order, fds).map(Some);
                }
                Some(Event::Reply(Reply::Refused { why }, _)) => return Err(Error::Protocol(why)),
                Some(Event::Reply(Reply::Pong, _)) => has_answered = true,
                Some(Event::Reply(Reply::Stuck(word), _)) => {
                    // The answer to our own question goes into the error.
                    if !has_asked {
                        warn_of_loader(name, self.server.pid, &word);
                    }
                    stuck = Some(word);
                }
                Some(Event::Reply(..)) => {}
                Some(Event::Lost) => {
                    return match self.failure.take() {
                        Some(failure) if failure.kind != FailureKind::Stopped => Err(Error::Failed(failure)),
                        _ => Ok(None),
                    };
                }
                None => {}
            }
            let waited = began.elapsed();
            if !has_asked && waited >= timeout.saturating_sub(LAST_QUESTION).max(timeout / 2) {
                has_asked = true;
                self.send(&Request::Diagnose)?;
            }
            if waited >= timeout {
                let is_silent = proc::is_stopped(self.server.pid) || (!has_answered && waited >= MIN_TIMEOUT);
                return Err(if is_silent {
                    silent_error(name, self.server.pid, waited)
                } else {
                    self.no_batch_error(name, timeout, stuck.as_ref())
                });
            }
        }
    }

    fn no_batch_error(&self, name: &str, timeout: Duration, stuck: Option<&Stuck>) -> Error {
        let what = format!(
            "feed {name:?} (pid {}) has not yielded its first batch in {} s{}",
            self.server.pid,
            timeout.as_secs_f64(),
            stuck.map_or_else(String::new, |stuck| format!("\n{}", stuck.place)),
        );
        let way_out = "check what its loader does, or wait longer with timeout_secs=";
        Error::Stalled(Explanation::new(what).hint(way_out))
    }

    pub fn server_pid(&self) -> u32 {
        self.server.pid
    }

    pub fn send(&mut self, request: &Request) -> Result<(), Error> {
        // A closed socket is noticed when it is read: the server may have said why before it went.
        match self.channel.send(request, vec![]) {
            Ok(()) | Err(WireError::Closed) => Ok(()),
            Err(error) => Err(Error::Protocol(error.to_string())),
        }
    }

    /// The next message of the server, or, once there are no more, that it is gone.
    pub fn event(&mut self) -> Option<Event> {
        if !self.open {
            return Some(Event::Lost);
        }
        let mut heard = self.channel.receive::<Reply>();
        if matches!(heard, Ok(None)) {
            if !self.server.is_dead() {
                return None;
            }
            // A dead process is dead, even if a child of it holds the socket open; but it may have sent something between the two
            // checks.
            heard = self.channel.receive::<Reply>();
        }
        let Ok(Some((reply, fds))) = heard else {
            self.open = false;
            return Some(Event::Lost);
        };
        if let Reply::Failed(failure) = &reply {
            self.failure = Some(failure.clone());
        }
        Some(Event::Reply(reply, fds))
    }

    /// Waits for a message, for at most a tenth of a second.
    pub fn wait(&mut self, check: Check<'_>) -> Result<Option<Event>, Error> {
        if let Some(event) = self.event() {
            return Ok(Some(event));
        }
        let mut fds = vec![PollFd::new(&self.channel, PollFlags::IN)];
        fds.extend(self.server.pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        let _ = poll(&mut fds, Some(&SLICE));
        check()?;
        Ok(self.event())
    }

    /// Why the feed is over, once the server has said so; it has a second to do that.
    pub fn failure(&mut self) -> Option<Failure> {
        let began = Instant::now();
        while self.failure.is_none() && self.open && began.elapsed() < Duration::from_secs(1) {
            let _ = self.wait(&mut || Ok(()));
        }
        self.failure.clone()
    }

    pub fn lost_error(&self, name: &str) -> Error {
        let what = format!("lost the server of feed {name:?} (pid {}): it died or was killed", self.server.pid);
        let way_out = "start it again and attach again; what was read so far was right";
        Error::ServerLost(Explanation::new(what).hint(way_out))
    }
}

fn full_error(name: &str, pid: u32, waited_secs: f64) -> Error {
    let what = format!(
        "feed {name:?} (pid {pid}) has accepted nobody else for {waited_secs} s: it has as many consumers as it can"
    );
    Error::Stalled(Explanation::new(what).hint(
        "end some, or start its server with a higher `ulimit -n`: it takes one for 8 descriptors, and 1024 at most",
    ))
}

fn unpack(ring: RingInfo, run: Option<u64>, order: &str, fds: Vec<OwnedFd>) -> Result<Welcome, Error> {
    if order.len() > MAX_ORDER {
        return Err(Error::Protocol("the server's welcome has a name for its order that is too long".into()));
    }
    let mut fds = fds.into_iter();
    let (Some(head), Some(memory), Some(page), Some(bell)) = (fds.next(), fds.next(), fds.next(), fds.next()) else {
        return Err(Error::Protocol("the server's welcome lacks descriptors".into()));
    };
    Ok(Welcome {
        ring,
        run,
        order: order.into(),
        head: HeadReader::accept(head)?,
        memory,
        page: CursorHandle::accept(page)?,
        bell: Doorbell::accept(bell)?,
    })
}
