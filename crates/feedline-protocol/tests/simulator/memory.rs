//! What a consumer's state machine sees and writes: the head page, its own page with its leases, the ring.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use feedline_protocol::leases::Leases;
use feedline_protocol::page::{ConsumerMemory, HeadView};
use feedline_protocol::{EpochLength, FeedState};

use crate::pages::{CursorPage, HeadReader};
use crate::ring::Ring;

/// What the state machine sees.
pub struct Memory {
    pub reader: HeadReader,
    pub page: Rc<CursorPage>,
    pub ring: Rc<Ring>,
    table: RefCell<Table>,
    /// It has let go of something that the server waits for.
    pub rings: Cell<bool>,
}

#[derive(Default)]
struct Table {
    leases: Leases<()>,
    cursor: u64,
    epoch: u64,
}

impl Memory {
    pub fn new(reader: HeadReader, page: Rc<CursorPage>, ring: Rc<Ring>) -> Self {
        Self { reader, page, ring, table: RefCell::default(), rings: Cell::new(false) }
    }

    fn report(&self, table: &Table) {
        let floor = table.leases.floor(table.cursor);
        self.page.release(table.epoch, floor);
        self.page.set_leases(table.leases.len());
        // Fenced.
        self.reader.see_all();
        if floor >= self.reader.wanted() {
            self.rings.set(true);
        }
    }

    pub fn cut(&self, end: u64) -> u64 {
        let mut table = self.table.borrow_mut();
        let first = table.cursor;
        let id = table.leases.cut(first, ());
        table.cursor = end;
        self.page.set_cursor(end);
        self.page.set_leases(table.leases.len());
        id
    }

    pub fn release(&self, id: u64) {
        let mut table = self.table.borrow_mut();
        if table.leases.release(id).is_some() {
            self.report(&table);
        }
    }

    /// The oldest sample that it needs.
    pub fn floor(&self) -> u64 {
        let table = self.table.borrow();
        table.leases.floor(table.cursor)
    }

    pub fn oldest(&self) -> Option<(u64, u64)> {
        self.table.borrow().leases.oldest().map(|(id, first, ())| (id, first))
    }
}

impl HeadView for Memory {
    fn head(&self) -> u64 {
        self.reader.head()
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        self.reader.entry_of(epoch)
    }

    fn ended(&self) -> u64 {
        self.reader.ended()
    }

    fn oldest(&self) -> u64 {
        self.reader.oldest()
    }

    fn fastest(&self) -> u64 {
        self.reader.fastest()
    }

    fn generation(&self) -> u32 {
        self.reader.generation()
    }

    fn state(&self) -> FeedState {
        self.reader.state()
    }

    fn joined(&self) -> u32 {
        self.reader.joined()
    }

    fn slowest(&self) -> u64 {
        self.reader.slowest()
    }

    fn length(&self) -> EpochLength {
        self.reader.length()
    }

    fn wanted(&self) -> u64 {
        self.reader.wanted()
    }
}

impl ConsumerMemory for Memory {
    fn enter(&self, join: u64, epoch: u64, cursor: u64) {
        let mut table = self.table.borrow_mut();
        let old = std::mem::take(&mut table.leases);
        table.leases.continue_after(&old);
        (table.epoch, table.cursor) = (epoch, cursor);
        self.page.enter(join, epoch, cursor);
    }

    fn advance(&self, epoch: u64, cursor: u64) {
        let mut table = self.table.borrow_mut();
        (table.epoch, table.cursor) = (epoch, cursor);
        self.page.set_cursor(cursor);
        self.report(&table);
    }

    fn rest(&self) {
        self.page.rest();
    }

    fn wake(&self) -> bool {
        self.page.wake()
    }

    fn set_skipped(&self, _samples: u64) {}

    fn source_batch_at(&self, sample: u64, _lead: u64) -> Option<u64> {
        let left = self.ring.get(sample).map(|sample| sample.left);
        // Where nobody waits for us, the head page tells afterwards what may have been overwritten.
        if self.ring.shape.skips { left.filter(|_| self.reader.oldest() <= sample) } else { left }
    }
}
