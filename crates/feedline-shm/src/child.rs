//! Children that don't outlive the process that started them.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal};

/// Has the kernel send `signal` to the command's process when the *thread* that starts it ends, `kill -9` included.
pub fn die_with_parent(command: &mut Command, signal: Signal) {
    let parent = getpid();
    let ask = move || {
        set_parent_process_death_signal(Some(signal))?;
        // It may have died before we asked.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::Error::from(Errno::SRCH)) }
    };
    // SAFETY: between fork and exec only what is safe in a signal handler may be called.
    // - The closure makes two system calls, by rustix, without locks or allocations, and compares numbers.
    // - An error from an errno is a number too: nothing is allocated for it.
    unsafe { command.pre_exec(ask) };
}
