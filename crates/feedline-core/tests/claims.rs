//! Sources that claim samples and fill them in place, from several threads.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use feedline_core::Failure;
use feedline_core::batch::Value;
use feedline_core::consumer::Consumer;
use feedline_core::schema::{ArrayKind, DType, Field, Schema};
use feedline_core::server::{Appender, Claim, First, Options, RingSize, Server};
use feedline_core::source::{Halt, Length, Mark, Source, Synthetic};
use feedline_core::{Node, Structure};

/// A sample's bytes: its epoch and its number, again and again.
fn fill(epoch: u64, sample: u64, bytes: &mut [u8]) {
    for (place, byte) in bytes.iter_mut().zip([epoch.to_le_bytes(), sample.to_le_bytes()].concat().iter().cycle()) {
        *place = *byte;
    }
}

fn expected(epoch: u64, sample: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill(epoch, sample, &mut bytes);
    bytes
}

/// The samples of the next batch, or `None` at the epoch's end.
fn next(consumer: &mut Consumer, sample_bytes: usize) -> Option<Vec<Vec<u8>>> {
    let batch = consumer.next(&mut || Ok(())).unwrap()?;
    let [Value::Array { window, .. }] = batch.values.as_slice() else { panic!("one array") };
    Some(window.to_vec().chunks_exact(sample_bytes).map(<[u8]>::to_vec).collect())
}

/// Reads an epoch, and compares each sample.
fn read_epoch(consumer: &mut Consumer, epoch: u64, samples: u64, sample_bytes: usize) {
    let mut read = 0;
    while let Some(batch) = next(consumer, sample_bytes) {
        for sample in batch {
            assert_eq!(sample, expected(epoch, read, sample_bytes), "sample {read} of epoch {epoch}");
            read += 1;
        }
    }
    assert_eq!(read, samples);
}

/// A server that runs beside the test.
struct Serving {
    server: Server,
    /// How often the server's thread has begun to sleep.
    sleeps: AtomicU64,
}

impl Serving {
    /// Waits until the server's thread has looked at least once more for something to do, and found nothing.
    fn finds_nothing_to_do(&self) {
        let before = self.sleeps.load(Ordering::SeqCst);
        while self.sleeps.load(Ordering::SeqCst) < before + 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn serving<T>(
    name: &str,
    options: Options,
    source: &mut (dyn Source + Send),
    read: impl FnOnce(&Serving) -> T,
) -> Result<T, Failure> {
    let folder = support::folder();
    let serving = Serving { server: Server::bind(name, options).unwrap(), sleeps: AtomicU64::new(0) };
    let mut sleeps = || {
        serving.sleeps.fetch_add(1, Ordering::SeqCst);
        Ok(())
    };
    let outcome = std::thread::scope(|scope| {
        let served = scope.spawn(|| serving.server.run(source, &mut sleeps));
        let read = read(&serving);
        served.join().unwrap().map(|()| read)
    });
    let _ = std::fs::remove_dir(folder);
    outcome
}

#[test]
fn threads_fill_a_feed_that_two_consumers_read() {
    const SAMPLES: u64 = 1003;
    const BYTES: usize = 48;
    let mut source = Synthetic::new(SAMPLES, 64, BYTES as u64, 3, fill);
    let options = Options { epochs: Some(3), wait_for: 2, ..Options::default() };
    serving("synthetic", options, &mut source, |_| {
        std::thread::scope(|scope| {
            for batch_size in [Some(7), None] {
                scope.spawn(move || {
                    let config = feedline_core::consumer::Config { batch_size, ..support::config("synthetic", 1) };
                    let mut consumer = Consumer::attach(config, &mut || Ok(())).unwrap();
                    for epoch in 0..3 {
                        read_epoch(&mut consumer, epoch, SAMPLES, BYTES);
                        let batches = SAMPLES.div_ceil(batch_size.unwrap_or(64));
                        assert_eq!(consumer.batches_per_epoch(), Some(batches));
                    }
                });
            }
        });
    })
    .unwrap();
}

/// Hands each claim to the test, which fills, commits or drops it when it likes.
struct Lent {
    samples: u64,
    run: u64,
    claims: Sender<Claim>,
}

const LENT_BYTES: usize = 16;

impl Source for Lent {
    fn begin(&mut self, _epoch: u64) -> Result<(), Failure> {
        Ok(())
    }

    fn append(&mut self, log: &mut Appender<'_, '_>) -> Result<bool, Halt> {
        let field = Field::new(ArrayKind::Numpy, DType::U8, vec![LENT_BYTES as u64]);
        let structure = Structure(vec![Node::Leaf]);
        log.begin(|_| Ok(First::cut(self.run, Schema::Cut { structure, fields: vec![field] })))?;
        let index = log.index()?;
        let left = (self.samples - index).min(self.run);
        if left == 0 {
            return Ok(false);
        }
        let Some(claim) = log.claim(index, left, left)? else { return Ok(true) };
        self.claims.send(claim).expect("the test takes all claims");
        Ok(true)
    }

    fn length(&self) -> Length {
        Length { samples: Some(self.samples), ..Length::default() }
    }
}

/// The same, and is told how far the log has come.
struct Kept {
    lent: Lent,
    marks: Vec<Mark>,
}

impl Source for Kept {
    fn begin(&mut self, epoch: u64) -> Result<(), Failure> {
        self.lent.begin(epoch)
    }

    fn append(&mut self, log: &mut Appender<'_, '_>) -> Result<bool, Halt> {
        self.lent.append(log)
    }

    fn keeps_state(&self) -> bool {
        true
    }

    fn mark(&mut self, head: Mark, _oldest: Mark, _needed: Option<Mark>) -> Result<(), Failure> {
        self.marks.push(head);
        Ok(())
    }
}

fn commit(mut claim: Claim) {
    let first = claim.index();
    for (sample, bytes) in (first..).zip(claim.field(0).chunks_exact_mut(LENT_BYTES)) {
        fill(0, sample, bytes);
    }
    claim.commit();
}

fn lent(samples: u64) -> (Lent, Receiver<Claim>) {
    let (sender, claims) = channel();
    (Lent { samples, run: 10, claims: sender }, claims)
}

fn one_epoch() -> Options {
    Options { epochs: Some(1), ring: Some(RingSize::Samples(100)), ..Options::default() }
}

#[test]
fn claims_are_published_in_order_whatever_the_order_in_which_they_are_committed() {
    let (mut source, claims) = lent(50);
    serving("any_order", one_epoch(), &mut source, |_| {
        let mut open: Vec<Claim> = (0..5).map(|_| claims.recv().unwrap()).collect();
        assert_eq!(open.iter().map(Claim::index).collect::<Vec<_>>(), [0, 10, 20, 30, 40]);
        for index in [3, 0, 2, 1, 0] {
            commit(open.remove(index));
        }
        let mut consumer = Consumer::attach(support::config("any_order", 8), &mut || Ok(())).unwrap();
        read_epoch(&mut consumer, 0, 50, LENT_BYTES);
    })
    .unwrap();
}

#[test]
fn what_is_given_back_is_claimed_again() {
    let (mut source, claims) = lent(50);
    serving("given_back", one_epoch(), &mut source, |serving| {
        let mut open: Vec<Claim> = (0..5).map(|_| claims.recv().unwrap()).collect();
        commit(open.remove(4));
        drop(open.remove(1));
        serving.finds_nothing_to_do();
        assert!(claims.try_recv().is_err(), "two behind it are still being filled");
        for claim in open {
            commit(claim);
        }
        for index in [10, 20, 30, 40] {
            let claim = claims.recv().unwrap();
            assert_eq!(claim.index(), index);
            commit(claim);
        }
        let config = feedline_core::consumer::Config { batch_size: None, ..support::config("given_back", 1) };
        let mut consumer = Consumer::attach(config, &mut || Ok(())).unwrap();
        read_epoch(&mut consumer, 0, 50, LENT_BYTES);
        assert_eq!(consumer.batches_per_epoch(), Some(5), "what was given back is counted once");
        let stats = serving.server.stats();
        assert_eq!((stats.batches, stats.bytes), (5, 50 * LENT_BYTES as u64));
    })
    .unwrap();
}

/// What is filled after the source has claimed everything is published without another call of the source.
#[test]
fn a_source_is_told_of_what_was_published_last() {
    let (lent, claims) = lent(50);
    let mut source = Kept { lent, marks: Vec::new() };
    serving("marked", one_epoch(), &mut source, |serving| {
        let open: Vec<Claim> = (0..5).map(|_| claims.recv().unwrap()).collect();
        serving.finds_nothing_to_do();
        open.into_iter().for_each(commit);
        let mut consumer = Consumer::attach(support::config("marked", 10), &mut || Ok(())).unwrap();
        read_epoch(&mut consumer, 0, 50, LENT_BYTES);
    })
    .unwrap();
    assert_eq!(source.marks.first(), Some(&Mark { epoch: 0, index: 0 }));
    assert_eq!(source.marks.last(), Some(&Mark { epoch: 0, index: 50 }));
}

/// A consumer whose batch is larger than the ring has it replaced: what was committed before is copied, and what is still being
/// filled in the old ring is carried over.
#[test]
fn claims_survive_the_replacement_of_their_ring() {
    let (mut source, claims) = lent(200);
    serving("replaced", one_epoch(), &mut source, |serving| {
        let mut small = Consumer::attach(support::config("replaced", 5), &mut || Ok(())).unwrap();
        let mut open: Vec<Claim> = (0..10).map(|_| claims.recv().unwrap()).collect();
        serving.finds_nothing_to_do();
        assert!(claims.try_recv().is_err(), "the ring is full");
        // The first is open, so nothing is published; the second is filled and waits for it.
        commit(open.remove(1));
        let large = Consumer::attach(support::config("replaced", 150), &mut || Ok(())).unwrap();
        let reading = std::thread::spawn(move || {
            let mut large = large;
            read_epoch(&mut large, 0, 200, LENT_BYTES);
        });
        // There is room again only in the larger ring.
        let next = claims.recv().unwrap();
        assert_eq!(next.index(), 100);
        open.push(next);
        open.into_iter().rev().for_each(commit);
        let filling = std::thread::spawn(move || claims.into_iter().for_each(commit));
        read_epoch(&mut small, 0, 200, LENT_BYTES);
        reading.join().unwrap();
        drop(small);
        filling
    })
    .map(|filling| {
        drop(source);
        filling.join().unwrap();
    })
    .unwrap();
}

/// Its threads hang with claims in hand, and there is nobody else whom the server could wait for.
#[test]
fn a_source_that_does_not_fill_what_it_has_claimed_is_given_up() {
    for (name, samples, why) in [("full", 200, "the ring is full"), ("claimed", 100, "everything is claimed")] {
        let (mut source, claims) = lent(samples);
        let options = Options { loader_timeout_secs: Some(Duration::from_millis(300)), ..one_epoch() };
        let serving = serving(name, options, &mut source, |_| {
            let mut consumer = Consumer::attach(support::config(name, 10), &mut || Ok(())).unwrap();
            let mut open: Vec<Claim> = (0..10).map(|_| claims.recv().unwrap()).collect();
            commit(open.remove(0));
            assert_eq!(next(&mut consumer, LENT_BYTES).unwrap().len(), 10);
            let error = consumer.next(&mut || Ok(())).unwrap_err().to_string();
            assert!(error.contains("gave up on its loader"), "{why}: {error}");
        });
        serving.unwrap();
    }
}

#[test]
fn a_source_that_has_no_whole_batches_says_so() {
    let mut source = Synthetic::new(100, 10, 8, 1, fill);
    let options = Options { whole_batches: true, ..Options::default() };
    let failure = serving("whole", options, &mut source, |_| {
        let attached = Consumer::attach(support::config("whole", 10), &mut || Ok(()));
        let error =
            attached.and_then(|mut consumer| consumer.next(&mut || Ok(()))).err().map(|error| error.to_string());
        assert!(error.as_ref().is_some_and(|error| error.contains("no whole batches")), "{error:?}");
    });
    assert!(failure.unwrap_err().message.to_string().contains("no whole batches"));
}

#[test]
fn a_source_whose_threads_have_all_panicked_fails_the_feed() {
    let filled = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&filled);
    let panics = move |epoch: u64, sample: u64, bytes: &mut [u8]| {
        assert!(sample < 20, "sample {sample} is bad");
        fill(epoch, sample, bytes);
        count.fetch_add(1, Ordering::Relaxed);
    };
    let mut source = Synthetic::new(100, 10, 8, 2, panics);
    let options = Options { epochs: Some(1), ..Options::default() };
    let failure = serving("panics", options, &mut source, |_| {
        let mut consumer = Consumer::attach(support::config("panics", 10), &mut || Ok(())).unwrap();
        assert_eq!(next(&mut consumer, 8).unwrap().len(), 10);
        assert_eq!(next(&mut consumer, 8).unwrap().len(), 10);
        let error = consumer.next(&mut || Ok(())).unwrap_err().to_string();
        assert!(error.contains("has panicked"), "{error}");
    });
    assert!(failure.unwrap_err().message.to_string().contains("has panicked"));
    assert_eq!(filled.load(Ordering::Relaxed), 20);
}
