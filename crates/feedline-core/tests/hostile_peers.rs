//! Peers that are too slow, too busy, or lie about themselves: an ordinary consumer beside them gets everything.

mod support;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use feedline_core::server::{Options, RingSize};
use feedline_core::wire::{Channel, Reply, Request};
use feedline_protocol::message::{Answer, Entry, Join, MOST_RANKS, Place, Rank};
use feedline_shm::{CursorHandle, HeadReader};
use support::{hello, is_dropped, with_server, with_server_options};

#[test]
fn whoever_dawdles_over_its_hello_is_dropped() {
    with_server("dawdler", |connect| {
        let mut socket = connect();
        let began = Instant::now();
        // The time runs from the beginning: a byte now and then is not enough.
        let pause = Duration::from_secs(7) / hello().len() as u32;
        let gone = hello().iter().any(|&byte| {
            std::thread::sleep(pause);
            socket.write_all(&[byte]).is_err()
        });
        assert!(gone, "it was still listened to after {:?}", began.elapsed());
        assert!(began.elapsed() > Duration::from_secs(4), "it had a fair chance");
        is_dropped(socket);
    });
}

#[test]
fn connecting_without_end_disturbs_nobody() {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        with_server("knocking", |connect| {
            let path = connect().peer_addr().unwrap().as_pathname().unwrap().to_owned();
            for _ in 0..2 {
                let (path, over) = (path.clone(), &over);
                scope.spawn(move || while !over.load(Ordering::Relaxed) && UnixStream::connect(&path).is_ok() {});
            }
            Over(&over)
        });
    });
}

/// Says so when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Joins as a consumer would, and gives its channel, its page and the head.
fn join(socket: UnixStream) -> (Channel, CursorHandle, HeadReader) {
    join_as(None, socket)
}

fn join_as(rank: Option<Rank>, socket: UnixStream) -> (Channel, CursorHandle, HeadReader) {
    socket.set_nonblocking(true).unwrap();
    let mut channel = Channel::for_consumer(socket.into());
    let hello =
        Request::Hello { magic: feedline_core::wire::MAGIC, version: feedline_core::wire::VERSION, consumer: true };
    channel.send(&hello, vec![]).unwrap();
    let mut pages = None;
    loop {
        match channel.receive::<Reply>().unwrap() {
            Some((Reply::Welcome { .. }, fds)) => {
                let mut fds = fds.into_iter();
                let head = HeadReader::accept(fds.next().unwrap()).unwrap();
                pages = Some((CursorHandle::accept(fds.nth(1).unwrap()).unwrap(), head));
                let join = Join { rank, ..Join::new(1, Some(5), Entry::EpochStart) };
                channel.send(&Request::Join(join), vec![]).unwrap();
            }
            Some((Reply::Answer(Answer::Joined { number, place: Place { epoch, sample, .. } }), _)) => {
                let (page, head) = pages.take().unwrap();
                page.enter(number, epoch, sample.unwrap_or(0));
                return (channel, page, head);
            }
            Some(_) => {}
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// A ring for a tenth of the epoch, and half a second for those who stand still.
fn narrow() -> Options {
    Options {
        epochs: Some(1),
        ring: Some(RingSize::Samples(40)),
        stall_timeout_secs: Duration::from_millis(500),
        ..Options::default()
    }
}

#[test]
fn one_who_joins_and_never_reads_is_cut_off() {
    with_server_options(narrow(), "idler", |connect| join(connect()));
}

#[test]
fn one_who_claims_to_starve_and_releases_nothing_is_cut_off() {
    with_server_options(narrow(), "starveling", |connect| {
        let (channel, page, head) = join(connect());
        page.cursor.store(u64::MAX, Ordering::Relaxed);
        page.leases.store(u32::MAX, Ordering::Relaxed);
        page.prepare_wait(&head);
        (channel, page, head)
    });
}

#[test]
fn one_who_claims_to_have_read_what_was_never_written_harms_nobody() {
    with_server_options(narrow(), "boaster", |connect| {
        let (channel, page, head) = join(connect());
        // When the other one is in: the only epoch would be over before it comes.
        std::thread::spawn(move || {
            while head.joined() < 2 {
                std::thread::sleep(Duration::from_millis(1));
            }
            page.release(&head, u64::MAX, u64::MAX);
            (channel, page, head)
        })
    });
}

#[test]
fn one_who_claims_to_rest_for_ever_holds_up_nobody() {
    with_server_options(narrow(), "rester", |connect| {
        let (channel, page, head) = join(connect());
        page.rest();
        (channel, page, head)
    });
}

#[test]
fn one_whose_other_ranks_never_come_holds_up_nobody_for_long() {
    with_server_options(narrow(), "lonely", |connect| {
        // In mid-air, too: it takes part in round after round and leaves each.
        let rank = Rank { group: 7, world: MOST_RANKS, rank: 3, is_rejoining: false };
        let (mut channel, page, head) = join_as(Some(rank), connect());
        for number in 2..100 {
            let join = Join { rank: Some(rank), ..Join::new(number, Some(5), Entry::EpochStart) };
            channel.send(&Request::Leave, vec![]).unwrap();
            channel.send(&Request::Join(join), vec![]).unwrap();
            while !matches!(channel.receive::<Reply>().unwrap(), Some((Reply::Answer(Answer::Joined { .. }), _))) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        channel.send(&Request::Leave, vec![]).unwrap();
        (channel, page, head)
    });
}

#[test]
fn ranks_that_cannot_be_are_dropped() {
    with_server("norank", |connect| {
        let rank = Rank { group: 0, world: 4, rank: 0, is_rejoining: false };
        let impossible = [
            (Rank { rank: 4, ..rank }, Entry::EpochStart),
            (Rank { world: 0, ..rank }, Entry::EpochStart),
            (Rank { world: u32::MAX, ..rank }, Entry::EpochStart),
            (rank, Entry::Newest),
            (rank, Entry::First { else_newest: true }),
        ];
        for (rank, entry) in impossible {
            let (mut channel, ..) = join(connect());
            channel.send(&Request::Leave, vec![]).unwrap();
            let join = Join { rank: Some(rank), ..Join::new(2, Some(5), entry) };
            channel.send(&Request::Join(join), vec![]).unwrap();
            let dropped = |channel: &mut Channel| channel.receive::<Reply>().is_err();
            while !dropped(&mut channel) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
}
