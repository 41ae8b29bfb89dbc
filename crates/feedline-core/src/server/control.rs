//! The thread that talks to consumers: handshakes, joins, leaves, deaths, failures.
//!
//! It never blocks on a peer: sockets don't block, messages are bounded, and a peer that is silent in its handshake or
//! doesn't speak the protocol is dropped.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_protocol::message::Join;
use feedline_protocol::server::{Delivery, Phase, Violation};
use feedline_shm::peer::Peer;
use feedline_shm::{CursorHandle, Doorbell, fault};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::admission::{self, Admission};
use super::idle_shutdown::ConsumerPresence;
use super::members::Page;
use super::ring::Ring;
use super::watchdog::Watchdog;
use super::{Shared, stats};
use crate::access::is_own;
use crate::error::{Error, Failure, FailureKind};
use crate::limits::available_bytes;
use crate::names::HeldName;
use crate::wire::{Channel, MAGIC, Reply, Request, VERSION, WireError};

/// After that, the connected peers have their turn.
const ACCEPTS_PER_ROUND: usize = 64;
/// After that, it is another connection's turn.
const REQUESTS_PER_ROUND: usize = 16;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long sending the end notices may take.
const END_NOTICE_TIMEOUT: Duration = Duration::from_secs(1);
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Binds the socket and starts the thread. It holds the name until it ends.
pub(super) fn start(shared: Arc<Shared>, held: HeldName) -> Result<JoinHandle<()>, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(Error::io("making a socket"))?;
    let address = SocketAddrUnix::new(held.path()).map_err(Error::io("naming a socket"))?;
    let folder = |errno: rustix::io::Errno| crate::names::unusable(&crate::names::folder(), &errno.into());
    bind(&listener, &address).map_err(folder)?;
    admission::set_up(held.path(), &shared)?;
    listen(&listener, 128).map_err(Error::io("listening"))?;
    let run = move || {
        let mut control = Control {
            shared,
            listener,
            _held: held,
            links: BTreeMap::new(),
            next_id: 0,
            deaf_until: None,
            admission: Admission::default(),
            watchdog: Watchdog::new(),
        };
        control.run();
    };
    std::thread::Builder::new()
        .name("feedline-control".into())
        .spawn(run)
        .map_err(|error| Error::Memory(format!("cannot start a thread: {error}").into()))
}

struct Control {
    shared: Arc<Shared>,
    listener: OwnedFd,
    _held: HeldName,
    links: BTreeMap<u64, Link>,
    next_id: u64,
    /// There were no descriptors left for a connection: when to accept again.
    deaf_until: Option<Instant>,
    admission: Admission,
    watchdog: Watchdog,
}

/// A connection.
struct Link {
    channel: Channel,
    peer: Peer,
    since: Instant,
    stage: Stage,
    /// It announced that it leaves.
    says_bye: bool,
    /// Set while it is attached, or may be about to attach.
    presence: Option<ConsumerPresence>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Has not said hello.
    New,
    /// Waits for the first ring.
    Waiting,
    /// Has the memory.
    Attached,
    /// Only asks questions: a control client.
    ControlClient,
}

impl Control {
    fn run(&mut self) {
        loop {
            self.sleep(self.deaf_until.is_none());
            self.accept();
            let ids: Vec<u64> = self.links.keys().copied().collect();
            for id in ids {
                self.serve(id);
            }
            self.reap();
            self.deliver();
            self.admit();
            self.linger();
            self.watch();
            if self.send_end_notices() {
                self.watchdog.end();
                return;
            }
        }
    }

    fn sleep(&self, listening: bool) {
        let mut fds = vec![PollFd::new(&self.shared.control_bell, PollFlags::IN)];
        if listening {
            fds.push(PollFd::new(&self.listener, PollFlags::IN));
        }
        for link in self.links.values() {
            // A peer that doesn't read what it is sent gets no further answers.
            let interest = if link.channel.has_outgoing() { PollFlags::OUT } else { PollFlags::IN };
            fds.push(PollFd::new(&link.channel, interest));
            fds.extend(link.peer.pidfd.iter().map(|pidfd| PollFd::new(pidfd, PollFlags::IN)));
        }
        let _ = poll(&mut fds, Some(&SLICE));
        self.shared.control_bell.clear();
    }

    fn accept(&mut self) {
        if self.deaf_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        self.deaf_until = None;
        for _ in 0..ACCEPTS_PER_ROUND {
            let socket = match accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) => {
                    let name = &self.shared.name;
                    tracing::warn!("feed {name:?}: nobody can attach for a second: {error}");
                    self.deaf_until = Some(Instant::now() + Duration::from_secs(1));
                    return;
                }
            };
            let Ok(peer) = Peer::of(socket.as_fd()) else { continue };
            let mut channel = Channel::for_server(socket);
            if !self.admission.admits(&self.shared, &peer, &mut channel, self.links.values().map(|link| &link.peer)) {
                continue;
            }
            let link = Link {
                channel,
                peer,
                since: Instant::now(),
                stage: Stage::New,
                says_bye: false,
                presence: self.shared.launch.idle_shutdown.attach(),
            };
            self.links.insert(self.next_id, link);
            self.next_id += 1;
        }
    }

    /// Reads what one peer sent, and drops it if it is gone or wrong.
    fn serve(&mut self, id: u64) {
        let outcome = self.converse(id);
        let Some(link) = self.links.get(&id) else { return };
        let name = &self.shared.name;
        let pid = link.peer.pid;
        let is_late = link.stage == Stage::New && link.since.elapsed() > HANDSHAKE;
        match outcome {
            Ok(()) if is_late => tracing::warn!("feed {name:?}: dropped pid {pid}: it said nothing"),
            Ok(()) => return,
            Err(WireError::Closed) => {}
            Err(error) => tracing::warn!("feed {name:?}: dropped pid {pid}: {error}"),
        }
        self.drop_link(id);
    }

    /// Forgets ranks that wait for others and have died.
    fn reap(&self) {
        if self.shared.change(|state| state.machine.reap()) {
            self.shared.producer_bell.ring();
        }
    }

    fn drop_link(&mut self, id: u64) {
        let Some(Link { peer, says_bye, .. }) = self.links.remove(&id) else { return };
        let shared = &self.shared;
        let was_attached =
            shared.change(|state| state.machine.disconnect(id, &peer, says_bye, &shared.head, shared.meter.time()));
        if was_attached {
            shared.producer_bell.ring();
        }
    }

    fn converse(&mut self, id: u64) -> Result<(), WireError> {
        let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
        link.channel.flush()?;
        for _ in 0..REQUESTS_PER_ROUND {
            let Some(link) = self.links.get_mut(&id) else { return Ok(()) };
            if link.channel.has_outgoing() {
                return if link.peer.is_dead() { Err(WireError::Closed) } else { Ok(()) };
            }
            let Some((request, _)) = link.channel.receive::<Request>()? else {
                // What it sent before it died counts; then it is gone, even if a child of it holds the socket open.
                return if link.peer.is_dead() { Err(WireError::Closed) } else { Ok(()) };
            };
            match request {
                Request::Hello { magic, version, consumer } => {
                    if magic != MAGIC || link.stage != Stage::New {
                        return Err(WireError::Malformed("an unexpected hello"));
                    }
                    if version != VERSION {
                        let why =
                            format!("the server speaks version {VERSION} of the protocol, this consumer {version}");
                        link.channel.send(&Reply::Refused { why }, vec![])?;
                        return Err(WireError::Malformed("another version of the protocol"));
                    }
                    link.stage = if consumer { Stage::Waiting } else { Stage::ControlClient };
                    if !consumer {
                        link.presence = None;
                    }
                    let peer = link.peer.clone();
                    let others = self.links.values().filter(|link| link.is_consumer()).count() - usize::from(consumer);
                    if consumer && !self.admission.has_place(&self.shared, &peer, others) {
                        return Err(WireError::Closed);
                    }
                    if consumer {
                        self.shared.lock().machine.expect(id, peer);
                    }
                }
                Request::Join(join) => self.join(id, join)?,
                Request::Leave => self.leave(id),
                Request::Bye => link.says_bye = true,
                Request::Stats => {
                    if link.stage == Stage::New {
                        return Err(WireError::Malformed("a question before hello"));
                    }
                    let stats = stats(&self.shared);
                    link.channel.send(&Reply::Stats(Box::new(stats)), vec![])?;
                }
                Request::Stop => {
                    if link.stage == Stage::New {
                        return Err(WireError::Malformed("a request before hello"));
                    }
                    if !is_own(&link.peer) {
                        let why = format!("only the user that feed {:?} belongs to may end it", self.shared.name);
                        link.channel.send(&Reply::Refused { why }, vec![])?;
                        continue;
                    }
                    let message = format!("pid {} told its server to stop (feedline stop)", link.peer.pid);
                    self.shared.break_off(Failure::new(FailureKind::Stopped, message));
                    // A feed that has failed already gives its name back.
                    self.shared.lock().is_closing = true;
                }
                Request::Ping | Request::Diagnose if !link.is_consumer() => {
                    return Err(WireError::Malformed("a consumer's question"));
                }
                Request::Ping => link.channel.send(&Reply::Pong, vec![])?,
                Request::Diagnose => self.watchdog.asked(id),
            }
        }
        // There may be more: checked in the next round, after the others.
        self.shared.control_bell.ring();
        Ok(())
    }

    /// Gives a consumer its cursor; `admit` tells it where.
    fn join(&mut self, id: u64, join: Join) -> Result<(), WireError> {
        let shared = &self.shared;
        let joined =
            shared.change(|state| state.machine.join(id, join, &shared.head, available_bytes, shared.meter.time()));
        joined.map_err(|violation| {
            WireError::Malformed(match violation {
                Violation::EarlyJoin => "an early join",
                Violation::SecondJoin => "a second join",
                Violation::ImpossibleRank => "a rank that cannot be",
            })
        })?;
        fault::point("server:join_registered");
        shared.producer_bell.ring();
        Ok(())
    }

    fn leave(&mut self, id: u64) {
        let shared = &self.shared;
        shared.change(|state| state.machine.leave(id, &shared.head, shared.meter.time()));
        fault::point("server:leave_registered");
        shared.producer_bell.ring();
    }

    /// Sends the state machine's messages, the first ring to consumers that wait for it, and a new ring to those that read.
    fn deliver(&mut self) {
        let (deliveries, ring) = {
            let mut state = self.shared.lock();
            // If the feed is over there is nothing to read, and `send_end_notices` tells why.
            let is_over = state.machine.phase().is_broken();
            (state.machine.deliver(), state.ring.clone().filter(|_| !is_over))
        };
        self.send_all(deliveries, ring.as_deref());
        let Some(ring) = ring else { return };
        let waiting = self.links.iter_mut().filter(|(_, link)| link.stage == Stage::Waiting);
        let mut gone = Vec::new();
        for (&id, link) in waiting {
            match welcome(&self.shared, id, link, &ring) {
                Ok(()) => link.stage = Stage::Attached,
                Err(_) => gone.push(id),
            }
        }
        for id in gone {
            self.drop_link(id);
        }
    }

    /// Answers joins once enough consumers have asked.
    fn admit(&mut self) {
        let shared = Arc::clone(&self.shared);
        let ((deliveries, begins), ring) =
            shared.change(|state| (state.machine.admit(&shared.head), state.ring.clone()));
        if begins {
            shared.producer_bell.ring();
        }
        self.send_all(deliveries, ring.as_deref());
    }

    /// Sends each consumer its messages; a broken connection is noticed when it is read.
    fn send_all(&mut self, deliveries: Vec<(u64, Delivery)>, ring: Option<&Ring>) {
        for (id, delivery) in deliveries {
            let Some(link) = self.links.get_mut(&id) else { continue };
            let _ = match (delivery, ring) {
                (Delivery::Answer(answer), _) => {
                    let sent = link.channel.send(&Reply::Answer(answer), vec![]);
                    fault::point("server:join_answered");
                    sent
                }
                (Delivery::Ring, Some(ring)) => {
                    link.channel.send(&Reply::Ring(ring.info.clone()), vec![Arc::clone(&ring.memory)])
                }
                (Delivery::Ring, None) => Ok(()),
            };
        }
    }

    /// Ends the feed some time after the last consumer left, of this feed or of another that this process serves.
    fn linger(&mut self) {
        let (launch, linger) = (&self.shared.launch, self.shared.options.linger_secs);
        if let Some(limit) = launch.idle_shutdown.end_if_idle(launch.first_consumer, linger, Instant::now()) {
            let message = format!("nobody was attached for {:.0} s", limit.as_secs_f64());
            self.shared.break_off(Failure::new(FailureKind::Stopped, message));
        }
    }

    /// Tells consumers about a source that hangs, or gives up on it.
    fn watch(&mut self) {
        let anybody = self.links.values().any(Link::is_consumer);
        if let Some(failure) = self.watchdog.check(&self.shared, anybody) {
            tracing::error!("{}", failure.message.worded(self.shared.launch.reader));
            self.shared.break_off(failure);
            return;
        }
        // A consumer that doesn't read now gets it when it does.
        for (&id, link) in self.links.iter_mut().filter(|(_, link)| link.is_consumer() && !link.channel.has_outgoing())
        {
            if let Some(word) = self.watchdog.reply_for(id) {
                let _ = link.channel.send(&word, vec![]);
            }
        }
    }

    /// At the feed's end: sends everybody the reason, waits until it is sent, and closes; true once the name is to be given back. A
    /// feed
    /// that has failed stays, for consumers that come later.
    fn send_end_notices(&mut self) -> bool {
        let (end_notice, stays) = {
            let state = self.shared.lock();
            let phase = state.machine.phase();
            let end_notice = match (phase, &state.failure) {
                (Phase::Starting | Phase::Running | Phase::Draining, _) => return false,
                (_, Some(failure)) => Reply::Failed(failure.clone()),
                (_, None) => Reply::Ended,
            };
            (end_notice, phase == Phase::Failed && !state.is_closing)
        };
        // Control clients may still ask a feed that has failed.
        let is_notified = |link: &Link| link.stage != Stage::New && !(stays && link.stage == Stage::ControlClient);
        let notified: Vec<u64> = self.links.iter().filter(|(_, link)| is_notified(link)).map(|(&id, _)| id).collect();
        if stays && notified.is_empty() {
            return false;
        }
        fault::point("server:goodbye");
        for link in self.links.values_mut().filter(|link| is_notified(link)) {
            let _ = link.channel.send(&end_notice, vec![]);
        }
        let began = Instant::now();
        while self.links.values().any(|link| link.channel.has_outgoing()) && began.elapsed() < END_NOTICE_TIMEOUT {
            self.sleep(false);
            self.links.retain(|_, link| link.channel.flush().is_ok());
        }
        // A forked worker of the loader may hold the sockets open: closing ours would not end the connection.
        let over = self.links.iter().filter(|(id, _)| !stays || notified.contains(id));
        over.for_each(|(_, link)| link.channel.shut_down());
        if stays {
            notified.into_iter().for_each(|id| self.drop_link(id));
        }
        !stays
    }
}

impl Link {
    /// Whether it reads the feed, or will.
    fn is_consumer(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Attached)
    }
}

fn welcome(shared: &Shared, id: u64, link: &mut Link, ring: &Ring) -> Result<(), WireError> {
    let (Ok(page), Ok(bell)) = (CursorHandle::create(), Doorbell::new()) else {
        tracing::warn!("feed {:?}: no descriptors left for pid {}", shared.name, link.peer.pid);
        return Err(WireError::Closed);
    };
    let own = |fd: rustix::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(Arc::new).map_err(|_| WireError::Closed);
    let fds = vec![own(shared.head.as_fd())?, Arc::clone(&ring.memory), own(page.as_fd())?, own(bell.as_fd())?];
    let (ring_info, order) = (ring.info.clone(), shared.launch.order.clone());
    link.channel.send(&Reply::Welcome { ring: ring_info, run: shared.launch.run, order }, fds)?;
    fault::point("server:welcomed");
    let page = Page { handle: page, bell: Arc::new(bell) };
    shared.lock().machine.attach(id, page, link.peer.clone(), ring.info.generation, shared.meter.time());
    Ok(())
}
