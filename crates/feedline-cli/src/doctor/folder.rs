//! The folder that feeds are looked up in: whether sockets can be made there, and written to.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use feedline_core::{Error, names};
use serde_json::json;

use super::report::Check;

const NAME: &str = "socket folder";
/// The length of `sun_path`, without its final zero.
const LONGEST_PATH: usize = 107;
/// The longest name of a feed.
const LONGEST_NAME: usize = 64;
/// What the records, locks and first log lines of a feed take.
const RECORD_BYTES: usize = 16 << 10;
/// The length of a usual feed's name.
const USUAL_NAME: usize = 16;

pub(super) fn checks() -> Vec<Check> {
    let folder = names::folder();
    let way_out = format!("export FEEDLINE_DIR=/tmp/feedline-{}", rustix::process::getuid().as_raw());
    let way_out = if folder.as_os_str().as_bytes().ends_with(&way_out.as_bytes()["export FEEDLINE_DIR=".len()..]) {
        "export FEEDLINE_DIR=SOME_FOLDER_OF_YOUR_OWN".to_owned()
    } else {
        way_out
    };
    let way_out = format!("{way_out}, for servers and jobs alike");
    let shown = folder.display().to_string();
    let bad = |why: String| vec![Check::bad(NAME, format!("{shown}: {why}"), &*way_out).with(json!({"path": shown}))];
    let name_bytes = LONGEST_PATH.saturating_sub(folder.as_os_str().len() + "/.sock".len());
    if name_bytes < USUAL_NAME {
        let len = folder.as_os_str().len();
        return bad(format!(
            "{len} bytes long, which leaves {name_bytes} for a feed's name (a socket's path has {LONGEST_PATH})"
        ));
    }
    let is_new = !folder.exists();
    if let Err(error) = names::prepare_folder() {
        let why =
            if let Error::Folder { why, .. } | Error::FolderFull { why, .. } = error { why } else { error.to_string() };
        return bad(why);
    }
    if let Err(error) = try_socket(&folder) {
        return bad(format!("no socket can be made there: {error}"));
    }
    if let Err(error) = try_write(&folder) {
        let found = format!("{shown}: nothing can be written there: {error}");
        let way_out = format!("free some space there, or {way_out}");
        return vec![Check::bad(NAME, found, way_out).with(json!({"path": shown}))];
    }
    if is_new && std::env::var_os("FEEDLINE_DIR").is_some() {
        let found = format!("{shown} did not exist, and was made just now");
        return vec![Check::note(NAME, found, "check FEEDLINE_DIR: servers and jobs must have the same")];
    }
    vec![described(&folder, name_bytes)]
}

/// Makes a socket, connects to it, and removes it.
fn try_socket(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let _ = fs::remove_file(&path);
    let tried = UnixListener::bind(&path).and_then(|_listener| UnixStream::connect(&path).map(drop));
    let removed = fs::remove_file(&path);
    tried.and(removed)
}

/// Writes as much as `share` writes at most before a feed runs, and removes it.
fn try_write(folder: &Path) -> std::io::Result<()> {
    let path = folder.join(format!(".doctor-{}", std::process::id()));
    let written = fs::write(&path, [b' '; RECORD_BYTES]);
    let removed = fs::remove_file(&path);
    written.and(removed)
}

fn described(folder: &Path, name_bytes: usize) -> Check {
    let mode = fs::metadata(folder).map_or(0, |meta| meta.mode() & 0o777);
    let file_system = rustix::fs::statfs(folder).map_or("unknown", |stat| names::file_system(stat.f_type as u64));
    let found = format!("{}, mode {mode:o}, on {file_system}", folder.display());
    let check = if matches!(file_system, "nfs" | "smb" | "cifs" | "fuse" | "lustre") {
        Check::note(NAME, found, "give each machine a folder of its own (FEEDLINE_DIR): a feed is for one machine")
    } else if name_bytes < LONGEST_NAME {
        Check::note(NAME, found, format!("its path is long: feeds' names may have {name_bytes} bytes"))
    } else {
        Check::ok(NAME, found)
    };
    let mode = format!("{mode:o}");
    check.with(
        json!({"path": folder, "mode": mode, "file_system": file_system, "longest_name": name_bytes.min(LONGEST_NAME)}),
    )
}
