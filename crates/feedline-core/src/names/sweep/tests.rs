use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Timespec, Timestamps, futimens};

use super::*;

/// A folder of this user's own, which goes with the test.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fl-names-{}-{number}", std::process::id()));
        fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
        Self(path)
    }

    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.join(name), text).unwrap();
    }

    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const SERVED: &str = "00000000\n{\"attempts\": 0, \"failed\": 0.0, \"options\": {\"train\": \"\"}}";
const FAILED: &str = "00000000\n{\"attempts\": 1, \"failed\": 6.0, \"options\": {\"train\": \"\"}}";
const SEVERAL: &str = "00000000\n{\"attempts\": 0, \"failed\": 0.0, \"options\": {\"set.train\": \"\", \"set.val\": \"\", \"../x\": \"\"}}";

fn socket(folder: &Folder, name: &str) {
    drop(UnixListener::bind(folder.join(format!("{name}.sock"))).unwrap());
}

/// Whatever is in the folder is held: it stays until it is released, and then goes.
#[track_caller]
fn stays_until_released(folder: &Folder, release: impl FnOnce()) {
    let before = folder.files();
    sweep(folder);
    assert_eq!(folder.files(), before);
    release();
    sweep(folder);
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn what_a_killed_server_left_is_removed() {
    let folder = Folder::new();
    socket(&folder, "train");
    for (name, text) in [("train.lock", ""), ("train.share", SERVED), ("train.log", "")] {
        folder.write(name, text);
    }
    let (id, _) = runs::begin(&folder, "train", None);
    folder.write(&format!("train.{id:016x}.rng"), "{}");
    sweep(&folder);
    assert_eq!(folder.files(), [""; 0]);
}

#[test]
fn what_somebody_owns_stays() {
    let folder = Folder::new();
    let hold = |name: &str, how| {
        let file = File::open(folder.join(name)).unwrap();
        flock(&file, how).unwrap();
        file
    };
    // A feed that is being started, one whose server still prints, and one that a consumer may come back to.
    for name in ["starts", "prints", "returns"] {
        folder.write(&format!("{name}.share"), SERVED);
        folder.write(&format!("{name}.log"), "");
    }
    let (id, _) = runs::begin(&folder, "returns", None);
    let held = (
        hold("starts.share", FlockOperation::NonBlockingLockExclusive),
        hold("prints.log", FlockOperation::NonBlockingLockShared),
        runs::HeldRun::hold(&folder, "returns", id).unwrap(),
    );
    stays_until_released(&folder, || drop(held));
}

#[test]
fn one_of_several_feeds_keeps_what_their_server_has() {
    let folder = Folder::new();
    for (name, text) in [("set.share", SEVERAL), ("set.log", "")] {
        folder.write(name, text);
    }
    let ids = ["set.train", "set.val"].map(|feed| runs::begin(&folder, feed, None).0);
    let held = runs::HeldRun::hold(&folder, "set.val", ids[1]).unwrap();
    stays_until_released(&folder, || drop(held));
}

/// Holds a record lock on a file, in a process of its own: record locks do not exclude within a process.
fn hold_lock(path: &Path, mode: &str) -> Child {
    let script = "import fcntl, sys\nfile = open(sys.argv[1], 'r+')\nfcntl.lockf(file, getattr(fcntl, sys.argv[2]))\n\
                  print('held', flush=True)\nsys.stdin.read()";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(path).arg(mode).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut word = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    child
}

fn release(mut holder: Child) {
    drop(holder.stdin.take());
    holder.wait().unwrap();
}

#[test]
fn a_name_that_another_process_holds_is_left_alone() {
    let folder = Folder::new();
    socket(&folder, "train");
    for (name, text) in [("train.lock", ""), ("train.share", SERVED)] {
        folder.write(name, text);
    }
    let holder = hold_lock(&folder.join("train.lock"), "LOCK_EX");
    stays_until_released(&folder, || release(holder));
}

#[test]
fn other_peoples_files_are_left_alone() {
    let folder = Folder::new();
    socket(&folder, "alone");
    socket(&folder, "locked");
    let theirs = [
        ("Cargo.lock", "[package]"),
        ("empty.lock", ""),
        ("locked.lock", "4711"),
        ("build.log", ""),
        ("notes.share", "mine"),
        ("list.share", "[1, 2]"),
        ("train.0123456789abcdef.run", ""),
    ];
    theirs.iter().for_each(|(name, text)| folder.write(name, text));
    std::os::unix::fs::symlink(folder.join("build.log"), folder.join("link.share")).unwrap();
    let before = folder.files();
    sweep(&folder);
    assert_eq!(folder.files(), before);
}

#[test]
fn a_folder_that_others_may_write_to_is_not_swept() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new();
    folder.write("train.share", SERVED);
    fs::set_permissions(&*folder, fs::Permissions::from_mode(0o777)).unwrap();
    sweep(&folder);
    assert_eq!(folder.files(), ["train.share"]);
}

#[test]
fn the_latest_logs_stay_and_the_reasons_of_failures_with_them() {
    let folder = Folder::new();
    for number in 0..KEPT + 4 {
        let name = format!("feed{number:02}");
        folder.write(&format!("{name}.share"), if number % 2 == 0 { SERVED } else { FAILED });
        if number % 2 == 0 {
            folder.write(&format!("{name}.log"), "it printed");
        }
        for suffix in ["share", "log"] {
            if let Ok(file) = File::options().write(true).open(folder.join(format!("{name}.{suffix}"))) {
                let at = Timespec { tv_sec: number as i64, tv_nsec: 0 };
                futimens(&file, &Timestamps { last_access: at, last_modification: at }).unwrap();
            }
        }
    }
    sweep(&folder);
    let names: std::collections::BTreeSet<String> =
        folder.files().iter().map(|name| name.split_once('.').unwrap().0.to_owned()).collect();
    let latest: std::collections::BTreeSet<String> = (4..KEPT + 4).map(|number| format!("feed{number:02}")).collect();
    assert_eq!(names, latest);
    assert!(folder.files().contains(&"feed05.share".to_owned()) && folder.files().contains(&"feed06.log".to_owned()));
}

#[test]
fn a_sweepers_lock_is_no_servers() {
    let folder = Folder::new();
    socket(&folder, "train");
    folder.write("train.lock", "");
    let holder = hold_lock(&folder.join("train.lock"), "LOCK_SH");
    assert_eq!(server_of(&folder.join("train.sock")), None);
    release(holder);
}
