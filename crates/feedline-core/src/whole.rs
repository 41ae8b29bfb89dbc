//! A batch that describes itself: a header, then its arrays, each aligned.
//!
//! ```text
//! ▕ header length: u32 ▏ header (postcard) ▏ pad ▏ array ▏ pad ▏ array ▏ …
//! ```

use std::sync::Arc;

use feedline_protocol::log::ALIGN_BYTES;
use feedline_shm::{SourceBytes, Window};
use serde::{Deserialize, Deserializer, Serialize};

use crate::batch::{Batch, Leaf, Received, Value};
use crate::bounded;
use crate::dim_order::DimOrder;
use crate::schema::{ArrayKind, DType, len_bytes};
use crate::structure::Structure;
use crate::subclass::Subclass;

#[derive(Debug, Serialize, Deserialize)]
struct Header {
    structure: Structure,
    #[serde(deserialize_with = "entries")]
    leaves: Vec<Entry>,
}

fn entries<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Entry>, D::Error> {
    bounded::nested_list(deserializer, |entry| match entry {
        Entry::Array { shape, subclass, .. } => {
            1 + 2 * shape.len() + subclass.as_ref().map_or(0, |class| class.weight())
        }
        _ => 1,
    })
}

#[derive(Debug, Serialize, Deserialize)]
enum Entry {
    Array {
        kind: ArrayKind,
        dtype: DType,
        #[serde(deserialize_with = "bounded::list")]
        shape: Vec<u64>,
        order: DimOrder,
        subclass: Option<Arc<Subclass>>,
        offset: u64,
    },
    Nothing,
    Bool(bool),
    Int(i64),
    BigInt(String),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    Bytes {
        offset: u64,
        len: u64,
    },
    Pickle {
        offset: u64,
        len: u64,
    },
}

/// A batch ready to be written: its header, and what goes where behind it.
pub struct Encoded<'a> {
    head: Vec<u8>,
    parts: Vec<(u64, SourceBytes<'a>)>,
    len_bytes: u64,
}

impl<'a> Encoded<'a> {
    /// Lays out a batch. Offsets are relative to the end of the header, so that the header's length doesn't matter.
    pub fn new(batch: &'a Batch<'_>) -> Self {
        let mut parts = Vec::new();
        let mut end = 0_u64;
        let mut place = |bytes: SourceBytes<'a>| {
            let offset = end.next_multiple_of(ALIGN_BYTES);
            parts.push((offset, bytes));
            end = offset + bytes.len() as u64;
            offset
        };
        let leaves = batch.leaves.iter().map(|leaf| match leaf {
            Leaf::Array(array) => Entry::Array {
                kind: array.kind,
                dtype: array.dtype,
                shape: array.shape.clone(),
                order: array.order.clone(),
                subclass: array.subclass.clone(),
                offset: place(array.data),
            },
            Leaf::Nothing => Entry::Nothing,
            Leaf::Bool(value) => Entry::Bool(*value),
            Leaf::Int(value) => Entry::Int(*value),
            Leaf::BigInt(value) => Entry::BigInt(value.clone()),
            Leaf::Float(value) => Entry::Float(*value),
            Leaf::Complex(re, im) => Entry::Complex(*re, *im),
            Leaf::Str(value) => Entry::Str(value.clone()),
            Leaf::Bytes(bytes) => Entry::Bytes { offset: place(*bytes), len: bytes.len() as u64 },
            Leaf::Pickle(bytes) => Entry::Pickle { offset: place(bytes.into()), len: bytes.len() as u64 },
        });
        let header = Header { structure: batch.structure.clone(), leaves: leaves.collect() };
        let mut head = vec![0; 4];
        head = postcard::to_extend(&header, head).expect("a header of plain data encodes");
        let header_len = u32::try_from(head.len() - 4).expect("headers are far smaller than 4 GB");
        head[..4].copy_from_slice(&header_len.to_le_bytes());
        let base = (head.len() as u64).next_multiple_of(ALIGN_BYTES);
        for (offset, _) in &mut parts {
            *offset += base;
        }
        Self { head, parts, len_bytes: base + end }
    }

    /// All of it.
    pub fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    /// Where to write what, from the batch's beginning.
    pub fn pieces(&self) -> impl Iterator<Item = (u64, SourceBytes<'_>)> {
        std::iter::once((0, (&self.head).into())).chain(self.parts.iter().copied())
    }
}

/// Reads a batch back. `None` if it isn't consistent.
///
/// The header is read from a copy of its own: a server that writes where it must not can't change it between two looks.
pub fn decode(window: &Window) -> Option<Received> {
    let header_len = u32::from_le_bytes(window.copy(0, 4)?.try_into().ok()?) as usize;
    let header: Header = postcard::from_bytes(&window.copy(4, header_len)?).ok()?;
    if !header.structure.is_sound(header.leaves.len()) {
        return None;
    }
    let base = (4 + header_len as u64).next_multiple_of(ALIGN_BYTES);
    let part = |offset: u64, len: u64| {
        let start = base.checked_add(offset)?;
        let inside = start.checked_add(len)? <= window.len_bytes() as u64;
        inside.then(|| window.part(start as usize, len as usize))
    };
    let value = |entry: Entry| {
        Some(match entry {
            Entry::Array { kind, dtype, shape, order, subclass, offset } => {
                let window = part(offset, len_bytes(dtype, &shape)?)?;
                order.is_sound(shape.len()).then_some(Value::Array { kind, dtype, shape, order, subclass, window })?
            }
            Entry::Nothing => Value::Nothing,
            Entry::Bool(value) => Value::Bool(value),
            Entry::Int(value) => Value::Int(value),
            Entry::BigInt(value) => Value::BigInt(value),
            Entry::Float(value) => Value::Float(value),
            Entry::Complex(re, im) => Value::Complex(re, im),
            Entry::Str(value) => Value::Str(value),
            Entry::Bytes { offset, len } => Value::Bytes(part(offset, len)?),
            Entry::Pickle { offset, len } => Value::Pickle(part(offset, len)?),
        })
    };
    let values = header.leaves.into_iter().map(value).collect::<Option<_>>()?;
    Some(Received { structure: Arc::new(header.structure), values })
}
