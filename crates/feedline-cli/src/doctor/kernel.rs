//! What the kernel must be able to do: each is tried.

use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use feedline_shm::{
    Access, HeadReader, HeadWriter, Hold, Layout, Mapping, Memfd, Memory, PrivatePages, RingWriter, Waited, page_size,
    peer,
};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use serde_json::json;

use super::report::Check;

const SANDBOX: &str =
    "feeds need Linux 5.1 or newer; in a sandbox such as gVisor, use a runtime with the host's kernel";

pub(super) fn checks() -> Vec<Check> {
    vec![version(), proc(), sealed_memory(), mirror(), wake_up(), pidfd(), private_pages()]
}

fn version() -> Check {
    let uname = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    let (system, release, machine) = (text(uname.sysname()), text(uname.release()), text(uname.machine()));
    let found = format!("{system} {release}, {machine}, pages of {} bytes", page_size());
    Check::ok("kernel", found).with(json!({"release": release, "machine": machine, "page_bytes": page_size()}))
}

/// Received descriptors are inspected through it.
fn proc() -> Check {
    match std::fs::read_link("/proc/self/fd/0").and_then(|_| std::fs::read_to_string("/proc/self/stat")) {
        Err(error) if std::fs::metadata("/proc/self/fd").is_err() => {
            Check::bad("/proc", format!("not usable: {error}"), "mount it: mount -t proc proc /proc")
        }
        _ => Check::ok("/proc", "is there"),
    }
}

type Tried<T> = Result<T, Box<dyn std::error::Error>>;

/// Something that every kernel which can run feeds does.
fn judged(name: &'static str, works: Tried<bool>, good: &str, bad: &str) -> Check {
    match works {
        Ok(true) => Check::ok(name, good),
        Ok(false) => Check::bad(name, bad, SANDBOX),
        Err(error) => Check::bad(name, error.to_string(), SANDBOX),
    }
}

fn sealed_memory() -> Check {
    let name = "sealed memory";
    let tried = || -> Tried<bool> {
        let layout = Layout::new([page_size()]).ok_or("no layout")?;
        let mut memfd = Memfd::create("feedline-doctor", layout.len_bytes())?;
        let _writer = Mapping::new(&memfd, &layout, Access::Writer)?;
        memfd.seal_writer()?;
        Mapping::new(&memfd, &layout, Access::Private)?;
        Ok(Mapping::new(&memfd, &layout, Access::Writer).is_err())
    };
    judged(
        name,
        tried(),
        "memfd_create, F_SEAL_FUTURE_WRITE: only the server can write to a ring",
        "a sealed memfd can be written to all the same",
    )
}

fn mirror() -> Check {
    let name = "mirrored mapping";
    let tried = || -> Tried<bool> {
        let mut ring = RingWriter::create(Layout::new([page_size()]).ok_or("no layout")?)?;
        let reader = Mapping::new(ring.memory(), ring.layout(), Access::Private)?;
        // Written across the lane's end, and read back at its beginning.
        let edge = u128::from(ring.layout().lanes()[0].len_bytes) - 4;
        ring.write(0, edge, b"feedline");
        let hold = Hold::Writer(&ring);
        Ok(reader.read(0, edge, hold, 0) == Some(*b"feedline") && reader.read(0, 0, hold, 0) == Some(*b"line"))
    };
    judged(name, tried(), "a window across a ring's end is in one piece", "the two halves show different bytes")
}

/// On a page that this side can't write to.
fn wake_up() -> Check {
    let name = "futex";
    let tried = || -> Tried<&'static str> {
        let head = HeadWriter::create()?;
        let reader = HeadReader::accept(head.as_fd().try_clone_to_owned()?)?;
        let tick = reader.tick();
        // A futex that doesn't work returns at once.
        if reader.wait(tick, Duration::from_millis(20)) == Waited::Woken {
            return Ok("a wait on a read-only page does not wait");
        }
        let woken = std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| reader.wait(tick, Duration::from_secs(2)));
            head.advance_tick();
            while !sleeper.is_finished() {
                head.wake_all();
                std::thread::sleep(Duration::from_millis(1));
            }
            sleeper.join()
        });
        Ok(if matches!(woken, Ok(Waited::Woken)) { "" } else { "a sleeper on a read-only page is not woken" })
    };
    match tried() {
        Ok("") => Check::ok(name, "a consumer can sleep on a page that it can only read"),
        Ok(why) => Check::bad(name, why, SANDBOX),
        Err(error) => Check::bad(name, error.to_string(), SANDBOX),
    }
}

fn pidfd() -> Check {
    let name = "pidfd";
    let opened = pidfd_open(getpid(), PidfdFlags::empty());
    let of_peer = UnixStream::pair().ok().and_then(|(one, _other)| peer::peer_pidfd(one.as_fd()));
    let numbers = json!({"pidfd_open": opened.is_ok(), "so_peerpidfd": of_peer.is_some()});
    let harmless = "nothing to do: a closed socket shows a death too, unless a child of the dead process keeps it open";
    let check = match (&opened, &of_peer) {
        (Ok(_), Some(_)) => Check::ok(name, "pidfd_open, SO_PEERPIDFD: a death is noticed at once"),
        (Ok(_), None) => Check::note(
            name,
            "no SO_PEERPIDFD (Linux 6.5): deaths are noticed by pid",
            "nothing to do: only a pid that is used again at that very moment could mislead",
        ),
        (Err(error), _) => Check::note(name, format!("no pidfd_open (Linux 5.3): {error}"), harmless),
    };
    check.with(numbers)
}

/// How a consumer finds out which pages a training step has written to.
fn private_pages() -> Check {
    let name = "private pages";
    let copies =
        "nothing to do: batches are copied out of the ring; mount /proc with pagemap in it to have them in place";
    let Some(pages) = PrivatePages::open() else {
        return Check::note(name, "neither PAGEMAP_SCAN nor /proc/self/pagemap can be used", copies)
            .with(json!({"pagemap_scan": false, "pagemap": false}));
    };
    let numbers = json!({"pagemap_scan": pages.has_scan(), "pagemap": true});
    let fresh_is_private = || -> Option<bool> {
        let mut ring = RingWriter::create(Layout::new([page_size()])?).ok()?;
        ring.write(0, 0, b"feedline");
        let mapping = Mapping::new(ring.memory(), ring.layout(), Access::Private).ok()?;
        mapping.read::<8>(0, 0, Hold::Writer(&ring), 0)?;
        Some(mapping.was_written(&pages, 0, 0, page_size() as usize))
    };
    let check = match fresh_is_private() {
        Some(true) => {
            Check::note(name, "pages that nobody wrote to are shown as written: each batch is mapped anew", copies)
        }
        _ if pages.has_scan() => {
            Check::ok(name, "PAGEMAP_SCAN: batches that were written to are found in microseconds")
        }
        _ => Check::note(
            name,
            "no PAGEMAP_SCAN (Linux 6.7): /proc/self/pagemap is read instead",
            "nothing to do: large batches cost some microseconds more each",
        ),
    };
    check.with(numbers)
}
