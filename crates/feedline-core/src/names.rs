//! How a feed is found: a socket with its name in a folder of the user's own.
//!
//! `lock` says who holds a name, `runs` whether somebody may come back to a run of a shared feed, `sweep` removes what killed
//! processes left.

mod lock;
pub mod runs;
mod sweep;

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

pub use self::lock::{HeldName, server_of};
pub use self::sweep::file_system;
use crate::Error;

const MAX_NAME: usize = 64;
/// `sun_path` holds 108 bytes, a final zero included.
const MAX_PATH: usize = 107;

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
    // An absolute path: a process may change its working directory while it serves.
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

/// The kernel's error when something can't be made in the folder, and what to do about it.
pub(crate) fn unusable(path: &Path, error: &std::io::Error) -> Error {
    let is_full = matches!(error.kind(), std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded);
    let path = path.to_owned();
    if is_full {
        Error::FolderFull { path, why: error.to_string() }
    } else {
        Error::Folder { path, why: error.to_string() }
    }
}

/// The socket of a feed, if the name is valid.
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
        Err(error) => return Err(unusable(&path, &error)),
    }
    // A link to a folder of one's own is fine; the folder's owner counts.
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
        // Nobody should change the mode of a folder that is meant for all, such as /tmp.
        let way_out = if mode & 0o1000 == 0 { "; chmod 700 it" } else { ": name a folder in it" };
        return Err(fail(format!("others may write to it (mode {mode:o}){way_out}")));
    }
    Ok(path)
}

/// Why the folder can't be read; a folder that doesn't exist yet has no feeds in it.
pub fn check_readable() -> Result<(), Error> {
    match fs::read_dir(folder()) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::Folder { path: folder(), why: error.to_string() })
        }
        _ => Ok(()),
    }
}

/// The feeds that run on this machine for this user. What killed servers left in the folder is removed on the way.
pub fn feeds() -> Vec<FeedInfo> {
    sweep::sweep(&folder());
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

/// The feeds that run, for an error message.
pub(crate) fn running_text() -> String {
    let feeds = feeds();
    if feeds.is_empty() {
        return "nothing".into();
    }
    let texts: Vec<String> = feeds.iter().map(|feed| format!("{} (pid {})", feed.name, feed.pid)).collect();
    texts.join(", ")
}
