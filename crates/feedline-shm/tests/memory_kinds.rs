//! What every kind of memory promises: one suite over all of them.

use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use feedline_shm::{
    Access, CursorHandle, Doorbell, FileMemory, HeadReader, HeadWriter, Hold, Layout, LeaseTable, Mapping, Memfd,
    Memory, RingError, RingWriter, page_size,
};
use rustix::fs::{FallocateFlags, Mode, OFlags, fallocate, ftruncate, open};

/// A kind: how its memory is made, and how a descriptor of it is accepted.
struct Kind {
    create: fn(u64) -> Result<Box<dyn Memory>, RingError>,
    accept: fn(OwnedFd, u64) -> Result<Box<dyn Memory>, RingError>,
}

const MEMFD: Kind = Kind {
    create: |len_bytes| Ok(Box::new(Memfd::create_sparse("test", len_bytes)?)),
    accept: |fd, len_bytes| Ok(Box::new(Memfd::accept(fd, "the ring", len_bytes)?)),
};

const FILE: Kind = Kind {
    create: |len_bytes| Ok(Box::new(FileMemory::create_in(&std::env::temp_dir(), len_bytes)?)),
    // SAFETY: the files are this test's own, and it shortens none that is mapped.
    #[allow(unsafe_code)]
    accept: |fd, len_bytes| Ok(Box::new(unsafe { FileMemory::accept(fd, "the ring", len_bytes) }?)),
};

fn layout() -> Layout {
    Layout::new([2 * page_size(), page_size()]).unwrap()
}

fn ring(kind: &Kind) -> RingWriter {
    let layout = layout();
    RingWriter::on((kind.create)(layout.len_bytes()).unwrap(), layout).unwrap()
}

fn shared(kind: &Kind, ring: &RingWriter) -> Box<dyn Memory> {
    (kind.accept)(ring.memory().share().unwrap(), ring.layout().len_bytes()).unwrap()
}

fn read(mapping: &Mapping, ring: &RingWriter, lane: usize, position: u128) -> [u8; 8] {
    mapping.read(lane, position, Hold::Writer(ring), 0).unwrap()
}

fn what_is_written_is_read_elsewhere(kind: &Kind) {
    let mut ring = ring(kind);
    let reader = Mapping::new(&*shared(kind, &ring), ring.layout(), Access::Reader).unwrap();
    let across = u128::from(ring.layout().lanes()[0].len_bytes) * 3 - 4;
    ring.write(0, across, b"across!!");
    ring.write(1, 8, b"feedline");
    assert_eq!(&read(&reader, &ring, 0, across), b"across!!");
    assert_eq!(&read(&reader, &ring, 1, 8), b"feedline");
    assert_eq!(read(&reader, &ring, 1, 16), [0; 8], "new memory is empty");
}

fn nobody_else_can_write(kind: &Kind) {
    let mut ring = ring(kind);
    let shared = shared(kind, &ring);
    for memory in [&*shared, ring.memory()] {
        let refused = Mapping::new(memory, ring.layout(), Access::Writer);
        assert!(matches!(refused, Err(RingError::Os { .. })), "{refused:?}");
        assert!(rustix::io::pwrite(memory.fd(), b"x", 0).is_err());
    }
    ring.write(0, 0, b"the one ");
    let reader = Mapping::new(&*shared, ring.layout(), Access::Reader).unwrap();
    assert_eq!(&read(&reader, &ring, 0, 0), b"the one ", "the mapping that was there writes on");
}

fn nobody_can_change_its_length(kind: &Kind) {
    let ring = ring(kind);
    let shared = shared(kind, &ring);
    for memory in [&*shared, ring.memory()] {
        let len_bytes = memory.len_bytes();
        assert!(ftruncate(memory.fd(), 0).is_err());
        assert!(ftruncate(memory.fd(), len_bytes * 2).is_err());
        assert!(fallocate(memory.fd(), FallocateFlags::empty(), len_bytes, 1).is_err());
        assert_eq!(rustix::fs::fstat(memory.fd()).unwrap().st_size as u64, len_bytes);
    }
}

fn a_private_write_stays_private(kind: &Kind) {
    let mut ring = ring(kind);
    let shared = shared(kind, &ring);
    ring.write(0, 0, b"original");
    let private = Arc::new(Mapping::new(&*shared, ring.layout(), Access::Private).unwrap());
    let head = rustix::io::dup(HeadWriter::create().unwrap()).unwrap();
    let reader = Arc::new(HeadReader::accept(head).unwrap());
    let table = LeaseTable::new(reader, CursorHandle::create().unwrap(), Doorbell::new().unwrap(), 0, 0);
    let windows = table.cut(&private, vec![(0, 0, 8)], 1);
    // SAFETY: eight bytes of a private mapping that nobody else has.
    #[allow(unsafe_code)]
    unsafe {
        windows[0].as_ptr().write(b'X');
    }
    assert_eq!(windows[0].to_vec(), b"Xriginal");
    let reader = Mapping::new(&*shared, ring.layout(), Access::Reader).unwrap();
    assert_eq!(&read(&reader, &ring, 0, 0), b"original");
}

fn it_outlives_its_maker(kind: &Kind) {
    let mut ring = ring(kind);
    ring.write(0, 0, b"the last");
    let shared = shared(kind, &ring);
    let layout = ring.layout().clone();
    drop(ring);
    let reader = Mapping::new(&*shared, &layout, Access::Reader).unwrap();
    let another = self::ring(kind);
    assert_eq!(&read(&reader, &another, 0, 0), b"the last");
}

fn every_page_is_there(kind: &Kind) {
    let ring = ring(kind);
    let blocks = rustix::fs::fstat(ring.memory().fd()).unwrap().st_blocks as u64;
    assert!(blocks * 512 >= ring.layout().len_bytes(), "a write into a hole could fail");
}

fn what_is_not_such_memory_is_refused(kind: &Kind) {
    let ring = ring(kind);
    let len_bytes = ring.layout().len_bytes();
    let refused = |fd: OwnedFd, len_bytes: u64| {
        let outcome = (kind.accept)(fd, len_bytes);
        assert!(matches!(outcome, Err(RingError::BadDescriptor { .. })), "{outcome:?}");
    };
    refused(ring.memory().share().unwrap(), len_bytes * 2);
    refused(ring.memory().share().unwrap(), len_bytes - 1);
    refused(open("/dev/null", OFlags::RDONLY, Mode::empty()).unwrap(), 0);
    refused(open("/", OFlags::RDONLY, Mode::empty()).unwrap(), len_bytes);
    let (pipe, _other) = rustix::pipe::pipe().unwrap();
    refused(pipe, len_bytes);
    let unsealed = (kind.create)(len_bytes).unwrap();
    refused(unsealed.fd().try_clone_to_owned().unwrap(), len_bytes);
}

fn no_name_is_left(kind: &Kind) {
    let ring = ring(kind);
    let path = format!("/proc/self/fd/{}", ring.memory().fd().as_raw_fd());
    let name = std::fs::read_link(path).unwrap();
    assert!(!Path::new(&name).exists(), "{name:?}");
}

macro_rules! suite {
    ($($promise:ident),* $(,)?) => {
        mod memfd {
            $(#[test] fn $promise() { super::$promise(&super::MEMFD); })*
        }
        mod file {
            $(#[test] fn $promise() { super::$promise(&super::FILE); })*
        }
    };
}

suite!(
    what_is_written_is_read_elsewhere,
    nobody_else_can_write,
    nobody_can_change_its_length,
    a_private_write_stays_private,
    it_outlives_its_maker,
    every_page_is_there,
    what_is_not_such_memory_is_refused,
    no_name_is_left,
);
