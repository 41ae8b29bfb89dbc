//! A batch on its way into the log ([`Batch`]) and out of it ([`Received`]).

use std::sync::Arc;

use feedline_ring::Window;

use crate::schema::{ArrayKind, DType};
use crate::structure::Structure;

/// What a source yields: borrowed bytes, described.
#[derive(Clone, Debug)]
pub struct Batch<'a> {
    /// The nesting.
    pub structure: Structure,
    /// One for each leaf of it.
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
    Bytes(&'a [u8]),
    /// Any object, pickled, where both sides allowed it.
    Pickle(Vec<u8>),
}

/// A dense array in C order.
#[derive(Clone, Debug)]
pub struct Array<'a> {
    /// Whose.
    pub kind: ArrayKind,
    /// Of what.
    pub dtype: DType,
    /// With its batch dimension, if it has one.
    pub shape: Vec<u64>,
    /// Its elements.
    pub data: &'a [u8],
}

impl Leaf<'_> {
    /// As an error names it.
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
    /// One for each leaf of it.
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
