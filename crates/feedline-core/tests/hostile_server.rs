//! A consumer of a server that sends what it should not: descriptors of another kind, numbers that can't be. Each ends in an
//! error, and none in a crash or a wait without end.

mod support;

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use feedline_core::Error;
use feedline_core::consumer::{Config, Consumer, Mode};
use feedline_core::ring_info::RingInfo;
use feedline_core::schema::{ArrayKind, DType, Field, Schema};
use feedline_core::wire::{Channel, MAX_ORDER, Reply, Request};
use feedline_core::{Node, Structure};
use feedline_protocol::message::{Answer, Join, Place};
use feedline_protocol::{EpochLength, UNKNOWN};
use feedline_shm::{CursorHandle, Doorbell, HeadWriter, Layout, RingWriter, page_size};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, fcntl_setfl, ftruncate, memfd_create};
use rustix::pipe::PipeFlags;
use support::{config, folder};

/// How long a consumer may wait for what doesn't come.
const TIMEOUT: Duration = Duration::from_secs(10);

fn cut(fields: Vec<Field>) -> RingInfo {
    let structure = Structure([vec![Node::List(fields.len() as u32)], vec![Node::Leaf; fields.len()]].concat());
    RingInfo {
        generation: 0,
        capacity: 64,
        window: 64,
        byte_lane: 0,
        byte_window: 0,
        is_file: false,
        skips: false,
        replays: false,
        epochs: None,
        source_batch: 8,
        reported: None,
        schema: Schema::Cut { structure, fields }.into(),
    }
}

fn bytes_field(len: u64) -> Field {
    Field::new(ArrayKind::Numpy, DType::U8, vec![len])
}

fn whole() -> RingInfo {
    RingInfo { byte_lane: 4096, schema: Schema::Whole { why: "so it is".into() }.into(), ..cut(vec![]) }
}

/// What a server sends.
struct Sent {
    info: RingInfo,
    head: HeadWriter,
    fds: Vec<OwnedFd>,
    joined: (u64, Option<u64>),
    order: String,
    ring: RingWriter,
    /// It publishes one sample after the other.
    is_busy: bool,
    /// It says that it lives.
    answers: bool,
}

/// All as it should be, for rings of a cut schema with one field of 8 bytes, or of a whole one.
fn sound(info: RingInfo) -> Sent {
    let lanes = match *info.schema {
        Schema::Cut { .. } => vec![64 * 4, 64 * 8],
        Schema::Whole { .. } => vec![64 * 16, 4096],
    };
    let mut ring = RingWriter::create(Layout::new(lanes).unwrap()).unwrap();
    ring.write(0, 0, &8_u32.to_le_bytes());
    let head = HeadWriter::create().unwrap();
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let fds = vec![
        own(head.as_fd()),
        own(ring.memory().fd()),
        own(CursorHandle::create().unwrap().as_fd()),
        own(Doorbell::new().unwrap().as_fd()),
    ];
    Sent { info, head, fds, joined: (0, Some(0)), order: "sequential".into(), ring, is_busy: false, answers: false }
}

/// Attaches to a server that sends this, and asks for a batch.
fn consume(name: &str, sent: Sent, wanted: Config) -> Result<(), Error> {
    let began = Instant::now();
    consume_until(name, sent, wanted, |_| began.elapsed() >= TIMEOUT)
}

/// The same, until this says that it has waited enough. It gets how often the consumer has asked whether the server lives.
fn consume_until(name: &str, sent: Sent, wanted: Config, is_enough: impl Fn(u32) -> bool) -> Result<(), Error> {
    let pings = AtomicU32::new(0);
    let folder = folder();
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join(format!("{name}.sock"));
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::scope(|scope| {
        let asked = &pings;
        scope.spawn(move || {
            let (socket, _) = listener.accept().unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut channel = Channel::for_server(socket.into());
            let mut published = 20;
            let mut fds = Some(sent.fds.into_iter().map(Arc::new).collect());
            loop {
                match channel.receive::<Request>() {
                    Ok(Some((Request::Hello { .. }, _))) => {
                        let ring = sent.info.clone();
                        let _ = channel.send(
                            &Reply::Welcome { ring, run: None, order: sent.order.clone() },
                            fds.take().unwrap_or_default(),
                        );
                    }
                    Ok(Some((Request::Join(Join { number, .. }), _))) => {
                        let (epoch, sample) = sent.joined;
                        let _ = channel.send(
                            &Reply::Answer(Answer::Joined { number, place: Place { epoch, sample, had: 0, start: 0 } }),
                            vec![],
                        );
                    }
                    Ok(Some((Request::Ping, _))) => {
                        asked.fetch_add(1, Ordering::Relaxed);
                        if sent.answers {
                            let _ = channel.send(&Reply::Pong, vec![]);
                        }
                    }
                    Ok(_) => {
                        if sent.is_busy {
                            published += 1;
                            sent.head.publish(published);
                            sent.head.advance_tick();
                            sent.head.wake_all();
                        }
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    Err(_) => return,
                }
            }
        });
        let mut check = || if is_enough(pings.load(Ordering::Relaxed)) { Err(Error::Interrupted) } else { Ok(()) };
        let outcome = Consumer::attach(wanted, &mut check).and_then(|mut consumer| {
            let _ = consumer.batches_per_epoch();
            consumer.next(&mut check).map(drop)
        });
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_dir(&folder);
        outcome
    })
}

fn eight_bytes() -> RingInfo {
    cut(vec![bytes_field(8)])
}

#[test]
fn a_sound_server_is_believed() {
    let sent = sound(eight_bytes());
    sent.head.publish(20);
    consume("sound", sent, config("sound", 5)).unwrap();
}

fn memfd(len_bytes: u64, seals: SealFlags) -> OwnedFd {
    let fd = memfd_create("fake", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&fd, len_bytes).unwrap();
    fcntl_add_seals(&fd, seals).unwrap();
    fd
}

#[test]
fn descriptors_of_another_kind_are_refused() {
    const SIZE: SealFlags = SealFlags::GROW.union(SealFlags::SHRINK);
    let file = || tempfile_of(page_size());
    let pipe = || rustix::pipe::pipe_with(PipeFlags::NONBLOCK).unwrap().1;
    let blocking_bell = || eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let (head, ring, page, bell) = (0, 1, 2, 3);
    let cases: Vec<(&str, usize, OwnedFd)> = vec![
        ("a pipe for the head", head, pipe()),
        ("a file for the head", head, file()),
        ("a head that can shrink", head, memfd(page_size(), SealFlags::GROW)),
        ("a head that can grow", head, memfd(page_size(), SealFlags::SHRINK)),
        ("a head that is too short", head, memfd(page_size() / 2, SIZE)),
        ("a pipe for the ring", ring, pipe()),
        ("an eventfd for the ring", ring, blocking_bell()),
        ("a ring that can shrink", ring, memfd(2 * page_size(), SealFlags::GROW)),
        ("a ring that is too short", ring, memfd(page_size(), SIZE)),
        ("a ring that is too long", ring, memfd(3 * page_size(), SIZE)),
        ("a file for the page", page, file()),
        ("a page that nobody can write to", page, memfd(page_size(), SIZE | SealFlags::WRITE)),
        ("a page that is too short", page, memfd(8, SIZE)),
        ("a pipe for the bell", bell, pipe()),
        ("a file for the bell", bell, file()),
        ("memory for the bell", bell, memfd(page_size(), SIZE)),
        ("a bell that blocks", bell, blocking_bell()),
    ];
    for (what, place, fd) in cases {
        let mut sent = sound(eight_bytes());
        sent.head.publish(20);
        sent.fds[place] = fd;
        match consume("kind", sent, config("kind", 5)) {
            Err(Error::Ring(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    }
    let mut sent = sound(eight_bytes());
    sent.fds.pop();
    assert!(matches!(consume("kind", sent, config("kind", 5)), Err(Error::Protocol(_))));
}

#[test]
fn an_order_with_a_name_without_end_is_refused() {
    for (len, is_fine) in [(MAX_ORDER, true), (MAX_ORDER + 1, false)] {
        let mut sent = sound(eight_bytes());
        sent.head.publish(20);
        sent.order = "x".repeat(len);
        let outcome = consume("order", sent, config("order", 5));
        assert!(
            if is_fine { outcome.is_ok() } else { matches!(outcome, Err(Error::Protocol(_))) },
            "{len}: {outcome:?}"
        );
    }
}

fn tempfile_of(len_bytes: u64) -> OwnedFd {
    let path = std::env::temp_dir().join(format!("fl-file-{}", std::process::id()));
    let file = std::fs::File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
    file.set_len(len_bytes).unwrap();
    fcntl_setfl(&file, OFlags::NONBLOCK).unwrap();
    std::fs::remove_file(path).unwrap();
    file.into()
}

#[test]
fn impossible_rings_are_refused() {
    let huge = |len| cut(vec![bytes_field(len)]);
    let cases = vec![
        RingInfo { capacity: 0, ..eight_bytes() },
        RingInfo { source_batch: 0, ..eight_bytes() },
        RingInfo { capacity: u64::MAX, ..eight_bytes() },
        RingInfo { capacity: 1 << 43, ..eight_bytes() },
        RingInfo { byte_lane: 0, ..whole() },
        RingInfo { byte_lane: u64::MAX, ..whole() },
        huge(u64::MAX),
        huge(1 << 44),
        cut(vec![Field { shape: vec![0, u64::MAX], ..bytes_field(0) }]),
        cut(vec![bytes_field(1 << 40); 64]),
        cut(vec![Field { shape: vec![0, 1 << 60], ..bytes_field(0) }]),
    ];
    for info in cases {
        let mut sent = sound(eight_bytes());
        let described = format!("{info:?}");
        sent.info = info;
        match consume("ring", sent, config("ring", 5)) {
            Err(Error::Protocol(_)) => {}
            other => panic!("{described}: {other:?}"),
        }
    }
}

#[test]
fn heads_that_cannot_be_give_no_batch_outside_of_the_ring() {
    // More samples than the ring has, of which the product with the stride would be a small number again.
    let large = Config { batch_size: Some(1 << 61), ..config("head", 5) };
    for mode in [Mode::Cow, Mode::Copy, Mode::ReadOnly] {
        let sent = sound(eight_bytes());
        // An epoch so short that nobody minds the batch size.
        sent.head.set_length(EpochLength { samples: 5, batches: 1, tail: 5 });
        sent.head.publish((1 << 62) - 1);
        let wanted = Config { mode, ..large.clone() };
        let outcome = consume("head", sent, wanted);
        assert!(matches!(outcome, Err(Error::Protocol(_))), "{outcome:?}");
    }
    // A place from which one can't count on.
    let mut sent = sound(eight_bytes());
    sent.head.publish(u64::MAX - 1);
    sent.joined = (u64::MAX - 1, Some(u64::MAX - 3));
    assert!(consume("head", sent, config("head", 5)).is_err());
    // The source's own batches, as long as the ring says.
    let mut sent = sound(eight_bytes());
    sent.ring.write(0, 0, &u32::MAX.to_le_bytes());
    sent.head.publish(1 << 40);
    let outcome = consume("head", sent, Config { batch_size: None, ..config("head", 5) });
    assert!(matches!(outcome, Err(Error::Protocol(_))), "{outcome:?}");
    // A length of the epoch that one can't add to.
    let sent = sound(eight_bytes());
    sent.head.set_length(EpochLength { samples: UNKNOWN - 1, batches: 3, tail: UNKNOWN });
    sent.head.publish(20);
    let _ = consume("head", sent, Config { batch_size: None, drop_last: true, ..config("head", 5) });
}

#[test]
fn whole_batches_that_cannot_be_are_refused() {
    let place = |start: u64, len: u64| [start.to_le_bytes(), len.to_le_bytes()].concat();
    for (index, batch) in [
        (place(0, 0), vec![]),
        (place(0, 4097), vec![]),
        (place(u64::MAX, u64::MAX), vec![]),
        (place(0, 3), vec![0; 3]),
        (place(0, 100), vec![0xff; 100]),
        (place(0, 4096), [&4092_u32.to_le_bytes()[..], &[0xff; 9], &[0; 100]].concat()),
        (place(u64::MAX - 2, 100), vec![1; 100]),
    ] {
        let mut sent = sound(whole());
        sent.ring.write(0, 0, &index);
        sent.ring.write(1, 0, &batch);
        sent.head.publish(1);
        match consume("whole", sent, Config { batch_size: None, ..config("whole", 5) }) {
            Err(Error::Protocol(_)) => {}
            other => panic!("{index:?}: {other:?}"),
        }
    }
}

#[test]
fn waiting_for_a_ring_that_was_announced_can_be_interrupted() {
    let sent = sound(eight_bytes());
    sent.head.publish(20);
    sent.head.set_generation(1);
    // It asks when it attaches, and when it waits for the ring.
    let outcome = consume_until("announced", sent, config("announced", 5), |pings| pings >= 2);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
}

/// A server in its first epoch, of which a late consumer gets nothing.
fn in_its_first_epoch(samples: u64, is_busy: bool) -> Sent {
    let mut sent = sound(eight_bytes());
    sent.head.set_length(EpochLength { samples, batches: UNKNOWN, tail: UNKNOWN });
    sent.head.publish(20);
    (sent.joined, sent.is_busy, sent.answers) = ((1, None), is_busy, true);
    sent
}

#[test]
fn waiting_for_an_epoch_can_be_interrupted_while_the_one_before_it_goes_on() {
    let calls = AtomicU32::new(0);
    // Attaching and joining make a few; then it is woken for each sample.
    let is_enough = |_| calls.fetch_add(1, Ordering::Relaxed) >= 20;
    let outcome = consume_until("busy", in_its_first_epoch(UNKNOWN, true), config("busy", 5), is_enough);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
}

#[test]
fn an_epoch_without_an_end_in_sight_is_not_waited_for_without_end() {
    for is_busy in [false, true] {
        let wanted = Config { answer_timeout: Duration::from_secs(1), ..config("endless", 5) };
        match consume_until("endless", in_its_first_epoch(UNKNOWN, is_busy), wanted, |_| false) {
            Err(Error::Stalled(why)) => {
                let why = why.to_string();
                assert!(why.contains("waits for epoch 1") && why.contains("join=\"now\""), "{why}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn an_epoch_of_known_length_is_waited_for() {
    let began = Instant::now();
    let wanted = Config { answer_timeout: Duration::from_secs(1), ..config("known", 5) };
    // Longer than the time after which one of unknown length is given up.
    let is_enough = |_| began.elapsed() >= Duration::from_secs(3);
    let outcome = consume_until("known", in_its_first_epoch(1000, true), wanted, is_enough);
    assert!(matches!(outcome, Err(Error::Interrupted)), "{outcome:?}");
}
