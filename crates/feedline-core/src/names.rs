//! How a feed is found: a socket with its name in a folder of the user's own.
//!
//! Who holds a name is settled by a record lock on a file beside the socket. The kernel drops it with the process,
//! however that ends, and forked children (a loader's workers) don't inherit it: a name is free the moment its server is dead.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockOffsetType, FlockType, fcntl_getlk};

use crate::Error;

const MAX_NAME: usize = 64;
/// `sun_path` holds 108 bytes with its end.
const MAX_PATH: usize = 107;
/// How long a server that was killed may take to be gone.
const DYING: Duration = Duration::from_secs(5);
/// Of `linux/sched.h`.
const PF_EXITING: u64 = 4;
/// Signal 9, in a set of signals.
const SIGKILL: u64 = 1 << 8;

/// Names that this process serves. Record locks don't exclude within a process, and are lost when *any* descriptor of the
/// file is closed there, so the file of a name in this set must not be opened again.
/// With the pid: a forked child inherits the set, but neither the names nor the locks.
static OURS: Mutex<BTreeSet<(PathBuf, u32)>> = Mutex::new(BTreeSet::new());

fn ours() -> MutexGuard<'static, BTreeSet<(PathBuf, u32)>> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_ours(ours: &BTreeSet<(PathBuf, u32)>, path: &Path) -> bool {
    ours.contains(&(path.to_owned(), std::process::id()))
}

/// A feed that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedInfo {
    /// Its name.
    pub name: String,
    /// Its server.
    pub pid: u32,
    /// Its socket.
    pub path: PathBuf,
}

/// The folder: `$FEEDLINE_DIR`, else `$XDG_RUNTIME_DIR/feedline`, else `/tmp/feedline-<uid>`.
pub fn folder() -> PathBuf {
    let named = named_folder();
    // A process may change its folder while it serves.
    std::path::absolute(&named).unwrap_or(named)
}

fn named_folder() -> PathBuf {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("FEEDLINE_DIR") {
        return folder.into();
    }
    if let Some(runtime) = set("XDG_RUNTIME_DIR") {
        return Path::new(&runtime).join("feedline");
    }
    // Not $TMPDIR, which a scheduler may set for each job.
    Path::new("/tmp").join(format!("feedline-{}", rustix::process::getuid().as_raw()))
}

/// The socket of a feed, if its name can be one.
pub fn socket_path(name: &str) -> Result<PathBuf, Error> {
    let bad = |why: &str| {
        let shown: String = name.chars().take(40).collect();
        let dots = if shown.len() < name.len() { "…" } else { "" };
        Error::BadName(format!(
            "a feed cannot be named \"{shown}{dots}\": {why}\n  use up to {MAX_NAME} letters, digits, '.', '_' and '-'"
        ))
    };
    if name.is_empty() {
        return Err(bad("the name is empty"));
    }
    if name.len() > MAX_NAME {
        return Err(bad(&format!("it is {} bytes long", name.len())));
    }
    if let Some(c) = name.chars().find(|c| !(c.is_alphanumeric() || "._-".contains(*c))) {
        return Err(bad(&format!("{c:?} is not allowed in a name")));
    }
    if name.starts_with('.') {
        return Err(bad("it begins with a dot"));
    }
    let path = folder().join(format!("{name}.sock"));
    if path.as_os_str().len() > MAX_PATH {
        let why = format!("a socket's path may have {MAX_PATH} bytes, and {} has more", path.display());
        return Err(Error::Folder { path: folder(), why });
    }
    Ok(path)
}

/// Makes the folder if needed and checks that it is ours alone.
pub fn prepare_folder() -> Result<PathBuf, Error> {
    let path = folder();
    let fail = |why: String| Error::Folder { path: path.clone(), why };
    match fs::DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(fail(error.to_string())),
    }
    // A link to a folder of one's own is fine; whose the folder is counts.
    let meta = fs::metadata(&path).map_err(|error| fail(error.to_string()))?;
    let uid = rustix::process::getuid().as_raw();
    if !meta.is_dir() {
        return Err(fail("it is not a folder".into()));
    }
    if meta.uid() != uid {
        return Err(fail(format!("it belongs to user {}, not to you ({uid})", meta.uid())));
    }
    if meta.mode() & 0o022 != 0 {
        let mode = meta.mode() & 0o7777;
        // Of a folder that is meant for all, such as /tmp, nobody should change the mode.
        let way_out = if mode & 0o1000 == 0 { "; chmod 700 it" } else { ": name a folder in it" };
        return Err(fail(format!("others may write to it (mode {mode:o}){way_out}")));
    }
    Ok(path)
}

/// A name held by this process, with the path for its socket. Dropping it frees the name.
#[derive(Debug)]
pub struct HeldName {
    path: PathBuf,
    lock_path: PathBuf,
    _lock: File,
    pid: u32,
}

impl HeldName {
    /// Takes a name, or tells who has it.
    pub fn take(name: &str) -> Result<Self, Error> {
        let path = socket_path(name)?;
        prepare_folder()?;
        let taken = |pid| Error::NameTaken { name: name.to_owned(), pid };
        let began = Instant::now();
        let lock_path = path.with_extension("lock");
        let fail = |error: std::io::Error| Error::Folder { path: folder(), why: error.to_string() };
        loop {
            let mut ours = ours();
            if is_ours(&ours, &path) {
                return Err(taken(std::process::id()));
            }
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false).mode(0o600);
            let lock = options.open(&lock_path).map_err(fail)?;
            if fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
                // It may have been freed between the two calls: then try again.
                match holder(&lock) {
                    Some(pid) if is_dying(pid) && began.elapsed() < DYING => {
                        drop((ours, lock));
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    Some(pid) => return Err(taken(pid)),
                    None => {}
                }
                continue;
            }
            // The one before us removes the file while it holds the lock: is what we locked still the file of that name?
            let same =
                fs::metadata(&lock_path).is_ok_and(|now| lock.metadata().is_ok_and(|held| held.ino() == now.ino()));
            if same {
                let _ = fs::remove_file(&path);
                ours.insert((path.clone(), std::process::id()));
                return Ok(Self { path, lock_path, _lock: lock, pid: std::process::id() });
            }
        }
    }

    /// Where to bind.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for HeldName {
    fn drop(&mut self) {
        // A forked child holds neither the lock nor the name.
        if self.pid == std::process::id() {
            let mut ours = ours();
            let _ = fs::remove_file(&self.path);
            let _ = fs::remove_file(&self.lock_path);
            ours.remove(&(self.path.clone(), self.pid));
        }
    }
}

fn holder(lock: &File) -> Option<u32> {
    let query = Flock { start: 0, length: 0, pid: None, typ: FlockType::WriteLock, offset_type: FlockOffsetType::Set };
    let held = fcntl_getlk(lock, &query).ok()??;
    // 0: held by a process of another pid namespace.
    Some(held.pid.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs()))
}

/// Whether a process was killed and is being taken apart, which takes a while if it had much memory.
fn is_dying(pid: u32) -> bool {
    let read = |file| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    // After the name in parentheses: the state, five numbers, and the flags.
    let stat = read("stat");
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let is_over = matches!(fields.next(), None | Some("Z" | "X"));
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    let status = read("status");
    let pending = status.lines().filter(|line| line.starts_with("SigPnd:") || line.starts_with("ShdPnd:"));
    let mut pending = pending.filter_map(|line| u64::from_str_radix(line.split_whitespace().nth(1)?, 16).ok());
    is_over || flags & PF_EXITING != 0 || pending.any(|signals| signals & SIGKILL != 0)
}

/// Who serves a name now.
pub fn server_of(path: &Path) -> Option<u32> {
    let ours = ours();
    if is_ours(&ours, path) {
        return Some(std::process::id());
    }
    let lock = OpenOptions::new().read(true).write(true).open(path.with_extension("lock")).ok()?;
    holder(&lock)
}

/// Why the folder can't be looked into; one that isn't there yet has no feeds in it.
pub fn check_readable() -> Result<(), Error> {
    match fs::read_dir(folder()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Folder { path: folder(), why: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// The feeds that run on this machine for this user.
pub fn feeds() -> Vec<FeedInfo> {
    let Ok(entries) = fs::read_dir(folder()) else { return Vec::new() };
    let mut found: Vec<FeedInfo> = entries
        .flatten()
        .filter_map(|entry| {
            let path = entry.path();
            let name = path.file_name()?.to_str()?.strip_suffix(".sock")?.to_owned();
            Some(FeedInfo { name, pid: server_of(&path)?, path })
        })
        .collect();
    found.sort_by(|left, right| left.name.cmp(&right.name));
    found
}

/// What runs, for an error message.
pub(crate) fn running_text() -> String {
    let feeds = feeds();
    if feeds.is_empty() {
        return "nothing".into();
    }
    let texts: Vec<String> = feeds.iter().map(|feed| format!("{} (pid {})", feed.name, feed.pid)).collect();
    texts.join(", ")
}
