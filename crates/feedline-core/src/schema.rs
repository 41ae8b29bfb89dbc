//! What every batch of a feed looks like, and whether it can be cut into samples.

use serde::{Deserialize, Deserializer, Serialize};

use crate::batch::{Batch, Leaf};
use crate::bounded;
use crate::structure::Structure;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names say it")]
pub enum DType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
    C64,
    C128,
}

impl DType {
    /// How long an element is.
    pub fn len_bytes(self) -> u64 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::C64 => 8,
            Self::C128 => 16,
        }
    }

    /// Its name in NumPy and torch.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "int8",
            Self::I16 => "int16",
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U8 => "uint8",
            Self::U16 => "uint16",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
            Self::F16 => "float16",
            Self::BF16 => "bfloat16",
            Self::F32 => "float32",
            Self::F64 => "float64",
            Self::C64 => "complex64",
            Self::C128 => "complex128",
        }
    }
}

/// Whose array it was when the loader yielded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ArrayKind {
    /// `torch.Tensor`.
    Torch,
    /// `numpy.ndarray`.
    Numpy,
    /// `numpy.generic`: an array of no dimensions that stays a scalar.
    NumpyScalar,
}

/// One leaf of a batch that can be cut: the same for every sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// Whose array.
    pub kind: ArrayKind,
    /// Of what.
    pub dtype: DType,
    /// The shape of one sample.
    #[serde(deserialize_with = "bounded::list")]
    pub shape: Vec<u64>,
}

impl Field {
    /// Bytes per sample, or `None` if that overflows.
    pub fn stride_bytes(&self) -> Option<u64> {
        len_bytes(self.dtype, &self.shape)
    }

    fn describe(&self) -> String {
        let whose = match self.kind {
            ArrayKind::Torch => "a torch tensor",
            ArrayKind::Numpy | ArrayKind::NumpyScalar => "a NumPy array",
        };
        format!("{whose} of {}, shape {} per sample,", self.dtype.name(), shape_text(&self.shape))
    }
}

/// Bytes of an array, or `None` if that overflows.
pub fn len_bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    // A dimension of 0 doesn't excuse others that no framework could count with.
    let most = shape.iter().try_fold(dtype.len_bytes(), |product, &dim| product.checked_mul(dim.max(1)))?;
    let len = if shape.contains(&0) { 0 } else { most };
    (most < 1 << 63 && len < 1 << 45).then_some(len)
}

/// How a feed's batches are laid out in the ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Schema {
    /// Every leaf has a batch dimension and a constant shape behind it: any batch size can be cut.
    Cut {
        /// The nesting.
        structure: Structure,
        /// One for each leaf.
        #[serde(deserialize_with = "fields")]
        fields: Vec<Field>,
    },
    /// Batches travel whole; each describes itself.
    Whole {
        /// Which field can't be cut and why, for whoever asks for another batch size.
        why: String,
    },
}

fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Field>, D::Error> {
    bounded::weighed(deserializer, |field: &Field| 1 + field.shape.len())
}

/// A batch that doesn't fit what came before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl Schema {
    /// Looks at a feed's first batch.
    pub fn of(batch: &Batch<'_>, whole: bool) -> Self {
        if whole {
            return Self::Whole { why: "the server was started with whole_batches=True".into() };
        }
        match Self::cuttable(batch) {
            Ok(fields) => Self::Cut { structure: batch.structure.clone(), fields },
            Err(why) => Self::Whole { why },
        }
    }

    fn cuttable(batch: &Batch<'_>) -> Result<Vec<Field>, String> {
        let mut fields = Vec::with_capacity(batch.leaves.len());
        let mut samples: Option<(u64, usize)> = None;
        for (index, leaf) in batch.leaves.iter().enumerate() {
            let name = || batch.field_name(index);
            let Leaf::Array(array) = leaf else {
                return Err(format!("{} is {}, without a batch dimension", name(), leaf.type_name()));
            };
            let Some((&len, shape)) = array.shape.split_first() else {
                return Err(format!("{} is a {} of no dimensions", name(), array.dtype.name()));
            };
            match samples {
                Some((first, other)) if first != len => {
                    let other = batch.field_name(other);
                    return Err(format!("{} has {len} entries where {other} has {first}", name()));
                }
                _ => samples = Some((len, index)),
            }
            fields.push(Field { kind: array.kind, dtype: array.dtype, shape: shape.to_vec() });
        }
        if fields.is_empty() { Err("the batch holds no tensor or array".into()) } else { Ok(fields) }
    }

    /// How many samples a later batch adds, if it fits.
    pub fn samples_in(&self, batch: &Batch<'_>) -> Result<u64, Mismatch> {
        let Self::Cut { structure, fields } = self else { return Ok(1) };
        if batch.structure != *structure {
            return Err(Mismatch(format!(
                "the loader changed the structure of its batches: first {}, now {}",
                list(&structure.paths()),
                list(&batch.structure.paths()),
            )));
        }
        let mut samples = None;
        for (index, (leaf, field)) in batch.leaves.iter().zip(fields).enumerate() {
            let now = match leaf {
                Leaf::Array(array) => match array.shape.split_first() {
                    Some((&len, shape)) if field.fits(array.kind, array.dtype, shape) => {
                        if let Some(others) = samples.filter(|&samples| samples != len) {
                            let name = batch.field_name(index);
                            return Err(Mismatch(format!(
                                "{name} has {len} samples where the fields before it have {others}"
                            )));
                        }
                        samples = Some(len);
                        continue;
                    }
                    Some((_, shape)) => {
                        Field { kind: array.kind, dtype: array.dtype, shape: shape.to_vec() }.describe()
                    }
                    None => format!("a {} of no dimensions", array.dtype.name()),
                },
                other => other.type_name().to_owned(),
            };
            let name = batch.field_name(index);
            return Err(Mismatch(format!(
                "{name} was {} in the first batch and is {} now",
                field.describe(),
                now.trim_end_matches(',')
            )));
        }
        Ok(samples.unwrap_or(0))
    }

    /// Whether batches of the two can follow each other.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole { .. }, Self::Whole { .. }) => true,
            _ => self == other,
        }
    }

    /// For a person.
    pub(crate) fn describe(&self) -> String {
        match self {
            Self::Whole { .. } => "whole batches".into(),
            Self::Cut { structure, fields } => {
                let fields = structure.paths().into_iter().zip(fields);
                list(&fields.map(|(path, field)| format!("{path}: {}", field.describe())).collect::<Vec<_>>())
            }
        }
    }

    /// Whether a peer's schema is consistent in itself.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Cut { structure, fields } => {
                structure.is_sound(fields.len()) && fields.iter().all(|field| field.stride_bytes().is_some())
            }
            Self::Whole { .. } => true,
        }
    }
}

impl Field {
    fn fits(&self, kind: ArrayKind, dtype: DType, shape: &[u64]) -> bool {
        self.kind == kind && self.dtype == dtype && self.shape == shape
    }
}

fn shape_text(shape: &[u64]) -> String {
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    match dims.as_slice() {
        [one] => format!("({one},)"),
        _ => format!("({})", dims.join(", ")),
    }
}

fn list(paths: &[String]) -> String {
    const SHOWN: usize = 8;
    let mut shown: Vec<String> = paths.iter().take(SHOWN).map(|path| format!("batch{path}")).collect();
    if paths.len() > SHOWN {
        shown.push(format!("… ({} in all)", paths.len()));
    }
    shown.join(", ")
}
