//! What a consumer's state machine reads and writes without a message: the head page, the lease table, the ring.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use feedline_protocol::page::{ConsumerMemory, HeadView};
use feedline_protocol::{EpochLength, FeedState};
use feedline_shm::{HeadReader, Hold, LeaseTable};

use super::view::View;

/// Borrowed for one call of the state machine.
pub(super) struct Memory<'a> {
    pub head: &'a HeadReader,
    pub table: &'a Arc<LeaseTable>,
    pub view: &'a View,
}

impl HeadView for Memory<'_> {
    fn head(&self) -> u64 {
        self.head.head()
    }

    fn entry_of(&self, epoch: u64) -> u64 {
        self.head.entry_of(epoch)
    }

    fn ended(&self) -> u64 {
        self.head.ended()
    }

    fn oldest(&self) -> u64 {
        self.head.oldest()
    }

    fn fastest(&self) -> u64 {
        self.head.fastest()
    }

    fn generation(&self) -> u32 {
        self.head.generation()
    }

    fn state(&self) -> FeedState {
        HeadView::state(self.head)
    }

    fn joined(&self) -> u32 {
        self.head.joined()
    }

    fn slowest(&self) -> u64 {
        self.head.slowest()
    }

    fn length(&self) -> EpochLength {
        self.head.length()
    }

    fn wanted(&self) -> u64 {
        self.head.wanted()
    }
}

impl ConsumerMemory for Memory<'_> {
    fn enter(&self, join: u64, epoch: u64, cursor: u64) {
        self.table.enter(join, epoch, cursor);
    }

    fn advance(&self, epoch: u64, cursor: u64) {
        self.table.advance(epoch, cursor);
    }

    fn rest(&self) {
        self.table.page().rest();
    }

    fn wake(&self) -> bool {
        self.table.page().wake()
    }

    fn set_skipped(&self, samples: u64) {
        self.table.page().skipped.store(samples, Ordering::Relaxed);
    }

    fn source_batch_at(&self, sample: u64, lead: u64) -> Option<u64> {
        self.view.source_batch_at(sample, self.view.hold(self.head, self.table, lead))
    }
}

impl View {
    /// What keeps the samples from the cursor on in place.
    pub fn hold<'a>(&self, head: &'a HeadReader, table: &'a Arc<LeaseTable>, lead: u64) -> Hold<'a> {
        if self.skips() { Hold::Nobody(head) } else { Hold::Cursor { table, lead } }
    }
}
