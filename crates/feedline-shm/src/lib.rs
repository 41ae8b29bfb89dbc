//! The memory under a feed: mirrored rings in sealed memory, claims, leases, and wake-ups without locks.
//!
//! ```text
//!            server                                       consumer
//!  ┌──────────────────────────┐   sealed memory  ┌──────────────────────────┐
//!  │ Slots ─▶ RingWriter ───▶ │ ═══ ring ══════▶ │ Mapping (private, cow)   │──▶ Window ─▶ tensor
//!  │ HeadPage    ─ publish ─▶ │ ═══ head ══════▶ │ HeadPage (read-only)     │
//!  │ CursorPage  ◀─ reads ─── │ ◀══ cursor ═════ │ CursorPage ◀─ LeaseTable │
//!  └──────────────────────────┘                  └──────────────────────────┘
//! ```
//!
//! This crate is the home of `unsafe`; what it exports is safe to call. It knows bytes, lanes and positions, not
//! schemas, epochs' meaning or sockets' messages: those are `feedline-core`'s.
#![allow(unsafe_code)]

pub mod signal;

#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod board;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
pub mod child;
#[cfg(not(loom))]
mod doorbell;
#[cfg(not(loom))]
mod error;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
pub mod fork;
#[cfg(not(loom))]
mod hold;
#[cfg(not(loom))]
mod layout;
#[cfg(not(loom))]
mod lease;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod memory;
#[cfg(not(loom))]
mod mutex;
#[cfg(not(loom))]
mod page;
#[cfg(not(loom))]
pub mod peer;
#[cfg(not(loom))]
mod private;
#[cfg(not(loom))]
mod reserve;
#[cfg(not(loom))]
mod slots;
#[cfg(not(loom))]
mod source_bytes;
#[cfg(not(loom))]
mod window;
#[cfg(not(loom))]
mod writer;

#[cfg(not(loom))]
pub use self::{
    buffer::BufferPool,
    doorbell::Doorbell,
    error::RingError,
    hold::Hold,
    layout::{Lane, Layout, page_size},
    lease::{Lease, LeaseTable},
    mapping::{Access, Mapping},
    memory::{FileMemory, Memfd, Memory},
    mutex::{Mutex, MutexGuard},
    page::{CursorHandle, HeadReader, HeadWriter, Waited},
    private::PrivatePages,
    reserve::{LanePlace, Reserve, ReservedRings},
    slots::{Claimable, Slots, Span},
    source_bytes::SourceBytes,
    window::Window,
    writer::RingWriter,
};
