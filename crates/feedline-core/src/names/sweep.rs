//! Removes what killed processes left in the folder, whenever a process reads it.
//!
//! | left behind | belongs to | and goes |
//! |---|---|---|
//! | `NAME.sock`, `NAME.lock` | who has the record lock on `NAME.lock` | at once |
//! | `NAME.<id>.run`, `NAME.<id>.rng` | who serves or starts `NAME`, and who holds the run | at once |
//! | `NAME.share` | who serves or starts `NAME` | at once, or, if it says why a start failed, with its log |
//! | `NAME.log` | the process that has it as its output | at once if it is empty, else after those of [`KEPT`] other feeds |
//!
//! Locks say who lives, never a file's age or a pid. A file is ours by its name, its owner and its content: a folder may
//! hold other files. Where locks may not be seen by everybody, on a network file system, nothing is removed. What can't be
//! removed stays, without an error.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use feedline_shm::fork::Unshared;
use rustix::fs::{FlockOperation, flock};

use super::lock::{is_still, remove_unheld, server_of};
use super::runs;

/// How many feeds' logs stay after their servers' end: a user whom an error pointed to one may want to read it.
const KEPT: usize = 16;
/// The longest record of ours.
const MOST_RECORD: u64 = 1 << 28;
/// For opening: we don't touch what a link leads to.
pub(super) const NO_LINKS: i32 = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();

/// Whether a file is this user's.
pub(super) fn is_mine(meta: &Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw()
}

/// Whether there is a file of this user and of this kind, and not a link to one.
pub(super) fn is_own(path: &Path, is_kind: fn(&FileType) -> bool) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| is_mine(&meta) && is_kind(&meta.file_type()))
}

/// Removes from the user's own folder what no process owns any more.
pub(super) fn sweep(folder: &Path) {
    let (sockets, shared) = leftovers(folder);
    if sockets.is_empty() && shared.is_empty() {
        return;
    }
    let Ok(lock) = File::open(folder).map(Unshared::new) else { return };
    let is_own = lock.metadata().is_ok_and(|meta| is_mine(&meta) && meta.mode() & 0o022 == 0);
    // One process at a time; a second one finds it swept.
    if !is_own || !is_local(&lock) || flock(&*lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        return;
    }
    for name in sockets {
        remove_unheld(&folder.join(format!("{name}.sock")));
    }
    for (number, name) in shared.iter().enumerate() {
        sweep_shared(folder, name, number < KEPT);
    }
}

/// Names that nobody serves: those with a socket, and those that were shared, the latest first.
fn leftovers(folder: &Path) -> (Vec<String>, Vec<String>) {
    let (mut sockets, mut shared) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let Some((name, suffix)) = entry.file_name().to_str().and_then(|name| name.rsplit_once('.')).map(owned) else {
            continue;
        };
        match suffix.as_str() {
            "sock" if server_of(&path).is_none() => sockets.push(name),
            "share" if server_of(&folder.join(format!("{name}.sock"))).is_none() => {
                let changed = |suffix| {
                    fs::metadata(folder.join(format!("{name}.{suffix}"))).map(|meta| (meta.mtime(), meta.mtime_nsec()))
                };
                let latest = ["share", "log"].into_iter().filter_map(|suffix| changed(suffix).ok()).max();
                shared.push((latest, name));
            }
            _ => {}
        }
    }
    shared.sort_by(|left, right| right.cmp(left));
    (sockets, shared.into_iter().map(|(_, name)| name).collect())
}

fn owned((name, suffix): (&str, &str)) -> (String, String) {
    (name.to_owned(), suffix.to_owned())
}

/// What `share` left of a feed, under the lock of a process that starts its server.
fn sweep_shared(folder: &Path, name: &str, keeps: bool) {
    let at = |suffix: &str| folder.join(format!("{name}.{suffix}"));
    let Some(share) = lock_own(&at("share")) else { return };
    let Some(record) = Record::read(&share, name) else { return };
    // The feed may have been started since; and one server may have several feeds.
    let is_served = |feed: &String| server_of(&folder.join(format!("{feed}.sock"))).is_some();
    if record.feeds.iter().any(|feed| is_served(feed) || runs::any_held(folder, feed)) {
        return;
    }
    record.feeds.iter().for_each(|feed| runs::end(folder, feed));
    let log = lock_own(&at("log"));
    if log.is_none() && at("log").exists() {
        return; // somebody still prints to it, or it isn't ours
    }
    let is_silent = log.as_ref().is_none_or(|log| log.metadata().is_ok_and(|meta| meta.len() == 0));
    if keeps && (record.has_failed || !is_silent) {
        return;
    }
    if log.is_some() {
        let _ = fs::remove_file(at("log"));
    }
    let _ = fs::remove_file(at("share"));
}

/// Opens and locks a file of this user's; `None` while somebody else has it locked.
fn lock_own(path: &Path) -> Option<Unshared<File>> {
    let file = Unshared::new(OpenOptions::new().read(true).custom_flags(NO_LINKS).open(path).ok()?);
    let is_own = file.metadata().is_ok_and(|meta| meta.is_file() && is_mine(&meta));
    let is_locked = is_own && flock(&*file, FlockOperation::NonBlockingLockExclusive).is_ok();
    (is_locked && is_still(&file, path)).then_some(file)
}

/// What `share` noted about the last start (Python's `_start_record.Record`).
struct Record {
    /// What the server was to serve; the name itself, if that isn't known.
    feeds: Vec<String>,
    /// It failed, and those who wait for it count the attempts.
    has_failed: bool,
}

impl Record {
    /// `None` if it isn't one: then the file is somebody else's.
    fn read(file: &File, name: &str) -> Option<Self> {
        let mut text = String::new();
        let mut file = file.take(MOST_RECORD);
        file.read_to_string(&mut text).ok()?;
        if text.is_empty() {
            // The process that made it was killed before it wrote, or the disk was full.
            return Some(Self { feeds: vec![name.to_owned()], has_failed: false });
        }
        let (_sum, json) = text.split_once('\n')?;
        let record: serde_json::Value = serde_json::from_str(json).ok()?;
        let (attempts, failed) = (record.get("attempts")?.as_u64()?, record.get("failed")?.as_f64()?);
        let mut feeds: Vec<String> = record.get("options")?.as_object()?.keys().cloned().collect();
        // File names are made of these.
        feeds.retain(|feed| super::socket_path(feed).is_ok());
        if !feeds.iter().any(|feed| feed == name) {
            feeds.push(name.to_owned());
        }
        Some(Self { feeds, has_failed: attempts > 0 || failed > 0.0 })
    }
}

/// Whether all processes that see the file see a lock on it.
fn is_local(folder: &File) -> bool {
    rustix::fs::fstatfs(folder).is_ok_and(|stat| {
        matches!(file_system(stat.f_type as u64), "tmpfs" | "ext4" | "xfs" | "btrfs" | "overlayfs" | "zfs" | "f2fs")
    })
}

/// A file system by its number in `linux/magic.h`.
pub fn file_system(magic: u64) -> &'static str {
    match magic & 0xffff_ffff {
        0x0102_1994 => "tmpfs",
        0xef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x794c_7630 => "overlayfs",
        0x2fc1_2fc1 => "zfs",
        0xf2f5_2010 => "f2fs",
        0x6969 => "nfs",
        0x517b => "smb",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x6573_5546 => "fuse",
        0x0bd0_0bd0 => "lustre",
        _ => "another file system",
    }
}

#[cfg(test)]
pub(super) mod tests;
