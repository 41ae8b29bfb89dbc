//! A server among peers that don't keep to the protocol: they are dropped, and nobody else notices.

mod support;

use std::io::{IoSlice, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use feedline_core::Error;
use feedline_core::server::{Options, Server};
use feedline_core::wire::{Channel, MAGIC, Reply, Request, VERSION};
use feedline_protocol::message::{Entry, Join, Rank};
use proptest::prelude::*;
use proptest::sample::Index;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use support::{folder, frame, hello, is_dropped, with_server};

#[test]
fn garbage_lengths_and_early_requests_are_refused() {
    let join = frame(&Request::Join(Join::new(1, Some(3), Entry::Newest)));
    let visit = frame(&Request::Hello { magic: MAGIC, version: VERSION, consumer: false });
    let cases: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        vec![0xff; 64],
        [&(1_u32 << 30).to_le_bytes()[..], &[0]].concat(),
        [&4_u32.to_le_bytes()[..], &[9], b"abcd"].concat(),
        join.clone(),
        frame(&Request::Stats),
        frame(&Request::Ping),
        frame(&Request::Diagnose),
        frame(&Request::Ping),
        frame(&Request::Diagnose),
        [visit, frame(&Request::Diagnose)].concat(),
        frame(&Request::Hello { magic: 1, version: VERSION, consumer: true }),
        [hello(), hello()].concat(),
        [hello(), vec![0xff; 32]].concat(),
    ];
    with_server("garbage", |connect| {
        for bytes in cases {
            let mut socket = connect();
            socket.write_all(&bytes).unwrap();
            is_dropped(socket);
        }
    });
}

#[test]
fn another_version_is_told_so() {
    with_server("version", |connect| {
        let mut socket = connect();
        let request = Request::Hello { magic: MAGIC, version: VERSION + 1, consumer: true };
        socket.write_all(&frame(&request)).unwrap();
        socket.set_nonblocking(true).unwrap();
        let mut channel = Channel::for_consumer(socket.into());
        let reply = loop {
            if let Some((reply, _)) = channel.receive::<Reply>().unwrap() {
                break reply;
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        assert!(matches!(reply, Reply::Refused { why, .. } if why.contains(&format!("version {VERSION}"))));
    });
}

#[test]
fn silent_and_half_said_peers_disturb_nobody() {
    with_server("silent", |connect| {
        let mut held: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
        for socket in &mut held[..20] {
            socket.write_all(&hello()[..3]).unwrap();
        }
        held
    });
}

#[test]
fn a_second_server_is_told_who_the_first_is() {
    folder();
    let first = Server::bind("taken", Options::default()).unwrap();
    match Server::bind("taken", Options::default()) {
        Err(Error::NameTaken { pid, .. }) => assert_eq!(pid, std::process::id()),
        other => panic!("{:?}", other.err()),
    }
    first.stop("done");
    Server::bind("taken", Options::default()).expect("the name is free at once").stop("done");
}

#[test]
fn descriptors_are_not_taken() {
    with_server("descriptors", |connect| {
        let socket = connect();
        send_with_descriptors(&socket, &hello());
        is_dropped(socket);
    });
}

/// Sends the bytes with two descriptors, of which nobody asked for any.
fn send_with_descriptors(socket: &UnixStream, bytes: &[u8]) {
    let fds = [socket.as_fd(); 2];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    control.push(SendAncillaryMessage::ScmRights(&fds));
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// What a consumer says in its life, to be said in any order and any number of times. Not that it wants the newest, nor what is
/// behind the only epoch: a consumer that has no more to read there may let it end.
fn sentences() -> [Vec<u8>; 13] {
    let join = |number, batch_size, entry| frame(&Request::Join(Join::new(number, batch_size, entry)));
    let join_as = |rank, world, is_rejoining, entry| {
        let rank = Some(Rank { group: 7, world, rank, is_rejoining });
        frame(&Request::Join(Join { rank, ..Join::new(5, Some(6), entry) }))
    };
    [
        hello(),
        frame(&Request::Hello { magic: MAGIC, version: VERSION, consumer: false }),
        join(1, Some(3), Entry::EpochStart),
        join(4, None, Entry::At { epoch: 0, index: 17 }),
        join(3, Some(1 << 40), Entry::EpochStart),
        join_as(0, 2, false, Entry::EpochStart),
        join_as(1, 2, false, Entry::EpochStart),
        join_as(2, 3, true, Entry::At { epoch: 0, index: 17 }),
        join_as(2, 2, false, Entry::EpochStart),
        frame(&Request::Leave),
        frame(&Request::Stats),
        frame(&Request::Ping),
        frame(&Request::Diagnose),
    ]
}

/// Where this wants to join, if that is what it says.
fn entry(piece: &[u8]) -> Option<Entry> {
    match postcard::from_bytes(piece.get(5..)?) {
        Ok(Request::Join(join)) => Some(join.entry),
        _ => None,
    }
}

/// One peer's part of a conversation.
#[derive(Clone, Debug)]
struct Part {
    greets: bool,
    said: Vec<Index>,
    flips: Vec<(Index, u8)>,
    cut: Option<Index>,
    delivery: Delivery,
    listens: bool,
}

#[derive(Clone, Copy, Debug)]
enum Delivery {
    Plain,
    ByteByByte,
    WithDescriptors,
    /// Closes its sending end behind the last message.
    HalfClosed,
}

fn part() -> impl Strategy<Value = Part> {
    let delivery = prop_oneof![
        Just(Delivery::Plain),
        Just(Delivery::ByteByByte),
        Just(Delivery::WithDescriptors),
        Just(Delivery::HalfClosed)
    ];
    let said = prop::collection::vec(any::<Index>(), 0..8);
    let flips = prop::collection::vec((any::<Index>(), any::<u8>()), 0..4);
    (any::<bool>(), said, flips, any::<Option<Index>>(), delivery, any::<bool>())
        .prop_map(|(greets, said, flips, cut, delivery, listens)| Part { greets, said, flips, cut, delivery, listens })
}

impl Part {
    /// The pieces to be sent, one at a time.
    fn pieces(&self) -> Vec<Vec<u8>> {
        let sentences = sentences();
        let mut pieces: Vec<Vec<u8>> = self.greets.then(hello).into_iter().collect();
        pieces.extend(self.said.iter().map(|index| index.get(&sentences).clone()));
        for (index, mask) in self.flips.iter().filter(|_| !pieces.is_empty()).collect::<Vec<_>>() {
            let count = pieces.len();
            let piece = &mut pieces[index.index(count)];
            let at = index.index(piece.len());
            let before = entry(piece);
            piece[at] ^= mask;
            if entry(piece).is_some_and(|now| Some(now) != before) {
                piece[at] ^= mask;
            }
        }
        if let (Some(cut), Some(last)) = (self.cut, pieces.last_mut()) {
            last.truncate(cut.index(last.len()));
        }
        match self.delivery {
            Delivery::ByteByByte => pieces.concat().chunks(1).map(<[u8]>::to_vec).collect(),
            _ => pieces,
        }
    }

    fn send(&self, mut socket: &UnixStream, piece: &[u8], is_last: bool) {
        match self.delivery {
            Delivery::WithDescriptors if is_last => send_with_descriptors(socket, piece),
            Delivery::HalfClosed if is_last => {
                let _ = socket.write_all(piece);
                let _ = socket.shutdown(std::net::Shutdown::Write);
            }
            _ => drop(socket.write_all(piece)),
        }
        if self.listens {
            let _ = std::io::Read::read(&mut socket, &mut [0; 512]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Valid conversations of several peers at once, with bits changed, ends cut, messages doubled and out of order: the server
    /// may drop them or answer them, and lives; an ordinary consumer beside them gets everything.
    #[test]
    fn mutated_conversations_are_survived(
        parts in prop::collection::vec(part(), 1..5),
        turns in prop::collection::vec(any::<Index>(), 0..60),
    ) {
        with_server("mutated", |connect| {
            let mut peers: Vec<_> = parts.iter().map(|part| (part, connect(), part.pieces().into_iter().peekable())).collect();
            for (_, socket, _) in &peers {
                socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
                socket.set_write_timeout(Some(Duration::from_secs(5))).unwrap();
            }
            for turn in turns {
                let (part, socket, pieces) = turn.get_mut(&mut peers);
                if let Some(piece) = pieces.next() {
                    part.send(socket, &piece, pieces.peek().is_none());
                }
            }
            // They stay, whatever they were about to say, until the ordinary one has read everything.
            peers.into_iter().map(|(_, socket, _)| socket).collect::<Vec<_>>()
        });
    }
}
