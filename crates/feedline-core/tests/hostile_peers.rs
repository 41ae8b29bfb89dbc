//! Peers that are too slow, too busy, or lie about themselves: an ordinary consumer beside them gets everything.

mod beside;

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use beside::{beside_a_server, beside_a_server_with, hello, is_dropped};
use feedline_core::server::{Options, RingSize};
use feedline_core::wire::{Channel, JoinAt, Reply, Request};
use feedline_ring::{CursorHandle, HeadReader};

#[test]
fn whoever_dawdles_over_its_hello_is_dropped() {
    beside_a_server("dawdler", |connect| {
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
        beside_a_server("knocking", |connect| {
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
                let join = Request::Join {
                    number: 1,
                    batch_size: Some(5),
                    entry: JoinAt::EpochStart,
                    returning: 0,
                    slowest: 0,
                };
                channel.send(&join, vec![]).unwrap();
            }
            Some((Reply::Joined { number, epoch, sample, .. }, _)) => {
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
        stall_timeout: Duration::from_millis(500),
        ..Options::default()
    }
}

#[test]
fn one_who_joins_and_never_reads_is_cut_off() {
    beside_a_server_with(narrow(), "idler", |connect| join(connect()));
}

#[test]
fn one_who_claims_to_starve_and_releases_nothing_is_cut_off() {
    beside_a_server_with(narrow(), "starveling", |connect| {
        let (channel, page, head) = join(connect());
        page.cursor.store(u64::MAX, Ordering::Relaxed);
        page.leases.store(u32::MAX, Ordering::Relaxed);
        page.prepare_wait(&head);
        (channel, page, head)
    });
}

#[test]
fn one_who_claims_to_have_read_what_was_never_written_harms_nobody() {
    beside_a_server_with(narrow(), "boaster", |connect| {
        let (channel, page, head) = join(connect());
        page.release(&head, u64::MAX, u64::MAX);
        (channel, page, head)
    });
}

#[test]
fn one_who_claims_to_rest_for_ever_holds_up_nobody() {
    beside_a_server_with(narrow(), "rester", |connect| {
        let (channel, page, head) = join(connect());
        page.rest();
        (channel, page, head)
    });
}
