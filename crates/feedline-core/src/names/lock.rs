//! Which process holds a name: decided by a record lock on a file beside the socket.
//!
//! The kernel drops it with the process, however that ends, and forked children (a loader's workers) don't inherit it: a name
//! is free the moment its server is dead.

use std::collections::BTreeSet;
use std::fs::{self, File, FileType, OpenOptions};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use feedline_shm::fork::{Origin, PerProcess};
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use super::sweep::{NO_LINKS, is_mine, is_own, sweep};
use super::{folder, prepare_folder, socket_path, unusable};
use crate::{Error, proc};

/// How long a process that was killed may take to be gone.
pub(super) const DYING: Duration = Duration::from_secs(5);
/// How soon to try again.
pub(super) const MOMENT: Duration = Duration::from_millis(5);
/// From `linux/sched.h`.
const PF_EXITING: u32 = 4;
/// Signal 9, in a set of signals.
const SIGKILL: u64 = 1 << 8;

/// Names that this process serves. Record locks don't exclude within a process, and are lost when *any* descriptor of the
/// file is closed there, so the file of a name in this set must not be opened again.
/// A forked child has neither the names nor the locks.
static OURS: PerProcess<BTreeSet<PathBuf>> = PerProcess::new();

/// A name held by this process, with the path for its socket. Dropping it frees the name.
#[derive(Debug)]
pub struct HeldName {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
    origin: Origin,
}

impl HeldName {
    /// Takes a name, or says who has it. Removes on the way what killed servers left.
    pub fn take(name: &str) -> Result<Self, Error> {
        let path = socket_path(name)?;
        prepare_folder()?;
        let taken = |pid| Error::NameTaken { name: name.to_owned(), pid };
        let began = Instant::now();
        let lock_path = path.with_extension("lock");
        let fail = |error: std::io::Error| unusable(&folder(), &error);
        loop {
            let mut ours = OURS.lock();
            if ours.contains(&path) {
                return Err(taken(std::process::id()));
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let lock = options.open(&lock_path).map_err(fail)?;
            if fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                // The lock may have been freed between the two calls: then try again.
                let Some(holder) = holder(&lock) else { continue };
                let is_brief = holder.sweeps || is_dying(holder.pid);
                if !is_brief || began.elapsed() >= DYING {
                    return Err(taken(holder.pid));
                }
                drop((ours, lock));
                std::thread::sleep(MOMENT);
                continue;
            }
            // The previous holder removes the file while it holds the lock: is what we locked still the file of that name?
            if is_still(&lock, &lock_path) {
                let _ = fs::remove_file(&path);
                ours.insert(path.clone());
                drop(ours);
                sweep(&folder());
                return Ok(Self { path, lock_path, _lock: lock, origin: Origin::here() });
            }
        }
    }

    /// Where to bind the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HeldName {
    fn drop(&mut self) {
        // A forked child holds neither the lock nor the name.
        if self.origin.is_here() {
            let mut ours = OURS.lock();
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.lock_path);
            ours.remove(&self.path);
        }
    }
}

/// The process that holds a lock.
struct Holder {
    pid: u32,
    /// It holds the lock for a moment only, to remove what a dead server left.
    sweeps: bool,
}

fn holder(lock: &File) -> Option<Holder> {
    let query = Flock { start: 0, length: 0, pid: None, typ: FlockType::WriteLock, offset_type: FlockOffsetType::Set };
    let held = fcntl_getlk(lock, &query).ok()??;
    // 0: held by a process of another pid namespace.
    let pid = held.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
    Some(Holder { pid, sweeps: held.typ == FlockType::ReadLock })
}

/// Whether an open file is still the one at this path.
pub(super) fn is_still(file: &File, path: &Path) -> bool {
    let (Ok(open), Ok(there)) = (file.metadata(), fs::metadata(path)) else { return false };
    (open.dev(), open.ino()) == (there.dev(), there.ino())
}

/// Whether a process was killed and is being torn down, which takes a while if it had much memory.
pub(super) fn is_dying(pid: u32) -> bool {
    let Some(process) = proc::process(pid) else { return true };
    let Ok(stat) = process.stat() else { return true };
    let is_over = matches!(stat.state, 'Z' | 'X') || stat.flags & PF_EXITING != 0;
    is_over || process.status().is_ok_and(|status| (status.sigpnd | status.shdpnd) & SIGKILL != 0)
}

/// The pid of the server that has a name now.
pub fn server_of(path: &Path) -> Option<u32> {
    let ours = OURS.lock();
    if ours.contains(path) {
        return Some(std::process::id());
    }
    let lock = OpenOptions::new().read(true).write(true).open(path.with_extension("lock")).ok()?;
    holder(&lock).filter(|holder| !holder.sweeps).map(|holder| holder.pid)
}

/// Removes a socket and its lock if nobody holds the name. The sweeper's lock is a shared one, unlike a server's, so the two can
/// be
/// told apart, and a process that takes the name waits until the sweeper is done. Only one process may sweep at a time.
pub(super) fn remove_unheld(path: &Path) {
    let ours = OURS.lock();
    let lock_path = path.with_extension("lock");
    if ours.contains(path) || !is_own(path, FileType::is_socket) {
        return;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(NO_LINKS);
    let Ok(lock) = options.open(&lock_path) else { return };
    // What has a word in it is another program's.
    let is_own = lock.metadata().is_ok_and(|meta| meta.is_file() && is_mine(&meta) && meta.len() == 0);
    if is_own && fcntl_lock(&lock, FlockOperation::NonBlockingLockShared).is_ok() && is_still(&lock, &lock_path) {
        let _ = fs::remove_file(path);
        let _ = fs::remove_file(&lock_path);
    }
}
