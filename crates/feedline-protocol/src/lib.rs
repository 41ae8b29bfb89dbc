//! The protocol between a feed's server and its consumers, as pure code: no socket, no thread, no clock, no memory.
//!
//! | module | what it owns |
//! |---|---|
//! | [`log`] | the log of samples: what may be overwritten, and where a consumer begins |
//! | [`leases`] | which samples of the log one consumer still needs |
//! | [`shard`] | how the ranks of one job share an epoch |
//! | [`plan`] | which sample stands at each place of an epoch |
//! | [`server`] | the server's state machine |
//! | [`consumer`] | a consumer's state machine |
//! | [`message`] | what the two say to each other |
//! | [`page`] | what each of them sees of the other in shared memory, as traits |
//!
//! Both machines take events and a clock's reading, and answer with what is to be done. `feedline-core` drives them over Unix
//! sockets and shared pages; the simulator (`tests/simulator`) drives many of them with virtual time, and kills, stops and delays
//! what it likes.
#![forbid(unsafe_code)]

pub mod consumer;
#[cfg(test)]
mod fakes;
pub mod leases;
pub mod log;
pub mod message;
pub mod page;
pub mod plan;
pub mod server;
pub mod shard;
mod time;

pub use self::message::{EpochLength, FeedState, Mark, UNKNOWN};
pub use self::time::Time;
