//! What was not held in place while it was copied is not shown; a file that is mapped can't be shortened by a descriptor.

use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use feedline_shm::{
    Access, BufferPool, CursorHandle, Doorbell, HeadReader, HeadWriter, Hold, Layout, LeaseTable, Mapping, Memfd,
    RingWriter, page_size,
};
use rustix::fs::{OFlags, fcntl_getfl, ftruncate};

/// A ring whose sample `i` is the eight bytes `i`, and a consumer's view of it.
struct Eight {
    writer: RingWriter,
    shared: Arc<Mapping>,
    head: HeadWriter,
    reader: Arc<HeadReader>,
    table: Arc<LeaseTable>,
}

fn eight(samples: u64) -> Eight {
    let mut writer = RingWriter::create(Layout::new([page_size()]).unwrap()).unwrap();
    for sample in 0..samples {
        writer.write(0, u128::from(sample) * 8, &sample.to_le_bytes());
    }
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().unwrap();
    let memfd = Memfd::accept(own(writer.memory().fd()), "the ring", writer.layout().len_bytes()).unwrap();
    let shared = Arc::new(Mapping::new(&memfd, writer.layout(), Access::Reader).unwrap());
    let head = HeadWriter::create().unwrap();
    head.publish(samples);
    let reader = Arc::new(HeadReader::accept(own(head.as_fd())).unwrap());
    let table = LeaseTable::new(Arc::clone(&reader), CursorHandle::create().unwrap(), Doorbell::new().unwrap(), 0, 0);
    Eight { writer, shared, head, reader, table }
}

impl Eight {
    fn copied(&self, first: u64, hold: Hold<'_>) -> Option<Vec<u8>> {
        let position = u128::from(first) * 8;
        let few: Option<[u8; 8]> = self.shared.read(0, position, hold, first);
        let windows = BufferPool::default().copy(&self.shared, &[(0, position, 8)], hold, first);
        let many = windows.map(|windows| windows[0].to_vec());
        assert_eq!(few.map(|few| few.to_vec()), many);
        many
    }
}

#[test]
fn what_nobody_holds_is_shown_only_if_it_was_not_overwritten() {
    let ring = eight(20);
    let hold = Hold::Nobody(&ring.reader);
    assert_eq!(ring.copied(4, hold), Some(4_u64.to_le_bytes().to_vec()));
    ring.head.forget_before(5, 19);
    assert_eq!(ring.copied(4, hold), None);
    assert_eq!(ring.copied(5, hold), Some(5_u64.to_le_bytes().to_vec()));
}

#[test]
fn what_a_cursor_holds_is_shown_and_nothing_before_it() {
    let ring = eight(20);
    let hold = |lead| Hold::Cursor { table: &ring.table, lead };
    let lease = ring.table.cut(&ring.shared, vec![(0, 0, 8)], 1);
    ring.table.advance(0, 10);
    assert_eq!(ring.copied(3, hold(0)), Some(3_u64.to_le_bytes().to_vec()), "a lease is before it");
    drop(lease);
    assert_eq!(ring.copied(9, hold(0)), None);
    assert_eq!(ring.copied(10, hold(0)), Some(10_u64.to_le_bytes().to_vec()));
    assert_eq!(ring.copied(3, hold(7)), Some(3_u64.to_le_bytes().to_vec()), "the table's tenth is the ring's third");
}

#[test]
fn the_writer_sees_all_that_it_wrote() {
    let ring = eight(20);
    assert_eq!(ring.copied(0, Hold::Writer(&ring.writer)), Some(0_u64.to_le_bytes().to_vec()));
}

#[test]
fn bytes_that_may_change_are_copied_into_a_ring_as_others_are() {
    let mut ring = eight(1);
    let source = [7_u8; 8];
    // SAFETY: eight bytes of an array that outlives the call.
    #[allow(unsafe_code)]
    let lent = unsafe { feedline_shm::SourceBytes::new(source.as_ptr(), source.len()) };
    ring.writer.write(0, 0, lent);
    assert_eq!(ring.copied(0, Hold::Writer(&ring.writer)), Some(lent.to_vec()));
}

#[test]
fn no_descriptor_of_a_ring_in_a_file_can_shorten_it() {
    let folder = std::env::temp_dir();
    let mut writer = RingWriter::create_in(&folder, Layout::new([page_size()]).unwrap()).unwrap();
    let inode = |fd: i32| std::fs::metadata(format!("/proc/self/fd/{fd}")).map(|meta| (meta.dev(), meta.ino())).ok();
    let file = inode(writer.memory().fd().as_raw_fd());
    assert!(file.is_some());
    let mut seen = 0;
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let fd: i32 = entry.unwrap().file_name().to_str().unwrap().parse().unwrap();
        if inode(fd) == file {
            let own = std::fs::File::open(format!("/proc/self/fdinfo/{fd}")).map(std::io::read_to_string).unwrap();
            let flags = own.unwrap().lines().find_map(|line| line.strip_prefix("flags:\t").map(str::to_owned)).unwrap();
            assert_eq!(u32::from_str_radix(&flags, 8).unwrap() & OFlags::RWMODE.bits(), OFlags::RDONLY.bits());
            seen += 1;
        }
    }
    assert!(seen > 0);
    assert!(ftruncate(writer.memory().fd(), 0).is_err());
    let shared = writer.memory().share().unwrap();
    assert_eq!(fcntl_getfl(&shared).unwrap() & OFlags::RWMODE, OFlags::RDONLY);
    assert!(ftruncate(&shared, 0).is_err());
    writer.write(0, 0, b"feedline");
    let mapping = Mapping::new(writer.memory(), writer.layout(), Access::Reader).unwrap();
    assert_eq!(mapping.read(0, 0, Hold::Writer(&writer), 0), Some(*b"feedline"), "the mapping writes on");
}
