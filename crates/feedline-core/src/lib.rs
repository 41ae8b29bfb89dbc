//! One loader, many jobs: the log of samples, its server and its consumers.
//!
//! | module | what it owns |
//! |---|---|
//! | [`schema`] | what a batch looks like: structure, dtypes, shapes; whether it can be cut |
//! | [`batch`] | a batch on its way in and on its way out |
//! | [`source`] | the trait of whatever appends to the log |
//! | [`server`] | drives the server's state machine: the socket, the ring, the source |
//! | [`consumer`] | drives a consumer's state machine: the connection, the views, the leases |
//! | [`ring_info`] | a ring as its server describes it |
//! | [`stats`] | a feed's numbers |
//! | [`options`] | what a user may choose of a server: every option, declared once |
//! | [`explain`] | messages for people, with options as data |
//! | [`wire`] | the messages between the two |
//! | [`names`] | how a feed is found |
//! | [`proc`] | what the kernel tells about processes |
//! | [`metrics`] | the numbers for Prometheus, and as lines of JSON |
//! | [`control_client`] | asking a server for its numbers, without reading from it |
//!
//! `feedline-protocol` makes the decisions; memory, leases and wake-ups are `feedline-shm`'s.

mod access;
pub mod batch;
mod bounded;
pub mod consumer;
pub mod control_client;
mod dim_order;
mod error;
pub mod explain;
#[cfg(feature = "fuzzing")]
pub mod fuzz;
mod limits;
pub mod metrics;
pub mod names;
pub mod options;
pub mod proc;
mod read_mode;
pub mod ring_info;
pub mod schema;
pub mod server;
pub mod source;
pub mod stats;
mod structure;
mod subclass;
mod whole;
pub mod wire;

pub use self::access::Allow;
pub use self::bounded::MAX_ENTRIES;
pub use self::dim_order::DimOrder;
pub use self::error::{Error, Failure, FailureKind};
pub use self::explain::{Explanation, Reader};
pub use self::limits::{GroupLimit, MemoryLimits, size_text};
pub use self::structure::{Class, Key, Node, Structure};
pub use self::subclass::{Plain, Scalar, Subclass};
