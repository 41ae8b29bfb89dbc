//! Rings in real memory: what crosses the end, what a write makes private, what a kept lease keeps.

use std::os::fd::AsFd;
use std::sync::Arc;

use feedline_protocol::UNKNOWN;
use feedline_shm::{
    Access, BufferPool, CursorHandle, Doorbell, HeadReader, HeadWriter, Hold, Layout, LeaseTable, Mapping, Memfd,
    Memory, PrivatePages, RingError, RingWriter, page_size,
};

/// A server's and a consumer's side in one process.
struct Both {
    writer: RingWriter,
    head: HeadWriter,
    page: CursorHandle,
    table: Arc<LeaseTable>,
    memfd: Memfd,
    shared: Mapping,
    private: Arc<Mapping>,
    pages: PrivatePages,
}

fn both(len_bytes: u64) -> Both {
    let writer = RingWriter::create(Layout::new([len_bytes]).unwrap()).unwrap();
    let clone = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let memfd = Memfd::accept(clone(writer.memory().fd()), "the ring", writer.layout().len_bytes()).unwrap();
    let head = HeadWriter::create().unwrap();
    let page = CursorHandle::create().unwrap();
    let bell = Doorbell::new().unwrap();
    let reader = Arc::new(HeadReader::accept(clone(head.as_fd())).unwrap());
    let own = CursorHandle::accept(clone(page.as_fd())).unwrap();
    let table = LeaseTable::new(reader, own, Doorbell::accept(clone(bell.as_fd())).unwrap(), 0, 0);
    let shared = Mapping::new(&memfd, writer.layout(), Access::Reader).unwrap();
    let private = Arc::new(Mapping::new(&memfd, writer.layout(), Access::Private).unwrap());
    Both { writer, head, page, table, memfd, shared, private, pages: PrivatePages::open().unwrap() }
}

fn pattern(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(31).wrapping_add(seed * 7) >> 2) as u8).collect()
}

#[test]
fn a_window_across_the_end_is_contiguous() {
    let mut both = both(page_size());
    let bytes = pattern(1, 1000);
    let position = u128::from(page_size()) * 5 - 300;
    both.writer.write(0, position, &bytes);
    let windows = both.table.cut(&both.private, vec![(0, position, 1000)], 1);
    assert_eq!(windows[0].to_vec(), bytes);
    let hold = Hold::Writer(&both.writer);
    let copies = BufferPool::default().copy(&both.shared, &[(0, position, 1000)], hold, 0).unwrap();
    assert_eq!(copies[0].to_vec(), bytes);
    assert_eq!(copies[0].as_ptr() as usize % 64, 0);
}

#[test]
fn consumers_cannot_write_to_the_ring() {
    let both = both(page_size());
    let refused = Mapping::new(&both.memfd, both.writer.layout(), Access::Writer);
    assert!(matches!(refused, Err(RingError::Os { .. })), "{refused:?}");
}

#[test]
fn memory_that_is_not_sealed_is_refused() {
    let memfd = Memfd::create("test", page_size()).unwrap();
    let fd = || memfd.fd().try_clone_to_owned().unwrap();
    let refused = Memfd::accept(fd(), "the ring", page_size());
    assert!(matches!(refused, Err(RingError::BadDescriptor { .. })), "{refused:?}");
    memfd.seal_size().unwrap();
    assert!(Memfd::accept(fd(), "the ring", page_size() * 2).is_err());
    assert!(Memfd::accept(fd(), "the ring", page_size()).is_ok());
    let file = std::fs::File::open("/dev/null").unwrap();
    assert!(Memfd::accept(file.into(), "the ring", page_size()).is_err());
}

/// Both ways of finding out: comparing (small windows) and asking the kernel (large ones).
#[test]
fn a_written_page_is_found_and_an_unwritten_one_is_not() {
    for len in [512_usize, 20 * page_size() as usize] {
        let mut both = both(64 * page_size());
        let bytes = pattern(2, len);
        both.writer.write(0, 0, &bytes);
        let windows = both.table.cut(&both.private, vec![(0, 0, len)], 1);
        assert_eq!(windows[0].to_vec(), bytes, "touched, so that the pages are mapped");
        assert!(!both.pages.is_stale(&both.private, &both.shared, 0, 0, len));
        assert!(!both.private.was_written(&both.pages, 0, 0, len));
        let middle = windows[0].as_ptr().wrapping_add(len / 2);
        // SAFETY: inside the window, which is private and writable, and nobody else reads it now.
        #[allow(unsafe_code)]
        unsafe {
            middle.write(99);
        }
        both.writer.write(0, 0, &pattern(3, len));
        assert!(both.pages.is_stale(&both.private, &both.shared, 0, 0, len));
        assert!(both.private.was_written(&both.pages, 0, 0, len));
        let untouched = u128::from(page_size()) * 40;
        assert!(!both.pages.is_stale(&both.private, &both.shared, 0, untouched, len));
    }
}

#[test]
fn a_kept_lease_keeps_its_bytes_and_frees_the_log() {
    for access in [Access::Private, Access::Frozen] {
        let mut both = both(8 * page_size());
        let mapping = Arc::new(Mapping::new(&both.memfd, both.writer.layout(), access).unwrap());
        let len = 3 * page_size() as usize - 10;
        let bytes = pattern(4, len);
        both.writer.write(0, 5, &bytes);
        let windows = both.table.cut(&mapping, vec![(0, 5, len)], 10);
        assert_eq!(both.page.position(0), Some((0, 0)), "the lease holds sample 0");
        let before = windows[0].as_ptr();
        assert!(both.table.keep_oldest());
        assert!(!both.table.keep_oldest(), "there was one lease");
        assert_eq!(both.page.position(0), Some((0, 10)));
        both.writer.write(0, 0, &pattern(5, 8 * page_size() as usize));
        assert_eq!(windows[0].to_vec(), bytes);
        assert_eq!(windows[0].as_ptr(), before);
        assert!(both.pages.is_stale(&mapping, &both.shared, 0, 5, len), "the next turn must not be cut from here");
    }
}

#[test]
fn the_last_window_ends_the_lease_wherever_it_dies() {
    let both = both(page_size());
    let first = both.table.cut(&both.private, vec![(0, 0, 8), (0, 8, 8)], 4);
    let second = both.table.cut(&both.private, vec![(0, 16, 8)], 8);
    let part = second[0].part(4, 4);
    drop(second);
    assert_eq!(both.page.position(0).unwrap().1, 0);
    std::thread::spawn(move || drop(first)).join().unwrap();
    assert_eq!(both.page.position(0).unwrap().1, 4, "a part of the second still lives");
    drop(part);
    assert_eq!(both.page.position(0).unwrap().1, 8);
    assert_eq!(both.table.live(), 0);
}

/// A tensor of an older join that dies late, on whatever thread, must not move the new cursor.
#[test]
fn an_older_join_has_no_say_in_a_newer_one() {
    let both = both(page_size());
    let old = both.table.cut(&both.private, vec![(0, 0, 8)], 100);
    assert!(both.table.keep_oldest());
    let older = both.table.cut(&both.private, vec![(0, 8, 8)], 200);
    assert_eq!(both.page.position(1), None, "the server has placed us; we have not heard of it");
    drop(old);
    both.table.enter(1, 0, 7);
    assert_eq!(both.page.position(1), Some((0, 7)));
    drop(older);
    assert_eq!(both.page.position(1), Some((0, 7)));
    let new = both.table.cut(&both.private, vec![(0, 16, 8)], 20);
    assert_eq!((both.page.position(1), both.table.live()), (Some((0, 7)), 1));
    drop(new);
    assert_eq!(both.page.position(1), Some((0, 20)));
}

#[test]
fn a_release_that_the_server_waits_for_rings() {
    let both = both(page_size());
    let windows = both.table.cut(&both.private, vec![(0, 0, 8)], 4);
    both.head.want(4);
    assert_eq!(both.head.wanted(), 4);
    drop(windows);
    both.head.want_nothing();
    assert_eq!(both.head.wanted(), UNKNOWN);
    assert_eq!(both.page.position(0).unwrap().1, 4);
}

#[test]
fn a_ring_that_no_process_can_address_is_refused() {
    assert!(Layout::new([u64::MAX]).is_none());
    assert!(Layout::new([1 << 45, 1 << 45]).is_none());
}

#[test]
fn a_doorbell_that_a_peer_makes_block_does_not_block() {
    let bell = Doorbell::new().unwrap();
    let theirs = bell.as_fd().try_clone_to_owned().unwrap();
    rustix::fs::fcntl_setfl(&theirs, rustix::fs::OFlags::empty()).unwrap();
    bell.ring();
    bell.clear();
    // Nobody has rung: a read that blocks would never come back.
    bell.clear();
    let refused = Doorbell::accept(theirs);
    assert!(matches!(refused, Err(RingError::BadDescriptor { .. })), "{refused:?}");
}

#[test]
fn huge_pages_that_may_run_out_are_not_memory() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB;
    // Where the kernel has none of the kind, nobody can send any.
    let Ok(fd) = memfd_create("huge", flags) else { return };
    ftruncate(&fd, 2 << 20).unwrap();
    fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK).unwrap();
    let refused = Memfd::accept(fd, "the ring", 2 << 20);
    assert!(matches!(refused, Err(RingError::BadDescriptor { .. })), "{refused:?}");
}
