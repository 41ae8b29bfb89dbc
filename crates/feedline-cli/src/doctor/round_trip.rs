//! A feed in this process, read by a second one: every sample must arrive, in order, byte for byte.

use std::ffi::OsString;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use feedline_core::batch::{Array, Batch, Leaf, Value};
use feedline_core::consumer::{Config, Consumer};
use feedline_core::schema::{ArrayKind, DType};
use feedline_core::server::{History, Options, RingSize, Server};
use feedline_core::source::{BatchSource, Item};
use feedline_core::{Error, Failure, Node, Structure};
use feedline_shm::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::child::{SecondProcess, Silence};
use super::report::Check;
use crate::output::print;

const NAME: &str = "round trip";
const SAMPLES: u64 = 512;
const SAMPLE_WORDS: usize = 8192;
const SOURCE_BATCH: u64 = 8;
/// Neither batch size divides the other, nor the epoch.
pub(super) const BATCH: u64 = 24;
/// The ring goes round eight times.
const RING_BYTES: u64 = 4 << 20;
/// A second Python takes a while to start on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(12);

/// What a consumer has received.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Received {
    /// A checksum of each sample.
    sums: Vec<u64>,
    batches: u64,
    secs: f64,
}

pub(super) fn checks(command: &[OsString], has_all: bool) -> Vec<Check> {
    if !has_all {
        return vec![Check::note(NAME, "not tried: something that it needs is bad", "mend that first")];
    }
    let Some((program, arguments)) = command.split_first() else { return Vec::new() };
    let tried = Feed::open("rust").map_err(|error| error.to_string()).and_then(|feed| {
        let mut second = Command::new(program);
        second.args(arguments).args(["doctor", "--probe", &feed.name]);
        let mut second = SecondProcess::start(&mut second).map_err(|error| format!("no second process: {error}"))?;
        let line = second.next_line(Instant::now() + TIMEOUT).map_err(|silence| match silence {
            Silence::Late => format!("the second process read nothing in {} s", TIMEOUT.as_secs()),
            Silence::Ended(why) => why,
        })?;
        let received: Received =
            serde_json::from_str(&line).map_err(|_| format!("the second process said {line:?}"))?;
        Ok(feed.judge(NAME, &received, ""))
    });
    vec![tried.unwrap_or_else(|why| failed(NAME, &why))]
}

pub(super) fn failed(name: &'static str, why: &str) -> Check {
    Check::bad(name, why, "see what else is bad here; if nothing is, report it with all of this output")
}

/// The second process: reads the feed, and reports what it received.
pub(super) fn probe(name: &str) -> anyhow::Result<u8> {
    let config = Config { batch_size: Some(BATCH), timeout: TIMEOUT, ..Config::new(name) };
    let mut consumer = Consumer::attach(config, &mut || Ok(()))?;
    let mut received = Received { sums: Vec::new(), batches: 0, secs: 0.0 };
    let began = Instant::now();
    while let Some(batch) = consumer.next(&mut || Ok(()))? {
        let [Value::Array { window, .. }] = batch.values.as_slice() else { anyhow::bail!("a batch is one array") };
        received.sums.extend(window.to_vec().chunks_exact(SAMPLE_WORDS * 8).map(sum));
        received.batches += 1;
    }
    received.secs = began.elapsed().as_secs_f64();
    print(&format!("{}\n", json!(received)))?;
    Ok(0)
}

/// A checksum that depends on each word and on its place.
fn sum(sample: &[u8]) -> u64 {
    let (mut sum, mut weight) = (0_u64, 1_u64);
    for word in sample.chunks_exact(8) {
        sum = sum.wrapping_add(u64::from_ne_bytes(word.try_into().unwrap_or_default()).wrapping_mul(weight));
        weight += 2;
    }
    sum
}

/// The names of these feeds begin with it: commands that show all feeds leave them out.
pub(crate) const PREFIX: &str = "doctor-";

/// A feed of one epoch, which lives as long as this.
pub(super) struct Feed {
    pub(super) name: String,
    server: Arc<Server>,
    sent: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
}

impl Feed {
    pub(super) fn open(reader: &str) -> Result<Self, Error> {
        let name = format!("{PREFIX}{reader}-{}", std::process::id());
        let options = Options {
            epochs: Some(1),
            samples: Some(SAMPLES),
            ring: Some(RingSize::Bytes(RING_BYTES)),
            history: History::Bytes(0),
            ..Options::default()
        };
        let server = Arc::new(Server::bind(&name, options)?);
        let sent = Arc::new(Mutex::new(Vec::new()));
        let mut pattern = Pattern { next: 0, words: Vec::new(), sent: Arc::clone(&sent) };
        let serving = Arc::clone(&server);
        let thread = std::thread::spawn(move || {
            // An error of the server reaches the consumer, and is reported as the consumer's failure.
            let _ = serving.run_batches(&mut pattern, &mut || Ok(()));
        });
        Ok(Self { name, server, sent, thread: Some(thread) })
    }

    /// Compares what was sent with what arrived.
    pub(super) fn judge(&self, name: &'static str, received: &Received, reader: &str) -> Check {
        let sent = self.sent.lock();
        if *sent != received.sums {
            let same = sent.iter().zip(&received.sums).filter(|(sent, received)| sent == received).count();
            let found =
                format!("{} samples were sent, {} arrived, {same} of them as sent", sent.len(), received.sums.len());
            return Check::bad(name, found, "do not use feeds here, and report it with all of this output");
        }
        let secs = received.secs.max(1e-9);
        let (bytes, batches) = (sent.len() * SAMPLE_WORDS * 8, received.batches.max(1));
        let (micros, rate) = (secs * 1e6 / batches as f64, bytes as f64 / secs);
        let found = format!(
            "{} samples to a second process{reader}, all as sent: {micros:.0} µs a batch of {:.1} MB, {:.2} GB/s with every byte made and checked",
            sent.len(),
            bytes as f64 / batches as f64 / 1e6,
            rate / 1e9
        );
        Check::ok(name, found).with(json!({
            "samples": sent.len(),
            "batches": batches,
            "secs_per_batch": secs / batches as f64,
            "bytes_per_sec": rate,
        }))
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.server.stop("the check is over");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Samples that differ in every word.
struct Pattern {
    next: u64,
    words: Vec<u8>,
    sent: Arc<Mutex<Vec<u64>>>,
}

impl BatchSource for Pattern {
    fn begin(&mut self, _epoch: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn next(&mut self) -> Result<Option<Item<'_>>, Failure> {
        if self.next == SAMPLES {
            return Ok(None);
        }
        self.words.resize(SOURCE_BATCH as usize * SAMPLE_WORDS * 8, 0);
        let mut word = (self.next + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for place in self.words.chunks_exact_mut(8) {
            place.copy_from_slice(&word.to_ne_bytes());
            word = word.wrapping_add(0xd1b5_4a32_d192_ed03);
        }
        self.next += SOURCE_BATCH;
        let mut sent = self.sent.lock();
        sent.extend(self.words.chunks_exact(SAMPLE_WORDS * 8).map(sum));
        let shape = vec![SOURCE_BATCH, SAMPLE_WORDS as u64 * 8];
        let array = Array::new(ArrayKind::Numpy, DType::U8, shape, &self.words);
        Ok(Some(Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array)] }.into()))
    }
}
