//! The ring in a consumer's process, and cutting batches out of it.
//!
//! ```text
//! in place ──a page of the range became private──▶ in place, from a fresh mapping
//!     └──it writes into every batch, or keeps them all──▶ copying
//! ```

use std::os::fd::OwnedFd;
use std::sync::Arc;

use feedline_shm::{
    Access, BufferPool, FileMemory, HeadReader, Hold, Layout, LeaseTable, Mapping, Memfd, Memory, PrivatePages, Window,
};

use crate::batch::{Received, Value};
use crate::error::Error;
use crate::explain::Explanation;
use crate::limits::{available_bytes, size_text};
use crate::options::Name;
use crate::read_mode::{CopiesBecause, Mode, ReadMode};
use crate::ring_info::{ReportedLength, RingInfo, layout, strides};
use crate::schema::{Field, Schema, len_bytes};
use crate::structure::Structure;
use crate::text;
use crate::whole;

/// A consumer that writes this often is served by copies.
const WRITER: u32 = 2;
/// Whether the last batch was written to is checked for the first few batches, and then now and then.
const PROBED_FIRST: u64 = 8;
const PROBED_EVERY: u64 = 32;

type Range = (usize, u128, usize);

pub(crate) struct View {
    info: RingInfo,
    strides: Vec<u64>,
    structure: Arc<Structure>,
    memory: Box<dyn Memory>,
    /// The ring as its server writes it; this process writes nothing through this mapping.
    shared: Arc<Mapping>,
    /// What batches are cut from.
    current: Arc<Mapping>,
    pages: Option<PrivatePages>,
    pool: BufferPool,
    mode: Mode,
    copies_because: Option<CopiesBecause>,
    remaps: u64,
    /// The last batch cut in place, and how many there were.
    last: Option<Range>,
    cuts: u64,
    writes_seen: u32,
}

impl View {
    pub fn new(info: RingInfo, memory: OwnedFd, mode: Mode, name: &str) -> Result<Self, Error> {
        let mut copies_because = (info.skips && mode != Mode::Copy).then_some(CopiesBecause::FeedSkips);
        let mode = if info.skips { Mode::Copy } else { mode };
        let (memory, shared, current) = open(&info, memory, mode, name)?;
        let pages = PrivatePages::open();
        let mode = if mode == Mode::Cow && pages.is_none() {
            tracing::warn!(
                "this kernel does not show a process its own pages (/proc/self/pagemap): batches are copied"
            );
            copies_because = Some(CopiesBecause::Kernel);
            Mode::Copy
        } else {
            mode
        };
        Ok(Self {
            strides: strides(&info.schema),
            structure: structure_of(&info.schema),
            info,
            memory,
            shared,
            current,
            pages,
            pool: BufferPool::default(),
            mode,
            copies_because,
            remaps: 0,
            last: None,
            cuts: 0,
            writes_seen: 0,
        })
    }

    /// Goes on in a new ring. Batches cut from the old one keep it.
    pub fn adopt(&mut self, info: RingInfo, memory: Vec<OwnedFd>, name: &str) -> Result<(), Error> {
        let memory = memory.into_iter().next();
        let memory = memory.ok_or_else(|| Error::Protocol("a new ring came without its memory".into()))?;
        let (memory, shared, current) = open(&info, memory, self.mode, name)?;
        self.strides = strides(&info.schema);
        self.structure = structure_of(&info.schema);
        (self.info, self.memory, self.shared, self.current, self.last) = (info, memory, shared, current, None);
        Ok(())
    }

    /// Whether samples may be overwritten before we have taken them.
    pub fn skips(&self) -> bool {
        self.info.skips
    }

    pub fn generation(&self) -> u32 {
        self.info.generation
    }

    /// Whether nothing was published in the feed yet.
    pub fn is_placeholder(&self) -> bool {
        self.info.is_placeholder()
    }

    pub fn schema(&self) -> &Schema {
        &self.info.schema
    }

    pub fn is_cut(&self) -> bool {
        matches!(*self.info.schema, Schema::Cut { .. })
    }

    /// What the source reports about samples that can't be counted.
    pub fn reported(&self) -> Option<ReportedLength> {
        self.info.reported
    }

    pub fn remaps(&self) -> u64 {
        self.remaps
    }

    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Cow => "cow",
            Mode::Copy => "copy",
            Mode::ReadOnly => "readonly",
        }
    }

    /// The mode, with the reason for it.
    pub fn read_mode(&self) -> ReadMode {
        ReadMode(self.mode, self.copies_because)
    }

    /// Refuses a batch size that was asked for and can never be given.
    pub fn check_batch_size(&self, name: &str, batch_size: u64, epoch_samples: u64) -> Result<(), Error> {
        match &*self.info.schema {
            Schema::Whole { .. } if self.is_placeholder() => Ok(()),
            Schema::Whole { why } => {
                let what = format!("feed {name:?} cannot be cut into batches of {batch_size}: {why}");
                Err(Error::BatchSize(Explanation::new(what).hint(
                    "attach with batch_size=None for the loader's own batches, or have the loader yield only tensors of constant \
                     shape with a batch dimension",
                )))
            }
            Schema::Cut { .. } => {
                let per_sample: u64 = self.strides.iter().sum();
                let bytes = batch_size.min(epoch_samples).saturating_mul(2).saturating_mul(per_sample);
                let free = available_bytes();
                if batch_size.min(epoch_samples) <= self.info.window / 2 || bytes <= free {
                    return Ok(());
                }
                let (needed, free) = (size_text(bytes), size_text(free));
                let what = format!(
                    "feed {name:?} cannot give batches of {batch_size} samples: two of them are {needed}, and {free} of memory are \
                     left"
                );
                Err(Error::BatchSize(what.into()))
            }
        }
    }

    /// How many samples of its source batch are left from a published sample on. `None` if it was overwritten.
    pub fn source_batch_at(&self, sample: u64, hold: Hold<'_>) -> Option<u64> {
        if !self.is_cut() {
            return Some(1);
        }
        let left = self.shared.read(0, u128::from(sample) * 4, hold, sample)?;
        Some(u64::from(u32::from_le_bytes(left)).max(1))
    }

    /// Copies the samples from `first` to `end`, which may be overwritten meanwhile. `None` if they were.
    pub fn take_unguarded(&mut self, head: &HeadReader, first: u64, end: u64) -> Result<Option<Received>, Error> {
        let hold = Hold::Nobody(head);
        let Some(ranges) = self.ranges(first, end, hold)? else { return Ok(None) };
        let Some(windows) = self.pool.copy(&self.shared, &ranges, hold, first) else { return Ok(None) };
        self.assemble(&windows, end - first).map(Some)
    }

    /// Cuts out the samples from `first` to `end`, which are published and at our cursor. The table counts from another
    /// zero, `lead` before ours.
    pub fn take(
        &mut self,
        table: &Arc<LeaseTable>,
        (first, end, lead): (u64, u64, u64),
        epoch: u64,
        name: &str,
    ) -> Result<Received, Error> {
        let hold = Hold::Cursor { table, lead };
        let astray = || Error::Protocol(format!("sample {first} is taken, and the cursor is past it"));
        let ranges = self.ranges(first, end, hold)?.ok_or_else(astray)?;
        self.watch_for_writes(name);
        let stale = |view: &Self| {
            let pages = view.pages.as_ref();
            ranges.iter().any(|&(lane, position, len)| {
                pages.is_none_or(|pages| pages.is_stale(&view.current, &view.shared, lane, position, len))
            })
        };
        if self.mode != Mode::Copy && self.current.may_be_stale() && stale(self) {
            self.remap(name);
        }
        let windows = if self.mode == Mode::Copy {
            let windows = self.pool.copy(&self.shared, &ranges, hold, first).ok_or_else(astray)?;
            table.advance(epoch, end.saturating_add(lead));
            windows
        } else {
            self.last = ranges.iter().max_by_key(|range| range.2).copied();
            self.cuts += 1;
            table.cut(&self.current, ranges, end.saturating_add(lead))
        };
        self.assemble(&windows, end - first)
    }

    /// Where the samples are. `None` if they were overwritten.
    fn ranges(&self, first: u64, end: u64, hold: Hold<'_>) -> Result<Option<Vec<Range>>, Error> {
        if self.is_cut() {
            let count = end.saturating_sub(first);
            if count > self.info.capacity {
                return Err(Error::Protocol(format!("{count} samples in a ring for {}", self.info.capacity)));
            }
            let range = |(lane, &stride): (usize, &u64)| {
                (lane, u128::from(first) * u128::from(stride), (count * stride) as usize)
            };
            return Ok(Some(self.strides.iter().enumerate().skip(1).map(range).collect()));
        }
        let place = self.shared.read::<16>(0, u128::from(first) * 16, hold, first);
        let Some(place) = place.map(u128::from_le_bytes) else { return Ok(None) };
        let (start, len) = (place as u64, (place >> 64) as u64);
        if len == 0 || len > self.info.byte_lane {
            return Err(Error::Protocol(format!("a batch of {len} bytes in a lane of {}", self.info.byte_lane)));
        }
        Ok(Some(vec![(1, start.into(), len as usize)]))
    }

    fn assemble(&self, windows: &[Window], samples: u64) -> Result<Received, Error> {
        let Schema::Cut { fields, .. } = &*self.info.schema else {
            return whole::decode(&windows[0]).ok_or_else(|| Error::Protocol("a batch that cannot be decoded".into()));
        };
        let values = fields.iter().zip(windows).map(|(field, window)| {
            let mut shape = Vec::with_capacity(field.shape.len() + 1);
            shape.push(samples);
            shape.extend_from_slice(&field.shape);
            let (order, subclass) = (field.order.of_batch(), field.subclass.clone());
            Value::Array { kind: field.kind, dtype: field.dtype, shape, order, subclass, window: window.clone() }
        });
        Ok(Received { structure: Arc::clone(&self.structure), values: values.collect() })
    }

    /// A fresh mapping; the old one lives as long as its leases.
    fn remap(&mut self, name: &str) {
        self.remaps += 1;
        // Pages that we made private ourselves say nothing about the trainer.
        self.writes_seen += u32::from(!self.current.has_kept());
        if self.writes_seen > WRITER {
            self.copy_from_now_on(CopiesBecause::Writes, "it writes into its batches", name);
            return;
        }
        let layout = layout(&self.info).expect("it was mapped before");
        match Mapping::new(&*self.memory, &layout, access(self.mode)) {
            Ok(mapping) => (self.current, self.last) = (Arc::new(mapping), None),
            Err(error) => self.copy_from_now_on(CopiesBecause::Kernel, &error.to_string(), name),
        }
    }

    /// Checks whether the previous batch was written to.
    fn watch_for_writes(&mut self, name: &str) {
        let (Mode::Cow, Some((lane, position, len)), Some(pages)) = (self.mode, self.last, &self.pages) else { return };
        if self.cuts > PROBED_FIRST && !self.cuts.is_multiple_of(PROBED_EVERY) {
            return;
        }
        if self.current.was_written(pages, lane, position, len) {
            self.writes_seen += 1;
            if self.writes_seen > WRITER {
                self.copy_from_now_on(CopiesBecause::Writes, "it writes into its batches", name);
            }
        } else {
            self.writes_seen = 0;
        }
    }

    /// Stops handing out views: making pages private costs eight times as much as a copy.
    pub fn copy_from_now_on(&mut self, because: CopiesBecause, why: &str, name: &str) {
        if self.mode == Mode::Cow {
            tracing::info!("feed {name:?}: this consumer gets copies from now on, because {why}");
            (self.mode, self.copies_because) = (Mode::Copy, Some(because));
            self.last = None;
            self.current = Arc::clone(&self.shared);
        }
    }
}

fn access(mode: Mode) -> Access {
    match mode {
        Mode::Cow => Access::Private,
        Mode::ReadOnly => Access::Frozen,
        Mode::Copy => Access::Reader,
    }
}

fn structure_of(schema: &Schema) -> Arc<Structure> {
    match schema {
        Schema::Cut { structure, .. } => Arc::new(structure.clone()),
        Schema::Whole { .. } => Arc::default(),
    }
}

/// The lanes of a ring that a server announces, if there can be such a ring.
pub(crate) fn checked_layout(info: &RingInfo) -> Result<Layout, Error> {
    if !info.schema.is_sound() {
        return Err(Error::Protocol("the server sent a schema that is not consistent".into()));
    }
    // A field without bytes is checked too: a framework multiplies its dimensions all the same.
    let can_be_counted =
        |field: &Field| len_bytes(field.dtype, &[&[info.capacity], &field.shape[..]].concat()).is_some();
    let fits = match &*info.schema {
        Schema::Cut { fields, .. } => fields.iter().all(can_be_counted),
        Schema::Whole { .. } => info.byte_lane > 0,
    };
    let is_possible = info.reported.is_none_or(|reported| reported.batch_size > 0);
    let is_possible = info.capacity > 0 && info.source_batch > 0 && is_possible && fits;
    let layout = is_possible.then(|| layout(info)).flatten();
    layout.ok_or_else(|| Error::Protocol("the server announced an impossible ring".into()))
}

#[expect(unsafe_code, reason = "a file can't be sealed")]
fn accept_file(memory: OwnedFd, len_bytes: u64) -> Result<FileMemory, Error> {
    // SAFETY: the file is the server's, who keeps no descriptor that could shorten it; the user that it runs as could by
    // changing the file's mode first. A consumer talks only to servers of its own user, of root, and of those that its `allow=`
    // names, and trusts them as it does a module that it imports (docs/security.md).
    Ok(unsafe { FileMemory::accept(memory, "the ring", len_bytes) }?)
}

/// A ring's memory, its read-only mapping, and the one that batches are cut from.
type Opened = (Box<dyn Memory>, Arc<Mapping>, Arc<Mapping>);

fn open(info: &RingInfo, memory: OwnedFd, mode: Mode, name: &str) -> Result<Opened, Error> {
    let layout = checked_layout(info)?;
    let memory: Box<dyn Memory> = if info.is_file {
        Box::new(accept_file(memory, layout.len_bytes())?)
    } else {
        Box::new(Memfd::accept(memory, "the ring", layout.len_bytes())?)
    };
    let map = |access| {
        Mapping::new(&*memory, &layout, access).map(Arc::new).map_err(|error| match error {
            feedline_shm::RingError::NoMemory { .. } => {
                let size = size_text(layout.len_bytes());
                let what = format!(
                    "this process may not map the ring of feed {name:?}, {size}: its address space is limited (ulimit -v)"
                );
                Error::Memory(Explanation::new(what).hint(text![
                    "raise the limit, serve the feed with a smaller ",
                    Name::ring.named(),
                    ", or attach with mode=\"copy\", which needs half as much",
                ]))
            }
            other => Error::Ring(other),
        })
    };
    let shared = map(Access::Reader)?;
    let current = match access(mode) {
        Access::Reader => Arc::clone(&shared),
        access => map(access)?,
    };
    Ok((memory, shared, current))
}
