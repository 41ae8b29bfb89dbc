//! What can go wrong below the log.

use rustix::io::Errno;

/// An operation on shared memory that the kernel refused, or a peer's memory that failed its checks.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RingError {
    /// A system call failed.
    #[error("{what} failed: {source}")]
    Os {
        /// The operation, as a user would name it.
        what: &'static str,
        /// The kernel's answer.
        source: Errno,
    },
    /// No memory for a ring or a mapping of this size.
    #[error("no memory for {what} of {len_bytes} bytes: {source}")]
    NoMemory {
        /// What the memory was for.
        what: &'static str,
        /// How much was asked for.
        len_bytes: u64,
        /// The kernel's answer.
        source: Errno,
    },
    /// A descriptor from a peer is not the sealed memory that it claims to be.
    #[error("the descriptor received for {what} is not usable: {why}")]
    BadDescriptor {
        /// What the descriptor was announced as.
        what: &'static str,
        /// Which check failed.
        why: String,
    },
}

impl RingError {
    pub(crate) fn os(what: &'static str) -> impl FnOnce(Errno) -> Self {
        move |source| Self::Os { what, source }
    }

    pub(crate) fn memory(what: &'static str, len_bytes: u64) -> impl FnOnce(Errno) -> Self {
        move |source| match source {
            Errno::NOMEM | Errno::NOSPC | Errno::FBIG => Self::NoMemory { what, len_bytes, source },
            _ => Self::Os { what, source },
        }
    }
}
