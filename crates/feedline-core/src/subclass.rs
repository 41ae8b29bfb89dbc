//! What a tensor is besides its elements: its class, where that is a subclass, and the plain values that it carries.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::bounded;
use crate::structure::Class;

/// A subclass of `torch.Tensor`, and the attributes of one instance: `BoundingBoxes` with its format and its canvas size.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Subclass {
    /// Where it can be imported from.
    pub class: Class,
    /// What `vars()` of an instance has.
    #[serde(deserialize_with = "attributes")]
    pub attributes: Vec<(String, Plain)>,
}

/// A value that needs no code to be rebuilt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Plain {
    /// One.
    Scalar(Scalar),
    /// A `tuple` of them.
    Tuple(#[serde(deserialize_with = "bounded::list")] Vec<Scalar>),
    /// A `list` of them.
    List(#[serde(deserialize_with = "bounded::list")] Vec<Scalar>),
}

/// A value without parts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Scalar {
    /// `None`.
    Nothing,
    /// A bool.
    Bool(bool),
    /// An int that fits.
    Int(i64),
    /// A float, by its bits.
    Float(u64),
    /// A str.
    Str(String),
    /// A member of an enumeration, by its name.
    Member(Class, String),
}

fn attributes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<(String, Plain)>, D::Error> {
    bounded::nested_list(deserializer, |(_, value)| 1 + value.len())
}

impl Plain {
    fn len(&self) -> usize {
        match self {
            Self::Scalar(_) => 1,
            Self::Tuple(parts) | Self::List(parts) => parts.len(),
        }
    }
}

impl Subclass {
    /// How many entries it has, for the count of a peer's lists.
    pub(crate) fn weight(&self) -> usize {
        1 + self.attributes.iter().map(|(_, value)| 1 + value.len()).sum::<usize>()
    }

    /// The first attribute in which another one of the same class differs: its name, and both values.
    pub(crate) fn difference<'a>(&'a self, other: &'a Self) -> Option<(&'a str, String, String)> {
        let get = |of: &Self, name: &str| {
            let found = of.attributes.iter().find(|(own, _)| own == name);
            found.map_or_else(|| "missing".into(), |(_, value)| value.to_string())
        };
        let names = self.attributes.iter().chain(&other.attributes).map(|(name, _)| name.as_str());
        names.map(|name| (name, get(self, name), get(other, name))).find(|(_, own, others)| own != others)
    }
}

impl fmt::Display for Plain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |parts: &[Scalar]| parts.iter().map(Scalar::to_string).collect::<Vec<_>>().join(", ");
        match self {
            Self::Scalar(scalar) => scalar.fmt(f),
            Self::Tuple(parts) if parts.len() == 1 => write!(f, "({},)", list(parts)),
            Self::Tuple(parts) => write!(f, "({})", list(parts)),
            Self::List(parts) => write!(f, "[{}]", list(parts)),
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("None"),
            Self::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
            Self::Int(value) => value.fmt(f),
            Self::Float(bits) => write!(f, "{:?}", f64::from_bits(*bits)),
            Self::Str(text) => write!(f, "{text:?}"),
            Self::Member(class, name) => write!(f, "{}.{name}", class.name),
        }
    }
}
