//! Runs of a shared feed: which server goes on with what another one began.
//!
//! A server that was killed is started again when a consumer needs it, and then it draws what the server before it drew, so that
//! an
//! epoch goes on in its order. That is right only for the consumers of that run; a consumer that comes after all of them are
//! gone begins another run. The kernel says whether a consumer is left: each one that may come back holds a shared `flock` on a
//! file of its run.
//!
//! ```text
//! NAME.<id>.run   empty; consumers that may come back hold it       (mode 0600)
//! NAME.<id>.rng   the states of the run's random generators         (Python's `_rng_state`)
//!
//! a server starts ──▶ somebody holds the run before ──▶ goes on with it
//!                 └─▶ nobody does ──▶ removes its files, begins a run with an id of its own
//! ```
//!
//! The server itself holds nothing: a run isn't alive because its server takes a while to die. A process that decides about the
//! runs
//! of a name holds the lock of its start (`NAME.share`).

use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Instant;

use feedline_shm::fork::Unshared;
use rustix::fs::{FlockOperation, flock};

use super::lock::{DYING, MOMENT, is_dying, is_still};
use super::sweep::{NO_LINKS, is_own};

/// The extensions of a run's files. The first one exists as long as the run.
const SUFFIXES: [&str; 3] = ["run", "rng", "rng-new"];

/// The file that consumers of a run hold.
fn path_of(folder: &Path, name: &str, id: u64) -> PathBuf {
    folder.join(format!("{name}.{id:016x}.run"))
}

/// The run that a file of this feed belongs to.
fn run_of(file_name: &str, name: &str) -> Option<u64> {
    let (id, suffix) = file_name.strip_prefix(name)?.strip_prefix('.')?.split_once('.')?;
    let is_id = id.len() == 16 && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    if is_id && SUFFIXES.contains(&suffix) { u64::from_str_radix(id, 16).ok() } else { None }
}

/// A run that this process may come back to. Forked children don't hold it.
#[derive(Debug)]
pub struct HeldRun(#[expect(dead_code, reason = "open, it is a lock")] Unshared<File>);

impl HeldRun {
    /// `None` if the run is over, or its file can't be used.
    pub fn hold(folder: &Path, name: &str, id: u64) -> Option<Self> {
        let path = path_of(folder, name, id);
        let began = Instant::now();
        let file = Unshared::new(open(&path)?);
        // A process that checks whether somebody holds it has it for a moment.
        while flock(&*file, FlockOperation::NonBlockingLockShared).is_err() {
            if began.elapsed() >= DYING {
                return None;
            }
            std::thread::sleep(MOMENT);
        }
        is_still(&file, &path).then_some(Self(file))
    }
}

/// The run that a server which is being started belongs to: the one before, if somebody is left in it, or another. Everything
/// of other runs of this name is removed. The error says why nobody will be able to hold it; the run begins all the same.
pub fn begin(folder: &Path, name: &str, before: Option<u64>) -> (u64, Option<std::io::Error>) {
    let goes_on = before.filter(|&id| is_held(&path_of(folder, name, id)));
    remove_all_but(folder, name, goes_on);
    if let Some(id) = goes_on {
        return (id, None);
    }
    // Not a secret: it only has to differ from the last ones.
    let id = RandomState::new().build_hasher().finish();
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path_of(folder, name, id));
    (id, made.err())
}

/// Removes the files of all runs of a name, unless somebody is left in one.
pub fn end(folder: &Path, name: &str) {
    if !any_held(folder, name) {
        remove_all_but(folder, name, None);
    }
}

/// Whether somebody is left in any run of this name.
pub(super) fn any_held(folder: &Path, name: &str) -> bool {
    ids(folder, name).into_iter().any(|(_, id)| is_held(&path_of(folder, name, id)))
}

fn remove_all_but(folder: &Path, name: &str, kept: Option<u64>) {
    for (path, id) in ids(folder, name) {
        if Some(id) != kept && is_own(&path, fs::FileType::is_file) {
            let _ = fs::remove_file(path);
        }
    }
}

/// The files of all runs of a name.
fn ids(folder: &Path, name: &str) -> Vec<(PathBuf, u64)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.path(), run_of(entry.file_name().to_str()?, name)?))).collect()
}

fn open(path: &Path) -> Option<File> {
    OpenOptions::new().read(true).custom_flags(NO_LINKS).open(path).ok()
}

/// Whether a living process holds the file. A process that was killed may still be about to end.
fn is_held(path: &Path) -> bool {
    let began = Instant::now();
    let Some(file) = open(path).map(Unshared::new) else { return false };
    while flock(&*file, FlockOperation::NonBlockingLockExclusive).is_err() {
        let Ok(inode) = file.metadata().map(|meta| meta.ino()) else { return true };
        let holders = holders(inode);
        // In a container the holders may not be visible.
        if holders.is_empty() || !holders.into_iter().all(is_dying) || began.elapsed() >= DYING {
            return true;
        }
        std::thread::sleep(MOMENT);
    }
    false
}

/// The processes that hold a `flock` on a file, as far as `/proc` tells: `1: FLOCK ADVISORY READ 812 fd:01:4711 0 EOF`.
fn holders(inode: u64) -> Vec<u32> {
    let text = fs::read_to_string("/proc/locks").unwrap_or_default();
    let holder = |line: &str| -> Option<u32> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_flock = fields.get(1) == Some(&"FLOCK") && fields.get(3) == Some(&"READ");
        let is_file = fields.get(5)?.rsplit(':').next()?.parse() == Ok(inode);
        if is_flock && is_file { fields.get(4)?.parse().ok() } else { None }
    };
    text.lines().filter_map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::sweep::tests::Folder;

    #[test]
    fn a_run_that_somebody_holds_goes_on_and_any_other_is_forgotten() {
        let folder = Folder::new();
        let (first, None) = begin(&folder, "train", None) else { panic!("no file") };
        let held = HeldRun::hold(&folder, "train", first).unwrap();
        folder.write(&format!("train.{first:016x}.rng"), "states");
        assert_eq!(begin(&folder, "train", Some(first)).0, first);
        assert_eq!(folder.files(), [format!("train.{first:016x}.rng"), format!("train.{first:016x}.run")]);
        drop(held);
        let (second, None) = begin(&folder, "train", Some(first)) else { panic!("no file") };
        assert_ne!(first, second);
        assert_eq!(folder.files(), [format!("train.{second:016x}.run")]);
    }

    #[test]
    fn a_run_that_is_over_cannot_be_held() {
        let folder = Folder::new();
        let (id, _) = begin(&folder, "train", None);
        end(&folder, "train");
        assert!(HeldRun::hold(&folder, "train", id).is_none());
        assert!(folder.files().is_empty());
        let (id, _) = begin(&folder, "train", None);
        let held = HeldRun::hold(&folder, "train", id);
        end(&folder, "train");
        assert_eq!(folder.files().len(), 1, "somebody may come back");
        drop(held);
    }

    #[test]
    fn a_run_begins_where_no_file_can_be_made() {
        let folder = Folder::new();
        let nowhere = folder.join("nowhere");
        let (id, error) = begin(&nowhere, "train", None);
        assert!(id != 0 && error.is_some());
        assert!(HeldRun::hold(&nowhere, "train", id).is_none());
    }

    #[test]
    fn files_of_another_feed_or_of_nobody_are_left_alone() {
        let folder = Folder::new();
        let others = [
            "other.0123456789abcdef.run",
            "train.0123456789abcdef.txt",
            "train.12.run",
            "train.x.0123456789abcdef.run",
        ];
        others.iter().for_each(|name| folder.write(name, ""));
        begin(&folder, "train", None);
        end(&folder, "train");
        assert_eq!(folder.files(), others);
    }

    #[test]
    fn holders_are_found_by_the_file() {
        let folder = Folder::new();
        let (id, _) = begin(&folder, "train", None);
        let path = path_of(&folder, "train", id);
        let inode = fs::metadata(&path).unwrap().ino();
        assert!(holders(inode).is_empty());
        let held = HeldRun::hold(&folder, "train", id);
        assert_eq!(holders(inode), [std::process::id()]);
        drop(held);
    }
}
