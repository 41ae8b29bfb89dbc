//! A pool: worker processes that fill batches in shared memory, and the owner that deals out the work.
//!
//! ```text
//!  owner                                    board                     workers
//!  offer(keys) ── cut into runs ──post──▶ [task][task][task] ──take──▶ make samples ──▶ write each into its slot
//!  take() ◀── window over the batch ◀── all runs finished ◀──────────── finish
//! ```
//!
//! A batch is *cut* where all samples have the same lanes: any worker fills any of its slots, so all workers fill the next batch
//! together. Else it travels *whole*: one worker makes it, collated, and writes it as bytes that only the owner's side understands.
//! Which of the two it is becomes known with the first sample; until then the workers wait for the owner's answer.
//!
//! | module | what it owns |
//! |---|---|
//! | [`task`] | what a task says, and what becomes of it |
//! | [`lanes`] | where a batch's samples stand |
//! | [`claimed`] | batches that stand in a ring, where all jobs read them |
//! | [`run_length`] | how many samples a worker takes at a time |
//! | [`size`] | how many workers there should be |
//! | [`spent`] | what workers and the owner spent, in windows |
//! | [`owner`] | the owner: batches in flight, workers that die, what is late |
//! | [`worker`] | a worker's side of the board |

pub mod claimed;
pub mod lanes;
pub mod owner;
pub mod run_length;
pub mod size;
pub mod spent;
pub mod task;
pub mod worker;

pub use self::claimed::Claimed;
pub use self::lanes::Lanes;
pub use self::owner::{Ask, Made, Owner, Ready, Settings};
pub use self::worker::Worker;

/// What a worker may say of itself at once (a sample's description, an exception) has this many bytes in the arena.
pub const MAILBOX_BYTES: u64 = 1 << 20;
