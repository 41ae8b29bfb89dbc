//! What goes over the socket: joining, leaving, errors and descriptors, never batches.
//!
//! A frame is a length (u32, little-endian), a count of descriptors (u8), and a postcard-encoded message. Everything that
//! arrives is bounded before memory is taken for it and checked before it is believed.

use std::collections::VecDeque;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use feedline_protocol::message::{Answer, Join};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::Failure;
use crate::ring_info::RingInfo;
use crate::stats::ServerStats;

/// Changes with every change of the messages or of the shared pages.
pub const VERSION: u16 = 10;

/// "feed", so that a stray client is told apart from an old one.
pub const MAGIC: u32 = u32::from_le_bytes(*b"feed");

const HEADER: usize = 5;
/// The longest message that each side accepts.
const MAX_REQUEST: usize = 4096;
const MAX_REPLY: usize = 4 << 20;
const MAX_FDS: usize = 4;
/// The longest name of an order.
pub const MAX_ORDER: usize = 1024;
/// Messages that wait for a peer to read what came before. Each may hold a ring.
const MAX_QUEUED: usize = 32;

/// From a consumer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// Always first.
    Hello {
        /// [`MAGIC`].
        magic: u32,
        /// [`VERSION`].
        version: u16,
        /// A consumer wants the schema and the memory; others only ask.
        consumer: bool,
    },
    /// Wants a cursor.
    Join(Join),
    /// Gives its cursor back.
    Leave,
    /// Wants to know how things stand.
    Stats,
    /// Wants to know whether anybody is there.
    Ping,
    /// Wants to know where the loader hangs; answered if it does.
    Diagnose,
    /// Wants the feed to end. From its own user only.
    Stop,
    /// Is about to close the connection: it did not crash.
    Bye,
}

/// From the server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// With the head page, the ring, the consumer's own page, its doorbell.
    Welcome {
        /// The first ring.
        ring: RingInfo,
        /// The run of a shared feed: another server of the same one goes on in the same order.
        run: Option<u64>,
        /// What an epoch's order depends on, beside the epoch; at most [`MAX_ORDER`] bytes.
        order: String,
    },
    /// What the state machine has to say to a consumer.
    Answer(Answer),
    /// The ring was replaced. With the new one.
    Ring(RingInfo),
    /// The peer may not do what it asked for.
    Refused {
        /// Why.
        why: String,
    },
    /// The feed is over before its time.
    Failed(Failure),
    /// The feed is over: all its epochs are done.
    Ended,
    /// The answer to [`Request::Stats`].
    Stats(Box<ServerStats>),
    /// The answer to [`Request::Ping`].
    Pong,
    /// The loader has not come back for long; also the answer to [`Request::Diagnose`].
    Stuck(Stuck),
}

/// A loader that hangs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stuck {
    /// For how long.
    pub secs: f64,
    /// How many samples it had yielded: if there are more by now, this is out of date.
    pub samples: u64,
    /// Where, for a person.
    pub place: String,
}

/// What a peer did wrong.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The other side closed, or the socket broke.
    #[error("the connection is closed")]
    Closed,
    /// A length, a count or a message that can't be.
    #[error("malformed message: {0}")]
    Malformed(&'static str),
}

/// One end of a connection: whole messages in, whole messages out, never blocking.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    inbox: Vec<u8>,
    fds: VecDeque<OwnedFd>,
    outbox: VecDeque<Frame>,
    max_in: usize,
    accepts_fds: bool,
}

#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    sent: usize,
    fds: Vec<Arc<OwnedFd>>,
}

impl Channel {
    /// The server's end: takes small messages and no descriptors.
    pub fn for_server(socket: OwnedFd) -> Self {
        Self {
            socket,
            inbox: Vec::new(),
            fds: VecDeque::new(),
            outbox: VecDeque::new(),
            max_in: MAX_REQUEST,
            accepts_fds: false,
        }
    }

    /// A consumer's end.
    pub fn for_consumer(socket: OwnedFd) -> Self {
        Self { max_in: MAX_REPLY, accepts_fds: true, ..Self::for_server(socket) }
    }

    /// Queues a message, and sends what the socket takes.
    pub fn send<M: Serialize>(&mut self, message: &M, fds: Vec<Arc<OwnedFd>>) -> Result<(), WireError> {
        let mut bytes = vec![0; HEADER];
        bytes = postcard::to_extend(message, bytes).map_err(|_| WireError::Malformed("it cannot be encoded"))?;
        let len = u32::try_from(bytes.len() - HEADER).map_err(|_| WireError::Malformed("too long"))?;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4] = fds.len() as u8;
        if self.outbox.len() == MAX_QUEUED {
            return Err(WireError::Malformed("it does not read what it is sent"));
        }
        self.outbox.push_back(Frame { bytes, sent: 0, fds });
        self.flush()
    }

    /// Sends what the socket takes now.
    pub fn flush(&mut self) -> Result<(), WireError> {
        while let Some(frame) = self.outbox.front_mut() {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = SendAncillaryBuffer::new(&mut space);
            let fds: Vec<BorrowedFd<'_>> = frame.fds.iter().map(|fd| fd.as_fd()).collect();
            if frame.sent == 0 && !fds.is_empty() {
                control.push(SendAncillaryMessage::ScmRights(&fds));
            }
            let rest = [IoSlice::new(&frame.bytes[frame.sent..])];
            match sendmsg(&self.socket, &rest, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => frame.sent += sent,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(_) => return Err(WireError::Closed),
            }
            if frame.sent == frame.bytes.len() {
                self.outbox.pop_front();
            }
        }
        Ok(())
    }

    /// Whether something waits to be sent.
    pub fn has_outgoing(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// The next whole message, if it is here, with its descriptors.
    pub fn receive<M: DeserializeOwned>(&mut self) -> Result<Option<(M, Vec<OwnedFd>)>, WireError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let mut piece = [0_u8; 16 << 10];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control =
                if self.accepts_fds { RecvAncillaryBuffer::new(&mut space) } else { RecvAncillaryBuffer::default() };
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let received = match recvmsg(&self.socket, &mut [IoSliceMut::new(&mut piece)], &mut control, flags) {
                Ok(received) => received,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => continue,
                Err(_) => return Err(WireError::Closed),
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > 4 * MAX_FDS {
                return Err(WireError::Malformed("descriptors that nobody asked for"));
            }
            if received.bytes == 0 {
                return Err(WireError::Closed);
            }
            self.inbox.extend_from_slice(&piece[..received.bytes]);
        }
    }

    fn take<M: DeserializeOwned>(&mut self) -> Result<Option<(M, Vec<OwnedFd>)>, WireError> {
        let Some((len, fds)) = frame_header(&self.inbox, self.max_in)? else { return Ok(None) };
        let Some(body) = self.inbox.get(HEADER..HEADER + len) else { return Ok(None) };
        if fds > self.fds.len() {
            return Err(WireError::Malformed("descriptors are missing"));
        }
        let message = postcard::from_bytes(body).map_err(|_| WireError::Malformed("it cannot be decoded"))?;
        self.inbox.drain(..HEADER + len);
        Ok(Some((message, self.fds.drain(..fds).collect())))
    }

    /// Ends the connection for the other side, even if another process has the socket open.
    pub fn shut_down(&self) {
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }
}

/// The length and the count of descriptors of the frame that `bytes` begin with.
fn frame_header(bytes: &[u8], max: usize) -> Result<Option<(usize, usize)>, WireError> {
    let Some(header) = bytes.first_chunk::<HEADER>() else { return Ok(None) };
    let [a, b, c, d, fds] = *header;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    if len > max {
        return Err(WireError::Malformed("too long"));
    }
    if usize::from(fds) > MAX_FDS {
        return Err(WireError::Malformed("too many descriptors"));
    }
    Ok(Some((len, fds.into())))
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
