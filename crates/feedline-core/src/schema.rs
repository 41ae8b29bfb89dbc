//! What every batch of a feed looks like, and whether it can be cut into samples.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

use crate::batch::{Array, Batch, Leaf};
use crate::bounded;
use crate::dim_order::DimOrder;
use crate::structure::Structure;
use crate::subclass::Subclass;

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

/// The framework that an array belonged to when the loader yielded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ArrayKind {
    /// `torch.Tensor`.
    Torch,
    /// `numpy.ndarray`.
    Numpy,
    /// `numpy.generic`: an array of no dimensions that stays a scalar.
    NumpyScalar,
}

impl ArrayKind {
    /// Its type, in the structure of a batch that is written down.
    pub fn word(self) -> &'static str {
        if self == Self::Torch { "tensor" } else { "array" }
    }
}

/// One leaf of a batch that can be cut: the same for every sample.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Field {
    /// The framework.
    pub kind: ArrayKind,
    /// The type of the elements.
    pub dtype: DType,
    /// The shape of one sample.
    #[serde(deserialize_with = "bounded::list")]
    pub shape: Vec<u64>,
    /// How its dimensions lie in memory.
    pub order: DimOrder,
    /// Its class, if it is a subclass of a tensor.
    pub subclass: Option<Arc<Subclass>>,
}

impl Field {
    /// A plain field in C order.
    pub fn new(kind: ArrayKind, dtype: DType, shape: Vec<u64>) -> Self {
        Self { kind, dtype, shape, order: DimOrder::default(), subclass: None }
    }

    /// The field that an array of samples makes up. `None` if it has no dimensions.
    fn of(array: &Array<'_>) -> Option<Self> {
        let (_, shape) = array.shape.split_first()?;
        let (order, subclass) = (array.order.of_sample(), array.subclass.clone());
        Some(Self { kind: array.kind, dtype: array.dtype, shape: shape.to_vec(), order, subclass })
    }

    /// Bytes per sample, or `None` if that overflows.
    pub fn stride_bytes(&self) -> Option<u64> {
        len_bytes(self.dtype, &self.shape)
    }

    fn describe(&self) -> String {
        let whose = match (&self.subclass, self.kind) {
            (Some(subclass), _) => format!("a {}.{}", subclass.class.module, subclass.class.name),
            (None, ArrayKind::Torch) => "a torch tensor".into(),
            (None, ArrayKind::Numpy | ArrayKind::NumpyScalar) => "a NumPy array".into(),
        };
        format!("{whose} of {}, shape {} per sample,", self.dtype.name(), shape_text(&self.shape))
    }
}

/// Bytes of an array, or `None` if that overflows.
pub fn len_bytes(dtype: DType, shape: &[u64]) -> Option<u64> {
    // A dimension of 0 doesn't excuse others that no framework could multiply.
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
        /// Which field can't be cut and why, for a consumer that asks for another batch size.
        why: String,
    },
}

fn fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Field>, D::Error> {
    bounded::nested_list(deserializer, |field: &Field| {
        1 + 2 * field.shape.len() + field.subclass.as_ref().map_or(0, |subclass| subclass.weight())
    })
}

/// A batch that doesn't fit what came before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Mismatch(pub String);

impl Schema {
    /// Makes the schema from a feed's first batch.
    pub fn of(batch: &Batch<'_>, whole: bool) -> Self {
        if whole {
            return Self::Whole { why: "its server was told to hand batches on whole".into() };
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
            let (Some(&len), Some(field)) = (array.shape.first(), Field::of(array)) else {
                return Err(format!("{} is a {} of no dimensions", name(), array.dtype.name()));
            };
            match samples {
                Some((first, other)) if first != len => {
                    let other = batch.field_name(other);
                    return Err(format!("{} has {len} entries where {other} has {first}", name()));
                }
                _ => samples = Some((len, index)),
            }
            fields.push(field);
        }
        if fields.is_empty() { Err("the batch holds no tensor or array".into()) } else { Ok(fields) }
    }

    /// How many samples a later batch adds, if it fits.
    pub fn samples_in(&self, batch: &Batch<'_>) -> Result<u64, Mismatch> {
        let Self::Cut { structure, fields } = self else { return Ok(1) };
        if batch.structure != *structure {
            let before: Vec<&str> = fields.iter().map(|field| field.kind.word()).collect();
            let now: Vec<&str> = batch.leaves.iter().map(Leaf::word).collect();
            let place = structure.difference(&batch.structure);
            return Err(Mismatch(format!(
                "the loader changed the structure of its batches{}\n  the first batch was: {}\n  this batch is: {}",
                if place.is_empty() { String::new() } else { format!(", at batch{place}") },
                structure.text(&before),
                batch.structure.text(&now),
            )));
        }
        let mut samples = None;
        for (index, (leaf, field)) in batch.leaves.iter().zip(fields).enumerate() {
            let now = match leaf {
                Leaf::Array(array) => match array.shape.split_first() {
                    Some((&len, shape)) if field.fits(array, shape) => {
                        if let Some(others) = samples.filter(|&samples| samples != len) {
                            let name = batch.field_name(index);
                            return Err(Mismatch(format!(
                                "{name} has {len} samples where the fields before it have {others}"
                            )));
                        }
                        samples = Some(len);
                        continue;
                    }
                    _ => match Field::of(array) {
                        Some(now) if now.describe() == field.describe() => {
                            return Err(Mismatch(field.difference(&now, &batch.field_name(index))));
                        }
                        Some(now) => now.describe(),
                        None => format!("a {} of no dimensions", array.dtype.name()),
                    },
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

    /// A field's bytes in the order of its lane, if a batch has them in another.
    pub(crate) fn reordered(&self, index: usize, array: &Array<'_>) -> Option<Vec<u8>> {
        match self {
            Self::Cut { fields, .. } => fields.get(index)?.reordered(array),
            Self::Whole { .. } => None,
        }
    }

    /// Whether batches of the two schemas can follow each other.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole { .. }, Self::Whole { .. }) => true,
            _ => self == other,
        }
    }

    /// As text, for a person.
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
                let is_sound =
                    |field: &Field| field.stride_bytes().is_some() && field.order.is_sound(field.shape.len());
                structure.is_sound(fields.len()) && fields.iter().all(is_sound)
            }
            Self::Whole { .. } => true,
        }
    }
}

impl Field {
    /// Whether an array's samples, of this shape, are of this kind. Whatever their order in memory, they can be brought into
    /// ours.
    fn fits(&self, array: &Array<'_>, shape: &[u64]) -> bool {
        self.kind == array.kind && self.dtype == array.dtype && self.shape == shape && self.subclass == array.subclass
    }

    /// How two fields of the same type differ.
    fn difference(&self, now: &Self, name: &str) -> String {
        let both = self.subclass.as_ref().zip(now.subclass.as_ref());
        match both.and_then(|(first, now)| first.difference(now)) {
            Some((attribute, first, now)) => {
                format!("{name}.{attribute} was {first} in the first batch and is {now} now")
            }
            None => format!("{name} is not what it was in the first batch"),
        }
    }

    /// An array's bytes in the order of the lane, if they aren't already.
    pub(crate) fn reordered(&self, array: &Array<'_>) -> Option<Vec<u8>> {
        if self.order.is_sample_of(&array.order) {
            return None;
        }
        let item = self.dtype.len_bytes() as usize;
        Some(array.order.reordered(&self.order.of_batch(), &array.shape, item, &array.data.to_vec()))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::structure::{Class, Node};
    use crate::subclass::{Plain, Scalar};

    const SHAPE: [u64; 4] = [2, 3, 4, 5];

    fn image(order: DimOrder, bytes: &[u8]) -> Array<'_> {
        Array { order, ..Array::new(ArrayKind::Torch, DType::U8, SHAPE.to_vec(), bytes) }
    }

    fn batch(array: Array<'_>) -> Batch<'_> {
        Batch { structure: Structure(vec![Node::Leaf]), leaves: vec![Leaf::Array(array)] }
    }

    fn channels_last() -> DimOrder {
        DimOrder::of_strides(&SHAPE, &[60, 1, 15, 3])
    }

    #[test]
    fn a_batch_in_the_lanes_order_is_copied_as_it_lies() {
        let bytes: Vec<u8> = (0..120).collect();
        for order in [DimOrder::default(), channels_last()] {
            let schema = Schema::of(&batch(image(order.clone(), &bytes)), false);
            assert_eq!(schema.reordered(0, &image(order, &bytes)), None);
        }
    }

    #[test]
    fn a_batch_in_another_order_is_brought_into_the_lanes() {
        let bytes: Vec<u8> = (0..120).collect();
        let schema = Schema::of(&batch(image(channels_last(), &bytes)), false);
        let plain = image(DimOrder::default(), &bytes);
        assert_eq!(schema.samples_in(&batch(plain.clone())), Ok(2));
        let moved = schema.reordered(0, &plain).unwrap();
        assert_eq!(moved[..6], [0, 20, 40, 1, 21, 41], "three channels of a pixel, then of the next");
    }

    #[test]
    fn an_attribute_that_changes_is_named_with_both_values() {
        let bytes = [0; 120];
        let boxes = |width| {
            let class = Class { module: "tv".into(), name: "Boxes".into() };
            let size = Plain::Tuple(vec![Scalar::Int(4), Scalar::Int(width)]);
            let subclass = Some(Arc::new(Subclass { class, attributes: vec![("size".into(), size)] }));
            batch(Array { subclass, ..image(DimOrder::default(), &bytes) })
        };
        let schema = Schema::of(&boxes(5), false);
        assert_eq!(schema.samples_in(&boxes(5)), Ok(2));
        let Mismatch(text) = schema.samples_in(&boxes(6)).unwrap_err();
        assert_eq!(text, "batch.size was (4, 5) in the first batch and is (4, 6) now");
        let Mismatch(text) = schema.samples_in(&batch(image(DimOrder::default(), &bytes))).unwrap_err();
        assert!(text.contains("a tv.Boxes of uint8") && text.contains("is a torch tensor"), "{text}");
    }

    #[test]
    fn a_peers_order_that_is_none_is_refused() {
        let field = |order| Field { order, ..Field::new(ArrayKind::Torch, DType::U8, SHAPE[1..].to_vec()) };
        let cut = |order| Schema::Cut { structure: Structure(vec![Node::Leaf]), fields: vec![field(order)] };
        assert!(cut(channels_last().of_sample()).is_sound());
        assert!(!cut(channels_last()).is_sound(), "four dimensions where a sample has three");
    }
}
