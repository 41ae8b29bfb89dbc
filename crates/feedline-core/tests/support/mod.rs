//! A server beside which others do what they like, and a consumer that must not notice.
#![allow(dead_code)] // each test file uses some of it

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Once;
use std::time::Duration;

use feedline_core::batch::{Array, Batch, Leaf, Value};
use feedline_core::consumer::{Config, Consumer};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::server::{Options, Server};
use feedline_core::source::{BatchSource, Item};
use feedline_core::wire::{MAGIC, Request, VERSION};
use feedline_core::{Failure, Node, Structure, names};

/// One folder for this test process; each test has a feed of its own.
pub fn folder() -> PathBuf {
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

/// 50 batches of 8 samples; each sample is its number, eight times.
#[derive(Default)]
pub struct Counter {
    batches: u8,
    rows: Vec<u8>,
}

impl BatchSource for Counter {
    fn begin(&mut self, _epoch: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Item<'_>>, Failure> {
        if self.batches == 50 {
            return Ok(None);
        }
        let first = self.batches.wrapping_mul(8);
        self.rows = (0..8).flat_map(|row| [first.wrapping_add(row); 8]).collect();
        self.batches += 1;
        let array = Array::new(ArrayKind::Numpy, DType::U8, vec![8, 8], &self.rows);
        Ok(Some(Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array)] }.into()))
    }
}

pub fn config(name: &str, batch_size: u64) -> Config {
    Config { batch_size: Some(batch_size), timeout: Duration::from_secs(20), ..Config::new(name) }
}

/// Reads an epoch of [`Counter`]: every sample, in order, once.
pub fn read_all(consumer: &mut Consumer) {
    let mut samples = 0_u64;
    while let Some(batch) = consumer.next(&mut || Ok(())).unwrap() {
        let [Value::Array { window, .. }] = batch.values.as_slice() else { panic!("one array") };
        for row in window.to_vec().chunks(8) {
            assert_eq!(row, [samples as u8; 8], "sample {samples}");
            samples += 1;
        }
    }
    assert_eq!(samples, 400);
}

/// Runs `disturb` beside a server, then checks that a well-behaved consumer gets everything while what it gave lives.
pub fn with_server<T>(name: &str, disturb: impl FnOnce(&dyn Fn() -> UnixStream) -> T) {
    with_server_options(Options { epochs: Some(1), ..Options::default() }, name, disturb);
}

/// The same, with other options.
pub fn with_server_options<T>(options: Options, name: &str, disturb: impl FnOnce(&dyn Fn() -> UnixStream) -> T) {
    let folder = folder();
    let server = Server::bind(name, options).unwrap();
    std::thread::scope(|scope| {
        let serving = scope.spawn(|| server.run_batches(&mut Counter::default(), &mut || Ok(())));
        let path = folder.join(format!("{name}.sock"));
        let held = disturb(&|| UnixStream::connect(&path).unwrap());
        let mut consumer = Consumer::attach(config(name, 5), &mut || Ok(())).unwrap();
        read_all(&mut consumer);
        drop((consumer, held));
        serving.join().unwrap().unwrap();
    });
    assert_eq!(names::server_of(&folder.join(format!("{name}.sock"))), None, "the name is free");
    let _ = std::fs::remove_dir(folder);
}

/// Reads until the server closes.
pub fn is_dropped(mut socket: UnixStream) {
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut rest = Vec::new();
    match socket.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
    }
}

pub fn frame(message: &Request) -> Vec<u8> {
    let body = postcard::to_allocvec(message).unwrap();
    [&(body.len() as u32).to_le_bytes()[..], &[0], &body].concat()
}

pub fn hello() -> Vec<u8> {
    frame(&Request::Hello { magic: MAGIC, version: VERSION, consumer: true })
}
