//! How a worker process writes into a sealed ring: it gets the ring's descriptor, and maps it, before the seal. The same is true of
//! the next ring, which replaces the first.
//!
//! The worker is this program again, started with its end of a socket as standard input.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};

use feedline_shm::{Claimable, Layout, Memfd, RingError, RingWriter, Span, child, page_size};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use rustix::process::Signal;

const LEN: usize = 64;

/// What the server tells its worker: a ring (with its descriptor), or a claim to fill. The answer is the same number.
#[derive(Clone, Copy)]
enum Task {
    Map { pages: u64 },
    Fill { position: u64, byte: u8 },
}

impl Task {
    fn to_words(self) -> [u64; 2] {
        match self {
            Self::Map { pages } => [0, pages],
            Self::Fill { position, byte } => [1 + u64::from(byte), position],
        }
    }

    fn from_words([kind, number]: [u64; 2]) -> Self {
        match kind.checked_sub(1) {
            None => Self::Map { pages: number },
            Some(byte) => Self::Fill { position: number, byte: byte as u8 },
        }
    }
}

fn send(socket: &UnixStream, task: Task, fd: Option<BorrowedFd<'_>>) {
    let bytes = task.to_words().map(u64::to_le_bytes).concat();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = fd.into_iter().collect();
    assert!(fds.is_empty() || ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let sent = sendmsg(socket, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    assert_eq!(sent, bytes.len());
}

/// `None` when the other end is gone.
fn receive(socket: impl AsFd) -> Option<(Task, Option<OwnedFd>)> {
    let mut bytes = [0; 16];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, RecvFlags::WAITALL).unwrap().bytes;
    let fd = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    let (words, _) = bytes.as_chunks::<8>();
    (got == 16).then(|| (Task::from_words([u64::from_le_bytes(words[0]), u64::from_le_bytes(words[1])]), fd))
}

fn layout(pages: u64) -> Layout {
    Layout::new([pages * page_size()]).unwrap()
}

/// The worker's program; as a test it does nothing.
#[test]
fn worker() {
    if std::env::var_os("FEEDLINE_TEST_WORKER").is_none() {
        return;
    }
    let socket = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned().unwrap());
    let mut ring = None;
    while let Some((task, fd)) = receive(&socket) {
        match task {
            Task::Map { pages } => {
                let (fd, layout) = (fd.expect("a ring comes with its descriptor"), layout(pages));
                let memory = Memfd::accept(fd, "the ring", layout.len_bytes()).unwrap();
                // SAFETY: the server of this test claims what it has a worker fill, and this process maps each ring once.
                #[allow(unsafe_code)]
                let writer = unsafe { RingWriter::for_worker(Box::new(memory), layout) };
                ring = Some(Claimable::new(writer.unwrap(), vec![1]));
            }
            Task::Fill { position, byte } => {
                let ring = ring.as_mut().expect("a ring comes before the first claim");
                let mut slots = ring.claim(span(position)).unwrap();
                slots.bytes_mut(0).fill(byte);
                ring.free(slots);
            }
        }
        send(&socket, task, None);
    }
}

/// A server's worker.
struct Worker {
    process: Child,
    socket: UnixStream,
}

impl Worker {
    fn start() -> Self {
        let (socket, other) = UnixStream::pair().unwrap();
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["worker", "--exact", "--nocapture"]).env("FEEDLINE_TEST_WORKER", "1").stdin(OwnedFd::from(other));
        child::die_with_parent(&mut command, Signal::KILL);
        Self { process: command.spawn().unwrap(), socket }
    }

    fn begin(&self, task: Task, fd: Option<BorrowedFd<'_>>) {
        send(&self.socket, task, fd);
    }

    /// The worker has done what it was told.
    fn end(&self) {
        receive(&self.socket).expect("the worker is there");
    }

    fn stop(mut self) {
        drop(self.socket);
        assert!(self.process.wait().unwrap().success());
    }
}

fn ring(pages: u64, workers: &[&Worker]) -> Claimable {
    let memory = Memfd::create_sparse("ring", layout(pages).len_bytes()).unwrap();
    let ring = RingWriter::with_workers(Box::new(memory), layout(pages), |memory| {
        workers.iter().for_each(|worker| worker.begin(Task::Map { pages }, Some(memory.fd())));
        workers.iter().for_each(|worker| worker.end());
        Ok(())
    });
    Claimable::new(ring.unwrap(), vec![1])
}

/// A sample is one byte.
fn span(position: u64) -> Span {
    Span { samples: position..position + LEN as u64, bytes: 0..0 }
}

#[test]
fn workers_fill_a_sealed_ring_and_the_one_that_replaces_it() {
    let workers = [Worker::start(), Worker::start()];
    let [one, two] = &workers;
    let mut old = ring(1, &[one, two]);
    let late = old.memory().share().unwrap();
    let memory = Memfd::accept(late, "the ring", page_size()).unwrap();
    // SAFETY: nothing is written: it is refused.
    #[allow(unsafe_code)]
    let refused = unsafe { RingWriter::for_worker(Box::new(memory), layout(1)) };
    assert!(matches!(refused, Err(RingError::Os { .. })), "a process that comes after the seal can't write");

    // The last claim crosses the ring's end.
    let positions = [64, 128, page_size() - 32];
    let claims = positions.map(|position| old.claim(span(position)).unwrap());
    for ((worker, position), byte) in [one, two, one].into_iter().zip(positions).zip([b'a', b'b', b'c']) {
        worker.begin(Task::Fill { position, byte }, None);
    }
    // What is filled when the ring is replaced is carried over.
    one.end();
    one.end();
    two.end();
    let mut new = ring(4, &[one, two]);
    for (mut claim, byte) in claims.into_iter().zip([b'a', b'b', b'c']) {
        let mut carried = new.claim(claim.span().clone()).unwrap();
        carried.copy_from(&mut claim);
        assert_eq!(carried.bytes_mut(0), [byte; LEN]);
    }

    let beyond = 3 * page_size();
    let mut claim = new.claim(span(beyond)).unwrap();
    two.begin(Task::Fill { position: beyond, byte: b'd' }, None);
    two.end();
    assert_eq!(claim.bytes_mut(0), [b'd'; LEN]);
    workers.into_iter().for_each(Worker::stop);
}

/// A claim may be given to another worker only when the first one is dead and reaped: until then it may write.
#[test]
fn a_claim_goes_to_another_worker_when_the_first_is_reaped() {
    let (mut killed, other) = (Worker::start(), Worker::start());
    let mut ring = ring(1, &[&killed, &other]);
    let mut claim = ring.claim(span(0)).unwrap();
    killed.begin(Task::Fill { position: 0, byte: b'x' }, None);
    killed.process.kill().unwrap();
    killed.process.wait().unwrap();
    other.begin(Task::Fill { position: 0, byte: b'y' }, None);
    other.end();
    assert_eq!(claim.bytes_mut(0), [b'y'; LEN]);
    other.stop();
}
