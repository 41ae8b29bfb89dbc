//! The thread that talks to consumers: handshakes, deaths, bad news; `joining` gives them their cursors.
//!
//! It never blocks on a peer: sockets don't block, messages are bounded, and a peer that is silent in its handshake or
//! doesn't speak the protocol is dropped.

mod joining;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_ring::peer::Peer;
use feedline_ring::{CursorHandle, Doorbell, fault};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, listen, socket_with};

use super::attendance::Attending;
use super::door::{self, Door};
use super::members::Member;
use super::watchdog::Watchdog;
use super::{Phase, Shared, Since, State, shape, stats};
use crate::access::is_own;
use crate::error::{Error, Failure, FailureKind};
use crate::names::HeldName;
use crate::wire::{Channel, MAGIC, Reply, Request, VERSION, WireError};

/// Then those who are connected have their turn.
const ACCEPTS_PER_ROUND: usize = 64;
/// Then it is another connection's turn.
const REQUESTS_PER_ROUND: usize = 16;
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long goodbyes may take.
const FAREWELL: Duration = Duration::from_secs(1);
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Binds the socket and starts the thread. It holds the name until it ends.
pub(super) fn start(shared: Arc<Shared>, held: HeldName) -> Result<JoinHandle<()>, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let listener =
        socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(Error::io("making a socket"))?;
    let address = SocketAddrUnix::new(held.path()).map_err(Error::io("naming a socket"))?;
    let folder = |errno: rustix::io::Errno| crate::names::unusable(&crate::names::folder(), &errno.into());
    bind(&listener, &address).map_err(folder)?;
    door::set_up(held.path(), &shared)?;
    listen(&listener, 128).map_err(Error::io("listening"))?;
    let run = move || {
        let mut control = Control {
            shared,
            listener,
            _held: held,
            links: BTreeMap::new(),
            next_id: 0,
            deaf_until: None,
            door: Door::default(),
            watchdog: Watchdog::new(),
        };
        control.run();
    };
    std::thread::Builder::new()
        .name("feedline-control".into())
        .spawn(run)
        .map_err(|error| Error::Memory(format!("cannot start a thread: {error}")))
}

struct Control {
    shared: Arc<Shared>,
    listener: OwnedFd,
    _held: HeldName,
    links: BTreeMap<u64, Link>,
    next_id: u64,
    /// There were no descriptors left for a connection.
    deaf_until: Option<Instant>,
    door: Door,
    watchdog: Watchdog,
}

/// A connection.
struct Link {
    channel: Channel,
    peer: Arc<Peer>,
    since: Instant,
    stage: Stage,
    /// It said that it would go.
    says_bye: bool,
    /// While it is attached, or may be about to attach.
    attending: Option<Attending>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Has not said hello.
    New,
    /// Waits for the first ring.
    Waiting,
    /// Has the memory, up to this generation.
    Welcome(u32),
    /// Only asks questions.
    Visitor,
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
            self.bury();
            self.deliver();
            self.answer_the_gate();
            self.linger();
            self.watch();
            if self.say_goodbye() {
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
            // Who doesn't listen isn't listened to.
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
            if !self.door.admits(&self.shared, &peer, &mut channel, self.links.values().map(|link| &*link.peer)) {
                continue;
            }
            let link = Link {
                channel,
                peer: Arc::new(peer),
                since: Instant::now(),
                stage: Stage::New,
                says_bye: false,
                attending: self.shared.options.attendance.enter(),
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
    fn bury(&self) {
        let State { log, ranks, .. } = &mut *self.shared.lock();
        if ranks.bury(log) {
            self.shared.producer_bell.ring();
        }
    }

    fn drop_link(&mut self, id: u64) {
        let link = self.links.remove(&id);
        let mut state = self.shared.lock();
        state.refresh();
        let State { phase, log, members, ranks, events, .. } = &mut *state;
        // At the feed's end everybody is sent away: that is no news.
        if let Some(link) = link.filter(|_| !phase.has_failed()) {
            if let Some((epoch, _)) = log.cursor(id) {
                ranks.leaves(&link.peer, epoch);
                // Who has finished an epoch may go without a word.
                let is_well = link.says_bye || members.get(id).is_none_or(|member| member.page.is_resting());
                let (kind, text) = if is_well { ("left", "it left") } else { ("died", "it was gone in mid-epoch") };
                events.note(kind, Some(link.peer.pid), text);
            }
            ranks.disconnected(log, &link.peer);
        }
        if members.remove(id, log).is_some() {
            log.leave(id);
            self.shared.tell_joined(&state);
            self.shared.producer_bell.ring();
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
                        link.channel.send(&Reply::Refused { why, batch_size: false }, vec![])?;
                        return Err(WireError::Malformed("another version of the protocol"));
                    }
                    link.stage = if consumer { Stage::Waiting } else { Stage::Visitor };
                    if !consumer {
                        link.attending = None;
                    }
                    let peer = Arc::clone(&link.peer);
                    let others = self.links.values().filter(|link| link.is_consumer()).count() - usize::from(consumer);
                    if consumer && !self.door.seats(&self.shared, &peer, others) {
                        return Err(WireError::Closed);
                    }
                    if consumer {
                        self.shared.lock().members.expect(id, peer.pid, peer.uid);
                    }
                }
                Request::Join(join) => {
                    let Stage::Welcome(_) = link.stage else { return Err(WireError::Malformed("an early join")) };
                    self.join(id, join)?;
                }
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
                        link.channel.send(&Reply::Refused { why, batch_size: false }, vec![])?;
                        continue;
                    }
                    let message = format!("pid {} told its server to stop (feedline stop)", link.peer.pid);
                    self.shared.break_off(Failure::new(FailureKind::Stopped, message));
                    // One that has failed already gives its name back.
                    self.shared.lock().is_closing = true;
                }
                Request::Ping | Request::Diagnose if !link.is_consumer() => {
                    return Err(WireError::Malformed("a consumer's question"));
                }
                Request::Ping => link.channel.send(&Reply::Pong, vec![])?,
                Request::Diagnose => self.watchdog.asked(id),
            }
        }
        // There may be more: look again in the next round, after the others.
        self.shared.control_bell.ring();
        Ok(())
    }

    /// Tells those who were cut off, welcomes those who wait for the first ring, and sends a new ring to those who read.
    ///
    /// Seen under one lock, told in this order: whoever was cut off must hear of it before it could hear of the ring that no
    /// longer has its samples. Who doesn't read gets the ring when it joins: memory that is on its way can't be freed.
    fn deliver(&mut self) {
        let mut told = Vec::new();
        let mut reading = Vec::new();
        let ring = {
            let mut state = self.shared.lock();
            let is_over = matches!(state.phase, Phase::Broken(_));
            for (id, member) in state.members.iter_mut() {
                told.extend(member.news.take().map(|news| (id, news)));
                // Who rests asks for the ring when it wakes up.
                if member.joined && !member.at_gate && !member.page.is_resting() {
                    reading.push(id);
                }
            }
            // Then there is nothing to read, and `say_goodbye` tells why.
            state.ring.clone().filter(|_| !is_over)
        };
        for (id, news) in told {
            if let Some(link) = self.links.get_mut(&id) {
                let _ = link.channel.send(&news, vec![]);
            }
        }
        let Some(ring) = ring else { return };
        let mut gone = Vec::new();
        for (&id, link) in &mut self.links {
            let sent = match link.stage {
                Stage::Waiting => welcome(&self.shared, id, link, &ring),
                Stage::Welcome(_) if reading.contains(&id) => link.bring(&ring),
                _ => continue,
            };
            match sent {
                Ok(()) => link.stage = Stage::Welcome(ring.info.generation),
                Err(_) => gone.push(id),
            }
        }
        for id in gone {
            self.drop_link(id);
        }
    }

    /// Ends the feed some time after the last consumer left, of this feed or of another that this process serves.
    fn linger(&mut self) {
        let options = &self.shared.options;
        if let Some(limit) = options.attendance.end_if_alone(options.first_consumer, options.linger, Instant::now()) {
            let message = format!("nobody was attached for {:.0} s", limit.as_secs_f64());
            self.shared.break_off(Failure::new(FailureKind::Stopped, message));
        }
    }

    /// Tells consumers of a source that hangs, or gives up on it.
    fn watch(&mut self) {
        let anybody = self.links.values().any(Link::is_consumer);
        if let Some(failure) = self.watchdog.look(&self.shared, anybody) {
            tracing::error!("{}", failure.message);
            self.shared.break_off(failure);
            return;
        }
        // Who doesn't listen is told when it does.
        for (&id, link) in self.links.iter_mut().filter(|(_, link)| link.is_consumer() && !link.channel.has_outgoing())
        {
            if let Some(word) = self.watchdog.word_for(id) {
                let _ = link.channel.send(&word, vec![]);
            }
        }
    }

    /// At the feed's end: tells everybody, waits until they were told, and closes; true once the name is to be given back. A feed
    /// that has failed stays, for those who come later.
    fn say_goodbye(&mut self) -> bool {
        let (farewell, stays) = {
            let state = self.shared.lock();
            let farewell = match &state.phase {
                Phase::Starting | Phase::Running | Phase::Draining => return false,
                Phase::Ended => Reply::Ended,
                Phase::Broken(failure) => Reply::Failed(failure.clone()),
            };
            (farewell, state.phase.has_failed() && !state.is_closing)
        };
        // Who comes to look at a feed that has failed may do so.
        let hears = |link: &Link| link.stage != Stage::New && !(stays && link.stage == Stage::Visitor);
        let told: Vec<u64> = self.links.iter().filter(|(_, link)| hears(link)).map(|(&id, _)| id).collect();
        if stays && told.is_empty() {
            return false;
        }
        fault::point("server:goodbye");
        for link in self.links.values_mut().filter(|link| hears(link)) {
            let _ = link.channel.send(&farewell, vec![]);
        }
        let began = Instant::now();
        while self.links.values().any(|link| link.channel.has_outgoing()) && began.elapsed() < FAREWELL {
            self.sleep(false);
            self.links.retain(|_, link| link.channel.flush().is_ok());
        }
        // A forked worker of the loader may hold the sockets open: closing ours would not tell anybody.
        let over = self.links.iter().filter(|(id, _)| !stays || told.contains(id));
        over.for_each(|(_, link)| link.channel.shut_down());
        if stays {
            told.into_iter().for_each(|id| self.drop_link(id));
        }
        !stays
    }
}

impl Link {
    /// Whether it reads the feed, or will.
    fn is_consumer(&self) -> bool {
        matches!(self.stage, Stage::Waiting | Stage::Welcome(_))
    }

    /// Sends the ring, if it has an older one.
    fn bring(&mut self, ring: &shape::PublishedRing) -> Result<(), WireError> {
        if self.stage == Stage::Welcome(ring.info.generation) {
            return Ok(());
        }
        self.stage = Stage::Welcome(ring.info.generation);
        self.channel.send(&Reply::Ring(ring.info.clone()), vec![Arc::clone(&ring.memory)])
    }
}

fn welcome(shared: &Shared, id: u64, link: &mut Link, ring: &shape::PublishedRing) -> Result<(), WireError> {
    let (Ok(page), Ok(bell)) = (CursorHandle::create(), Doorbell::new()) else {
        tracing::warn!("feed {:?}: no descriptors left for pid {}", shared.name, link.peer.pid);
        return Err(WireError::Closed);
    };
    let own = |fd: rustix::fd::BorrowedFd<'_>| fd.try_clone_to_owned().map(Arc::new).map_err(|_| WireError::Closed);
    let fds = vec![own(shared.head.as_fd())?, Arc::clone(&ring.memory), own(page.as_fd())?, own(bell.as_fd())?];
    link.channel.send(&Reply::Welcome { ring: ring.info.clone(), run: shared.options.run }, fds)?;
    fault::point("server:welcomed");
    let member = Member {
        page,
        bell: Arc::new(bell),
        pid: link.peer.pid,
        uid: link.peer.uid,
        batch_size: None,
        rank: None,
        joined: false,
        at_gate: false,
        join_number: 0,
        place: None,
        news: None,
        idle_since: Since::now(),
        still: None,
        is_refused: false,
    };
    shared.lock().members.insert(id, member);
    Ok(())
}
