//! How samples are made: pools of workers that fill batches where they are read.
//!
//! Nothing here knows Python or a framework: samples are bytes in lanes, keys are bytes that a worker understands. Which sample stands
//! where is a plan's (`feedline_protocol::plan`).

pub mod pool;
