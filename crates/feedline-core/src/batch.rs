//! A batch on its way into the log ([`Batch`]) and out of it ([`Received`]).

use std::sync::Arc;

use feedline_shm::{SourceBytes, Window};

use crate::dim_order::DimOrder;
use crate::schema::{ArrayKind, DType};
use crate::structure::Structure;
use crate::subclass::Subclass;

/// What a source yields: borrowed bytes, described.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The nesting.
    pub structure: Structure,
    /// One for each leaf of the structure.
    pub leaves: Vec<Leaf<'a>>,
}

/// One leaf of a batch.
#[derive(Clone, Debug)]
pub enum Leaf<'a> {
    /// A tensor or an array.
    Array(Array<'a>),
    /// `None`.
    Nothing,
    /// A Python bool.
    Bool(bool),
    /// A Python int that fits.
    Int(i64),
    /// A Python int that doesn't, in decimal.
    BigInt(String),
    /// A Python float.
    Float(f64),
    /// A Python complex.
    Complex(f64, f64),
    /// A Python str.
    Str(String),
    /// A Python bytes.
    Bytes(SourceBytes<'a>),
    /// Any object, pickled, where both sides allowed it.
    Pickle(Vec<u8>),
}

/// An array without gaps.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// The framework that it belongs to.
    pub kind: ArrayKind,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape, with the batch dimension if it has one.
    pub shape: Vec<u64>,
    /// How its dimensions lie in memory.
    pub order: DimOrder,
    /// Its class, if it is a subclass of a tensor.
    pub subclass: Option<Arc<Subclass>>,
    /// Its elements.
    pub data: SourceBytes<'a>,
}

impl<'a> Array<'a> {
    /// A plain array in C order.
    pub fn new(kind: ArrayKind, dtype: DType, shape: Vec<u64>, data: impl Into<SourceBytes<'a>>) -> Self {
        Self { kind, dtype, shape, order: DimOrder::default(), subclass: None, data: data.into() }
    }
}

impl Leaf<'_> {
    /// The type, as an error names it.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Array(_) => "an array",
            Self::Nothing => "None",
            Self::Bool(_) => "a bool",
            Self::Int(_) | Self::BigInt(_) => "an int",
            Self::Float(_) => "a float",
            Self::Complex(..) => "a complex",
            Self::Str(_) => "a str",
            Self::Bytes(_) => "bytes",
            Self::Pickle(_) => "a Python object",
        }
    }

    /// The type, in the structure of a batch that is written down.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Array(array) => array.kind.word(),
            other => other.type_name().trim_start_matches("a ").trim_start_matches("an "),
        }
    }
}

impl Batch<'_> {
    /// A leaf's name for a message: `batch["image"]`.
    pub fn field_name(&self, index: usize) -> String {
        format!("batch{}", self.structure.paths().get(index).map_or("", String::as_str))
    }
}

/// What a consumer gets.
#[derive(Debug)]
pub struct Received {
    /// The nesting.
    pub structure: Arc<Structure>,
    /// One for each leaf of the structure.
    pub values: Vec<Value>,
}

/// One leaf of a received batch.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the same as in `Leaf`")]
pub enum Value {
    /// A tensor or an array, in place.
    Array {
        kind: ArrayKind,
        dtype: DType,
        shape: Vec<u64>,
        order: DimOrder,
        subclass: Option<Arc<Subclass>>,
        window: Window,
    },
    Nothing,
    Bool(bool),
    Int(i64),
    BigInt(String),
    Float(f64),
    Complex(f64, f64),
    Str(String),
    Bytes(Window),
    Pickle(Window),
}
