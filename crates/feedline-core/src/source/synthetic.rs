//! Samples that are computed, by several threads, straight into the ring: a native source, and nothing else.
//!
//! ```text
//! append ── claims ──▶ queue ──▶ thread 0 ── fill, commit ──▶ log
//!                          └───▶ thread 1 ── fill, commit ──▶ log
//! ```

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use feedline_shm::Mutex;

use super::{Halt, Length, Source};
use crate::error::{Failure, FailureKind};
use crate::explain::Explanation;
use crate::options::Name;
use crate::schema::{ArrayKind, DType, Field, Schema};
use crate::server::{Appender, Claim, First};
use crate::structure::{Node, Structure};
use crate::text;

/// Claims that wait for a thread, for each of them: enough to have one at hand.
const QUEUED: usize = 2;

/// Epochs of samples of one field, each made by a function of the epoch's and its own number.
pub struct Synthetic {
    samples: u64,
    batch_size: u64,
    sample_bytes: u64,
    epoch: u64,
    queue: Option<SyncSender<(u64, Claim)>>,
    threads: Vec<JoinHandle<()>>,
}

impl Synthetic {
    /// `samples` samples of `sample_bytes` bytes each, filled by so many threads.
    pub fn new(
        samples: u64,
        batch_size: u64,
        sample_bytes: u64,
        threads: usize,
        fill: impl Fn(u64, u64, &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        assert!(threads > 0 && batch_size > 0 && sample_bytes > 0, "there is something to fill, and somebody who does");
        let fill = Arc::new(fill);
        let (queue, claims) = sync_channel(threads * QUEUED);
        let claims = Arc::new(Mutex::new(claims));
        let thread = |_| {
            let (claims, fill) = (Arc::clone(&claims), Arc::clone(&fill));
            std::thread::spawn(move || work(&claims, &*fill))
        };
        let threads = (0..threads).map(thread).collect();
        Self { samples, batch_size, sample_bytes, epoch: 0, queue: Some(queue), threads }
    }

    fn first(&self, takes_whole: bool) -> Result<First, Failure> {
        if takes_whole {
            let what = "a source that fills samples in place has no whole batches to serve";
            let way_out = text!["leave out ", Name::whole_batches.of_value(true)];
            return Err(Failure::new(FailureKind::Schema, Explanation::new(what).hint(way_out)));
        }
        let field = Field::new(ArrayKind::Numpy, DType::U8, vec![self.sample_bytes]);
        let schema = Schema::Cut { structure: Structure(vec![Node::Leaf]), fields: vec![field] };
        Ok(First::cut(self.batch_size, schema))
    }
}

fn work(claims: &Mutex<Receiver<(u64, Claim)>>, fill: &impl Fn(u64, u64, &mut [u8])) {
    loop {
        let next = claims.lock().recv();
        let Ok((epoch, mut claim)) = next else { return };
        let (first, stride) = (claim.index(), claim.field(0).len() / claim.samples() as usize);
        for (sample, bytes) in (first..).zip(claim.field(0).chunks_exact_mut(stride)) {
            fill(epoch, sample, bytes);
        }
        claim.commit();
    }
}

impl Source for Synthetic {
    fn begin(&mut self, epoch: u64) -> Result<(), Failure> {
        self.epoch = epoch;
        Ok(())
    }

    fn append(&mut self, log: &mut Appender<'_, '_>) -> Result<bool, Halt> {
        log.begin(|takes_whole| self.first(takes_whole))?;
        let index = log.index()?;
        if index == self.samples {
            return Ok(false);
        }
        let left = (self.batch_size - index % self.batch_size).min(self.samples - index);
        // All threads fill the next batch together.
        let run = left.min(self.batch_size.div_ceil(self.threads.len() as u64));
        let Some(claim) = log.claim(index, run, left)? else { return Ok(true) };
        let is_there = |queue: &SyncSender<_>| queue.send((self.epoch, claim)).is_ok();
        if log.watch(|| self.queue.as_ref().is_some_and(is_there))? {
            return Ok(true);
        }
        Err(Failure::new(FailureKind::Loader, "every thread of the source has panicked").into())
    }

    fn length(&self) -> Length {
        let batches = self.samples.div_ceil(self.batch_size);
        Length { samples: Some(self.samples), batches: Some(batches), batch_size: Some(self.batch_size) }
    }
}

impl Drop for Synthetic {
    fn drop(&mut self) {
        self.queue = None;
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
