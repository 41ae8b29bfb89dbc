//! A feed from Rust alone: one server, three consumers in processes of their own, each with its own batch size.
//!
//! ```sh
//! cargo run --release -p feedline-core --example fan_out
//! ```

use std::process::Command;

use feedline_core::batch::{Array, Batch, Leaf, Value};
use feedline_core::consumer::{Config, Consumer};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::server::{Options, Server};
use feedline_core::source::{BatchSource, Item, Length};
use feedline_core::{Failure, Node, Structure};

const SAMPLES: u64 = 650;
const BATCH: u64 = 64;
const EPOCHS: u64 = 3;

/// Counts: sample `i` is the number `i`.
#[derive(Default)]
struct Counter {
    next: u64,
    bytes: Vec<u8>,
}

impl BatchSource for Counter {
    fn begin(&mut self, _epoch: u64) -> Result<(), Failure> {
        self.next = 0;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Item<'_>>, Failure> {
        let end = (self.next + BATCH).min(SAMPLES);
        if self.next == end {
            return Ok(None);
        }
        self.bytes = (self.next..end).flat_map(u64::to_le_bytes).collect();
        let shape = vec![end - self.next];
        self.next = end;
        let array = Array::new(ArrayKind::Numpy, DType::U64, shape, &self.bytes);
        Ok(Some(Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array)] }.into()))
    }

    fn length(&self) -> Length {
        Length { samples: Some(SAMPLES), batches: Some(SAMPLES.div_ceil(BATCH)), batch_size: Some(BATCH) }
    }
}

fn serve() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::temp_dir().join(format!("feedline-example-{}", std::process::id()));
    let program = std::env::current_exe()?;
    let consumers: Vec<_> = [16, 7, 650]
        .into_iter()
        .map(|size: u64| Command::new(&program).arg(size.to_string()).env("FEEDLINE_DIR", &folder).spawn())
        .collect::<Result<_, _>>()?;
    // The folder is read from the environment, so the server runs as a process of its own too.
    let mut server = Command::new(&program).arg("serve").env("FEEDLINE_DIR", &folder).spawn()?;
    for mut consumer in consumers {
        assert!(consumer.wait()?.success());
    }
    assert!(server.wait()?.success());
    std::fs::remove_dir_all(&folder)?;
    Ok(())
}

fn run_server() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options { epochs: Some(EPOCHS), wait_for: 3, ..Options::default() };
    let server = Server::bind("numbers", options)?;
    server.run_batches(&mut Counter::default(), &mut || Ok(())).map_err(|failure| failure.message.to_string())?;
    Ok(())
}

fn consume(batch_size: u64) -> Result<(), Box<dyn std::error::Error>> {
    let config = Config { batch_size: Some(batch_size), ..Config::new("numbers") };
    let mut consumer = Consumer::attach(config, &mut || Ok(()))?;
    for epoch in 0..EPOCHS {
        let (mut expected, mut batches) = (0_u64, 0);
        while let Some(batch) = consumer.next(&mut || Ok(()))? {
            let [Value::Array { window, .. }] = batch.values.as_slice() else { panic!("one array") };
            for number in window.to_vec().chunks_exact(8) {
                assert_eq!(u64::from_le_bytes(number.try_into()?), expected);
                expected += 1;
            }
            batches += 1;
        }
        assert_eq!(expected, SAMPLES);
        assert_eq!(consumer.batches_per_epoch(), Some(batches));
        println!(
            "batches of {batch_size:>3}, epoch {epoch}: {expected} samples in {batches} batches, each exactly once"
        );
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    match std::env::args().nth(1).as_deref() {
        None => serve(),
        Some("serve") => run_server(),
        Some(size) => consume(size.parse()?),
    }
}
