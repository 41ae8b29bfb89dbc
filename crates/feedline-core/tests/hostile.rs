//! A server among peers that don't keep to the protocol: they are dropped, and nobody else notices.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use feedline_core::batch::{Array, Batch, Leaf, Value};
use feedline_core::consumer::{Config, Consumer};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::server::{Options, Server};
use feedline_core::source::Source;
use feedline_core::wire::{Channel, JoinAt, MAGIC, Reply, Request, VERSION};
use feedline_core::{Error, Failure, Node, Structure, names};
use proptest::prelude::*;

/// One folder for this test process; each test has a feed of its own.
fn folder() -> PathBuf {
    static ONCE: Once = Once::new();
    let folder = std::env::temp_dir().join(format!("fl-hostile-{}", std::process::id()));
    ONCE.call_once(|| {
        // SAFETY: before any other thread of this test reads the environment (each call of `folder` comes first).
        #[allow(unsafe_code)]
        unsafe {
            std::env::set_var("FEEDLINE_DIR", &folder);
        }
    });
    folder
}

struct Counter(u64);

impl Source for Counter {
    fn begin(&mut self, _epoch: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Batch<'_>>, Failure> {
        self.0 += 1;
        if self.0 > 50 {
            return Ok(None);
        }
        let data: &'static [u8] = &[7; 64];
        let array = Array { kind: ArrayKind::Numpy, dtype: DType::U8, shape: vec![8, 8], data };
        Ok(Some(Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array)] }))
    }
}

/// Runs `disturb` beside a server, then checks that a well-behaved consumer gets everything.
fn beside_a_server(name: &str, disturb: impl FnOnce(&dyn Fn() -> UnixStream)) {
    let folder = folder();
    let server = Server::bind(name, Options { epochs: Some(1), ..Options::default() }).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run(&mut Counter(0), &mut || Ok(())));
        let path = folder.join(format!("{name}.sock"));
        disturb(&|| UnixStream::connect(&path).unwrap());
        let config = Config { batch_size: Some(5), ..Config::new(name) };
        let mut consumer = Consumer::attach(config, &mut || Ok(())).unwrap();
        let mut samples = 0;
        while let Some(batch) = consumer.next(&mut || Ok(())).unwrap() {
            let [Value::Array { shape, window, .. }] = batch.values.as_slice() else { panic!("one array") };
            assert!(window.bytes().iter().all(|&byte| byte == 7));
            samples += shape[0];
        }
        assert_eq!(samples, 400);
        drop(consumer);
        serving.join().unwrap().unwrap();
    });
    assert_eq!(names::server_of(&folder.join(format!("{name}.sock"))), None, "the name is free");
    let _ = std::fs::remove_dir(folder);
}

/// Reads until the server closes.
fn is_dropped(mut socket: UnixStream) {
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

fn frame(message: &Request) -> Vec<u8> {
    let body = postcard::to_allocvec(message).unwrap();
    [&(body.len() as u32).to_le_bytes()[..], &[0], &body].concat()
}

fn hello() -> Vec<u8> {
    frame(&Request::Hello { magic: MAGIC, version: VERSION, consumer: true })
}

#[test]
fn garbage_lengths_and_early_requests_are_refused() {
    let join =
        frame(&Request::Join { number: 1, batch_size: Some(3), entry: JoinAt::Newest, returning: 0, slowest: 0 });
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
        [visit, frame(&Request::Diagnose)].concat(),
        frame(&Request::Hello { magic: 1, version: VERSION, consumer: true }),
        [hello(), hello()].concat(),
        [hello(), vec![0xff; 32]].concat(),
    ];
    beside_a_server("garbage", |connect| {
        for bytes in cases {
            let mut socket = connect();
            socket.write_all(&bytes).unwrap();
            is_dropped(socket);
        }
    });
}

#[test]
fn another_version_is_told_so() {
    beside_a_server("version", |connect| {
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
    beside_a_server("silent", |connect| {
        let mut held: Vec<UnixStream> = (0..40).map(|_| connect()).collect();
        for socket in &mut held[..20] {
            socket.write_all(&hello()[..3]).unwrap();
        }
        std::mem::forget(held);
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// A valid conversation with a few bytes changed, cut or doubled: the server may drop it or answer it, and lives.
    #[test]
    fn mutated_conversations_are_survived(
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        doubled in any::<bool>(),
    ) {
        let mut bytes = hello();
        bytes.extend(frame(&Request::Join { number: 1, batch_size: Some(3), entry: JoinAt::EpochStart, returning: 0, slowest: 0 }));
        bytes.extend(frame(&Request::Leave));
        bytes.extend(frame(&Request::Stats));
        bytes.extend(frame(&Request::Ping));
        bytes.extend(frame(&Request::Diagnose));
        if doubled {
            bytes.extend(bytes.clone());
        }
        for (index, value) in flips {
            let at = index.index(bytes.len());
            bytes[at] ^= value;
        }
        bytes.truncate(cut.index(bytes.len()) + 1);
        beside_a_server("mutated", |connect| {
            let mut socket = connect();
            let _ = socket.write_all(&bytes);
            drop(socket);
        });
    }
}
