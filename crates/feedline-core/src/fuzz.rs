//! The functions that bytes of a stranger reach, as functions of bytes: driven by cargo-fuzz (`fuzz/`) and, on any compiler, by
//! `tests/fuzz.rs`. Each may refuse its input; none may panic, reach outside of its memory or take much of it.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use feedline_protocol::message::{Answer, Entry, Join, Others, Place, Rank, Refusal};
use feedline_shm::{
    Access, BufferPool, CursorHandle, Doorbell, HeadReader, HeadWriter, Hold, Layout, LeaseTable, Mapping, Memfd,
    Memory, RingWriter, page_size,
};
use serde::de::DeserializeOwned;

use crate::batch::{Array, Batch, Leaf, Received, Value};
use crate::consumer::Mode;
use crate::consumer::view::{View, checked_layout};
use crate::dim_order::DimOrder;
use crate::error::{Failure, FailureKind};
use crate::explain::Explanation;
use crate::options::Name;
use crate::ring_info::{ReportedLength, RingInfo, strides};
use crate::schema::{ArrayKind, DType, Field, Schema, len_bytes};
use crate::stats::{ConsumerStats, Event, PoolReason, PoolStats, ServerStats};
use crate::structure::{Class, Key, Node, Structure};
use crate::subclass::{Plain, Scalar, Subclass};
use crate::whole::{self, Encoded};
use crate::wire::{Channel, MAGIC, Reply, Request, Stuck, VERSION};

/// Rings up to this length are really allocated.
const SMALL: u64 = 1 << 20;

/// A function to be fuzzed.
pub type Target = fn(&[u8]);

/// All of them, by the names of their folders in `fuzz/corpus`.
pub const TARGETS: [(&str, Target); 4] = [("request", request), ("reply", reply), ("batch", batch), ("ring", ring)];

/// What consumers send to a server.
pub fn request(bytes: &[u8]) {
    converse::<Request>(bytes, Channel::for_server, |_| ());
}

/// What a server sends to consumers, and the rings that it announces.
pub fn reply(bytes: &[u8]) {
    converse(bytes, Channel::for_consumer, |reply| match reply {
        Reply::Welcome { ring, .. } | Reply::Ring(ring) => check_ring(&ring),
        _ => {}
    });
}

/// A batch that travels whole, as it stands in a ring.
pub fn batch(bytes: &[u8]) {
    let len = bytes.len().min(SMALL as usize);
    let (memory, layout) = memory_of(Layout::new([len as u64]).expect("a megabyte can be addressed"), &bytes[..len]);
    let mapping = Mapping::new(&memory, &layout, Access::Reader).expect("a megabyte can be mapped");
    let hold = Hold::Cursor { table: &table(0), lead: 0 };
    let windows = BufferPool::default().copy(&mapping, &[(0, 0, len)], hold, 0).expect("the cursor is there");
    if let Some(received) = whole::decode(&windows[0]) {
        touch(&received);
    }
}

/// A ring and its contents: the announcement, which samples to cut out, and what the lanes are filled with.
pub fn ring(bytes: &[u8]) {
    let Ok(((info, first, count), contents)) = postcard::take_from_bytes::<(RingInfo, u64, u64)>(bytes) else { return };
    let Ok(layout) = checked_layout(&info) else { return };
    if layout.len_bytes() > SMALL || info.is_file {
        return;
    }
    let (memory, _) = memory_of(layout, contents);
    let mode = if count % 2 == 0 { Mode::Copy } else { Mode::Cow };
    let memory = memory.fd().try_clone_to_owned().expect("there are descriptors left");
    let mut view = View::new(info, memory, mode, "fuzz").expect("what was checked can be mapped");
    let table = table(first);
    let _ = view.source_batch_at(first, Hold::Cursor { table: &table, lead: 0 });
    if let Ok(received) = view.take(&table, (first, first.saturating_add(count), 0), 0, "fuzz") {
        touch(&received);
    }
}

/// Sends bytes through a socket, in pieces, and takes messages at the other end.
fn converse<M: DeserializeOwned + serde::Serialize>(
    bytes: &[u8],
    end: impl Fn(OwnedFd) -> Channel,
    mut heard: impl FnMut(M),
) {
    let (mut peer, socket) = UnixStream::pair().expect("there are descriptors left");
    let mut channel = end(socket.into());
    let piece = bytes.first().map_or(1, |&first| usize::from(first % 97) + 1);
    // A few small pieces, then all that a socket takes at once.
    let (slowly, quickly) = bytes.split_at(bytes.len().min(piece * 16));
    for piece in slowly.chunks(piece).chain(quickly.chunks(32 << 10)) {
        peer.write_all(piece).expect("what was sent before has been read");
        loop {
            match channel.receive::<M>() {
                Ok(Some((message, fds))) => {
                    assert!(fds.is_empty(), "none were sent");
                    heard(message);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
    }
}

/// What was accepted can be addressed: every sample of every lane.
fn check_ring(info: &RingInfo) {
    let Ok(layout) = checked_layout(info) else { return };
    assert!(layout.len_bytes() < 1 << 45);
    for (lane, stride) in layout.lanes().iter().zip(strides(&info.schema)) {
        let needed = stride.checked_mul(info.capacity).expect("it was checked");
        assert!(lane.len_bytes >= needed && lane.len_bytes.is_multiple_of(page_size()));
    }
}

fn memory_of(layout: Layout, contents: &[u8]) -> (Memfd, Layout) {
    let mut writer = RingWriter::create(layout.clone()).expect("a megabyte is there");
    let mut rest = contents;
    for (index, lane) in layout.lanes().iter().enumerate() {
        let (piece, after) = rest.split_at(rest.len().min(lane.len_bytes as usize));
        writer.write(index, 0, piece);
        rest = after;
    }
    let fd = writer.memory().fd().try_clone_to_owned().expect("there are descriptors left");
    (Memfd::accept(fd, "the ring", layout.len_bytes()).expect("it was just made"), layout)
}

fn table(cursor: u64) -> Arc<LeaseTable> {
    let own = |fd: std::os::fd::BorrowedFd<'_>| fd.try_clone_to_owned().expect("there are descriptors left");
    let head = HeadWriter::create().expect("a page is there");
    let head = Arc::new(HeadReader::accept(own(head.as_fd())).expect("it was just made"));
    let page = CursorHandle::create().expect("a page is there");
    LeaseTable::new(head, page, Doorbell::new().expect("there are descriptors left"), 0, cursor)
}

/// Reads what a framework would.
fn touch(received: &Received) {
    assert!(received.structure.is_sound(received.values.len()));
    assert_eq!(received.structure.paths().len(), received.values.len());
    for value in &received.values {
        if let Value::Array { dtype, shape, order, window, .. } = value {
            let last = order
                .strides(shape, dtype.len_bytes())
                .into_iter()
                .zip(shape)
                .map(|(by, &len)| by as u64 * (len.max(1) - 1));
            assert!(window.len_bytes() == 0 || last.sum::<u64>() + dtype.len_bytes() == window.len_bytes() as u64);
            assert_eq!(len_bytes(*dtype, shape), Some(window.len_bytes() as u64));
        }
        if let Value::Array { window, .. } | Value::Bytes(window) | Value::Pickle(window) = value {
            std::hint::black_box(window.copy(0, window.len_bytes()).expect("all of it is inside"));
        }
    }
}

/// Valid input for each target, to begin with.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "request" => {
            let hello = |consumer| Request::Hello { magic: MAGIC, version: VERSION, consumer };
            let join = |batch_size, entry| Request::Join(Join::new(1, batch_size, entry));
            let rank = Some(Rank { group: 7, world: 8, rank: 3, is_rejoining: false });
            let messages = [
                hello(true),
                hello(false),
                join(Some(96), Entry::EpochStart),
                join(None, Entry::Newest),
                join(None, Entry::First { else_newest: true }),
                join(None, Entry::At { epoch: 3, index: 400 }),
                Request::Join(Join { rank, ..Join::new(1, Some(96), Entry::EpochStart) }),
                Request::Join(Join {
                    others: [Some(Others { server: 812, count: 3, is_one: true, slowest: 2 }), None],
                    ..Join::new(1, None, Entry::EpochStart)
                }),
                Request::Leave,
                Request::Bye,
                Request::Stats,
                Request::Stop,
                Request::Ping,
                Request::Diagnose,
            ];
            framed(&messages)
        }
        "reply" => {
            let mut messages: Vec<Reply> = infos().into_iter().map(Reply::Ring).collect();
            let order = "run 0123456789abcdef";
            messages.extend(infos().into_iter().map(|ring| Reply::Welcome {
                ring,
                run: Some(7),
                order: order.to_owned(),
            }));
            let consumer = ConsumerStats { mode: "cow".into(), batch_size: Some(7), ..ConsumerStats::default() };
            let event = Event { kind: "joined".into(), pid: Some(812), text: "epoch 3".into(), ..Event::default() };
            let stats = ServerStats {
                consumers: vec![consumer; 3],
                events: vec![event; 2],
                name: "train".into(),
                pool: Some(PoolStats { workers: 2, why: PoolReason::KeepsUp { waits: 0.02 }, ..PoolStats::default() }),
                ..ServerStats::default()
            };
            messages.extend([
                Reply::Answer(Answer::Joined {
                    number: 1,
                    place: Place { epoch: 2, sample: Some(3), had: 4, start: 1 },
                }),
                Reply::Answer(Answer::Gone { number: 1, epoch: 2, until: Some(9) }),
                Reply::Answer(Answer::Refused(Refusal::NoRing("too large".into()))),
                Reply::Answer(Answer::Refused(Refusal::TooLarge { needed_bytes: 7, free_bytes: 5 })),
                Reply::Answer(Answer::Detached { stalled_secs: 60.0 }),
                Reply::Refused { why: "another version".into() },
                Reply::Failed(Failure::new(FailureKind::Loader, "the loader raised")),
                Reply::Failed(Failure::new(
                    FailureKind::Memory,
                    Explanation::new("no room").hint(crate::text!["give a smaller ", Name::ring.of_value("2MB")]),
                )),
                Reply::Ended,
                Reply::Stats(Box::new(stats)),
                Reply::Pong,
                Reply::Stuck(Stuck { secs: 30.0, samples: 640, place: "File \"loader.py\", line 7, in read".into() }),
            ]);
            framed(&messages)
        }
        "batch" => with_batches(|batch| {
            let encoded = Encoded::new(batch);
            let mut bytes = vec![0; encoded.len_bytes() as usize];
            for (offset, piece) in encoded.pieces() {
                bytes[offset as usize..][..piece.len()].copy_from_slice(&piece.to_vec());
            }
            bytes
        }),
        "ring" => {
            let place = |len: usize| [0_u64.to_le_bytes(), (len as u64).to_le_bytes()].concat();
            let whole = seeds("batch").into_iter().map(|batch| {
                let index = [place(batch.len()), vec![0; page_size() as usize - 16]].concat();
                let info = infos().pop().expect("the last travels whole");
                let head = postcard::to_allocvec(&(info, 0_u64, 1_u64)).expect("plain data encodes");
                [head, index, batch].concat()
            });
            let cut = infos().into_iter().map(|info| {
                let head = postcard::to_allocvec(&(info, 4_u64, 2_u64)).expect("plain data encodes");
                [head, vec![5; 300]].concat()
            });
            whole.chain(cut).collect()
        }
        other => panic!("no target is named {other}"),
    }
}

/// Each message alone, and all of them in a row.
fn framed<M: serde::Serialize>(messages: &[M]) -> Vec<Vec<u8>> {
    let frame = |message: &M| {
        let body = postcard::to_allocvec(message).expect("plain data encodes");
        [&(body.len() as u32).to_le_bytes()[..], &[0], &body].concat()
    };
    let mut all: Vec<Vec<u8>> = messages.iter().map(frame).collect();
    all.push(all.concat());
    all
}

fn nested() -> Structure {
    let class = || Class { module: "loader".into(), name: "Sample".into() };
    Structure(vec![
        Node::Tuple(4),
        Node::Dict(vec![Key::Str("image".into()), Key::Int(3)]),
        Node::Leaf,
        Node::List(2),
        Node::Leaf,
        Node::Leaf,
        Node::NamedTuple(class(), vec!["a".into()]),
        Node::Leaf,
        Node::Dataclass(class(), vec!["b".into()]),
        Node::Leaf,
        Node::Mapping(class(), vec![Key::Str("c".into())]),
        Node::Leaf,
    ])
}

fn boxes() -> Arc<Subclass> {
    let class = |name: &str| Class { module: "torchvision.tv_tensors".into(), name: name.into() };
    let format = Plain::Scalar(Scalar::Member(class("BoundingBoxFormat"), "XYXY".into()));
    let size = Plain::Tuple(vec![Scalar::Int(480), Scalar::Float(640.0_f64.to_bits())]);
    let others = vec![Scalar::Nothing, Scalar::Bool(true), Scalar::Str("soft".into())];
    let attributes = [("format", format), ("canvas_size", size), ("others", Plain::List(others))];
    let attributes = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Arc::new(Subclass { class: class("BoundingBoxes"), attributes })
}

fn infos() -> Vec<RingInfo> {
    let field = |dtype, shape: &[u64]| Field::new(ArrayKind::Torch, dtype, shape.to_vec());
    let fields = vec![
        Field { order: DimOrder::of_strides(&[3, 8, 8], &[1, 24, 3]), ..field(DType::U8, &[3, 8, 8]) },
        Field { subclass: Some(boxes()), ..field(DType::F32, &[4]) },
        field(DType::I64, &[]),
        field(DType::BF16, &[0, 7]),
        field(DType::C128, &[2]),
        field(DType::Bool, &[1, 1]),
    ];
    let cut = Schema::Cut { structure: nested(), fields };
    let bare = Schema::Cut { structure: Structure(vec![Node::Leaf]), fields: vec![field(DType::F64, &[5])] };
    let whole = Schema::Whole { why: "batch[1] is a str, without a batch dimension".into() };
    let info = |schema: Schema, byte_lane| RingInfo {
        generation: 1,
        capacity: 64,
        window: 32,
        byte_lane,
        byte_window: byte_lane / 2,
        is_file: false,
        skips: false,
        replays: false,
        epochs: Some(3),
        source_batch: 8,
        reported: Some(ReportedLength { samples: 64, batch_size: 8 }),
        schema: schema.into(),
    };
    vec![info(cut, 0), info(bare, 0), info(whole, 64 << 10)]
}

fn with_batches(each: impl Fn(&Batch<'_>) -> Vec<u8>) -> Vec<Vec<u8>> {
    let data: Vec<u8> = (0..=255).collect();
    let array = |dtype, shape: &[u64]| {
        let len = len_bytes(dtype, shape).expect("small") as usize;
        Array::new(ArrayKind::Numpy, dtype, shape.to_vec(), &data[..len])
    };
    let plain = vec![
        Leaf::Nothing,
        Leaf::Bool(true),
        Leaf::Int(-5),
        Leaf::BigInt("123456789012345678901234567890".into()),
        Leaf::Float(0.5),
        Leaf::Complex(1.0, -1.0),
        Leaf::Str("a caption".into()),
        Leaf::Bytes(data[..70].into()),
        Leaf::Pickle(vec![1, 2, 3]),
    ];
    let arrays = vec![
        Leaf::Array(Array { order: DimOrder::of_strides(&[2, 3], &[1, 2]), ..array(DType::U8, &[2, 3]) }),
        Leaf::Array(Array { subclass: Some(boxes()), ..array(DType::F32, &[4]) }),
        Leaf::Array(array(DType::I64, &[])),
        Leaf::Array(array(DType::F16, &[0, 9])),
        Leaf::Array(array(DType::C64, &[2, 2])),
        Leaf::Str("label".into()),
    ];
    let flat = Structure([vec![Node::List(9)], vec![Node::Leaf; 9]].concat());
    let batches = [
        Batch { structure: flat, leaves: plain },
        Batch { structure: nested(), leaves: arrays },
        Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array(DType::U8, &[200]))] },
    ];
    batches.iter().map(each).collect()
}
