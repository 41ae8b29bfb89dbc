//! Sizes: of a ring, and of what is kept behind it.

use super::{Form, Kind, Refused, at_least};
use crate::limits::parse_size;
use crate::options::Value;

/// How large a ring is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingSize {
    /// Bytes.
    Bytes(u64),
    /// Samples (batches, where they travel whole).
    Samples(u64),
}

/// A size, or a number of samples.
pub struct SizeOrCount;

impl Form for SizeOrCount {
    fn annotation(&self) -> String {
        "str | int".into()
    }

    fn placeholder(&self) -> &'static str {
        "SIZE"
    }

    fn read(&self, typed: &str) -> Value {
        Value::whole(typed).unwrap_or_else(|| typed.into())
    }
}

impl Kind<RingSize> for SizeOrCount {
    fn parse(&self, given: &Value) -> Result<RingSize, Refused> {
        let hint = "write \"512MB\", \"2GiB\", or a number of samples";
        match given {
            // On a command line it would be a number of samples.
            Value::Text(text) if Value::whole(text.trim()).is_some() => {
                let number = text.trim();
                let hint = format!("write {number} without quotes for so many samples, or \"{number}MB\" for a size");
                Err(Refused::new("has no unit", hint))
            }
            Value::Text(text) => size(text).map(RingSize::Bytes).ok_or_else(|| Refused::new("is not a size", hint)),
            given => {
                let count = at_least(1).number(given, u64::MAX);
                count.map(RingSize::Samples).map_err(|refused| Refused { hint: hint.into(), ..refused })
            }
        }
    }
}

/// A size with its unit.
fn size(text: &str) -> Option<u64> {
    parse_size(text).filter(|_| text.trim_end().ends_with(|letter: char| letter.is_ascii_alphabetic()))
}

/// How much of an epoch is kept behind the ring, for those who come late or are slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum History {
    /// A little, and never much memory.
    Default,
    /// A share of the epoch.
    Share(f64),
    /// Bytes.
    Bytes(u64),
}

/// What [`History::Default`] keeps, as far as the memory allows.
pub const DEFAULT_SHARE: f64 = 0.02;

/// A share of the epoch, or a size.
pub struct ShareOrSize;

impl Form for ShareOrSize {
    fn annotation(&self) -> String {
        "float | str".into()
    }

    fn placeholder(&self) -> &'static str {
        "SHARE|SIZE"
    }

    fn read(&self, typed: &str) -> Value {
        typed.parse().map_or_else(|_| typed.into(), Value::Float)
    }
}

impl Kind<History> for ShareOrSize {
    fn parse(&self, given: &Value) -> Result<History, Refused> {
        let meant = match (given, given.as_number()) {
            (Value::Text(text), _) => size(text).map(History::Bytes),
            (_, Some(share)) if share == DEFAULT_SHARE => Some(History::Default),
            (_, Some(share)) if (0.0..=1.0).contains(&share) => Some(History::Share(share)),
            _ => None,
        };
        meant.ok_or_else(|| {
            let hint = "write 0.5 for half of it, 1.0 for all of it, or \"2GB\"";
            Refused::new("is neither a share of the epoch nor a size", hint)
        })
    }
}
