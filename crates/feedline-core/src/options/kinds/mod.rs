//! The kinds of values that options have: how one is written in Python and typed on a command line, and what can't be one.
//!
//! A kind knows no option: its caller adds the option's name to what it says.

mod paths;
mod sizes;
mod users;

use std::time::Duration;

pub use self::paths::{File, Folder};
pub use self::sizes::{DEFAULT_SHARE, History, RingSize, ShareOrSize, SizeOrCount};
pub use self::users::UsersAndGroups;
use super::Value;

/// Why a value can't be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// What is wrong with it; goes on after the value.
    pub why: String,
    /// What to give instead.
    pub hint: String,
    /// Whether `None` would do as well.
    pub or_none: bool,
}

impl Refused {
    fn new(why: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { why: why.into(), hint: hint.into(), or_none: false }
    }
}

/// How values of a kind are written.
pub trait Form: Sync {
    /// The type, as an annotation in Python.
    fn annotation(&self) -> String;

    /// What `--help` calls the value. Empty: the option's own name.
    fn placeholder(&self) -> &'static str {
        ""
    }

    /// Whether the hint for a wrong value names `None` too, where that may be given.
    fn suggests_none(&self) -> bool {
        false
    }

    /// Whether the flag alone says it all.
    fn is_switch(&self) -> bool {
        false
    }

    /// Whether the flag may be given again.
    fn repeats(&self) -> bool {
        false
    }

    /// All possible values, with what each means, where they can be counted.
    fn choices(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// What was typed; an error is what to type instead. What can't be told from the text alone is left to [`Kind::parse`].
    fn read(&self, typed: &str) -> Result<Value, String> {
        Ok(typed.into())
    }
}

/// A kind of values that become a `T`.
pub trait Kind<T>: Form {
    /// The value that is meant.
    fn parse(&self, given: &Value) -> Result<T, Refused>;
}

/// True or false.
pub struct Switch;

impl Form for Switch {
    fn annotation(&self) -> String {
        "bool".into()
    }

    fn is_switch(&self) -> bool {
        true
    }
}

impl Kind<bool> for Switch {
    fn parse(&self, given: &Value) -> Result<bool, Refused> {
        match given {
            Value::Bool(value) => Ok(*value),
            _ => Err(Refused::new("is neither True nor False", "give one of them")),
        }
    }
}

/// A whole number.
pub struct Count {
    /// The smallest.
    pub least: u64,
    /// The largest.
    pub most: u64,
    /// What a number is, and what is said of another, where that isn't plain from the range.
    pub meaning: Option<(&'static str, &'static str)>,
}

/// How many: so many or more.
pub const fn at_least(least: u64) -> Count {
    Count { least, most: u64::MAX, meaning: None }
}

/// How many: from so many to so many.
pub const fn between(least: u64, most: u64) -> Count {
    Count { least, most, meaning: None }
}

/// A port of this machine.
pub const PORT: Count = Count {
    least: 0,
    most: 65535,
    meaning: Some(("is not a port", "give a number from 0 to 65535; 0 takes any port that is free")),
};

/// A seed for random generators.
pub const SEED: Count = Count {
    least: 0,
    most: u64::MAX,
    meaning: Some(("is not a seed", "give a whole number from 0 to 18446744073709551615")),
};

impl Count {
    fn hint(&self) -> String {
        match (self.meaning, self.most) {
            (Some((_, hint)), _) => hint.into(),
            (None, u64::MAX) => format!("give a whole number, {} or more", self.least),
            (None, most) => format!("give a whole number from {} to {most}", self.least),
        }
    }

    fn number(&self, given: &Value) -> Result<u64, Refused> {
        let refused = |why: String| {
            let why = self.meaning.map_or(why, |(why, _)| why.into());
            Err(Refused::new(why, self.hint()))
        };
        let Value::Int(number) = given else { return refused("is not a whole number".into()) };
        match u64::try_from(*number) {
            Ok(number) if (self.least..=self.most).contains(&number) => Ok(number),
            _ if *number < i128::from(self.least) => refused(format!("is too small: it is at least {}", self.least)),
            _ => refused(format!("is too large: it is at most {}", self.most)),
        }
    }
}

impl Form for Count {
    fn annotation(&self) -> String {
        "int".into()
    }

    fn placeholder(&self) -> &'static str {
        if self.most == PORT.most { "PORT" } else { "N" }
    }

    fn read(&self, typed: &str) -> Result<Value, String> {
        let value = typed.parse().map(Value::Int).map_err(|_| self.hint())?;
        self.number(&value).map_err(|_| self.hint())?;
        Ok(value)
    }
}

macro_rules! counts_of {
    ($($number:ty),*) => {$(
        impl Kind<$number> for Count {
            fn parse(&self, given: &Value) -> Result<$number, Refused> {
                let number = self.number(given)?;
                number.try_into().map_err(|_| Refused::new("is too large", self.hint()))
            }
        }
    )*};
}

counts_of!(u16, u32, u64);

/// A time, in seconds.
pub struct Secs {
    /// Whether it may be no time at all.
    pub may_be_zero: bool,
}

impl Secs {
    fn range(&self) -> &'static str {
        if self.may_be_zero { ", 0 or more" } else { " greater than 0" }
    }
}

impl Form for Secs {
    fn annotation(&self) -> String {
        "float".into()
    }

    fn placeholder(&self) -> &'static str {
        "SECS"
    }

    fn suggests_none(&self) -> bool {
        true
    }

    fn read(&self, typed: &str) -> Result<Value, String> {
        let value = typed.parse().map_or_else(|_| typed.into(), Value::Float);
        match self.parse(&value) {
            Ok(_) => Ok(value),
            Err(_) => Err(format!("give a number{}", self.range())),
        }
    }
}

impl Kind<Duration> for Secs {
    fn parse(&self, given: &Value) -> Result<Duration, Refused> {
        let secs = match given {
            Value::Int(number) => *number as f64,
            Value::Float(number) => *number,
            _ => f64::NAN,
        };
        let is_fine = (secs > 0.0 || (secs == 0.0 && self.may_be_zero)) && secs < 1e9;
        Some(secs)
            .filter(|_| is_fine)
            .and_then(|secs| Duration::try_from_secs_f64(secs).ok())
            .ok_or_else(|| Refused::new("is not a time to wait", format!("give a number of seconds{}", self.range())))
    }
}

/// What may also be left open.
pub struct OrNone<K>(pub K);

impl<K: Form> Form for OrNone<K> {
    fn annotation(&self) -> String {
        format!("{} | None", self.0.annotation())
    }

    fn placeholder(&self) -> &'static str {
        self.0.placeholder()
    }

    fn read(&self, typed: &str) -> Result<Value, String> {
        self.0.read(typed)
    }
}

impl<T, K: Kind<T>> Kind<Option<T>> for OrNone<K> {
    fn parse(&self, given: &Value) -> Result<Option<T>, Refused> {
        match given {
            Value::Nothing => Ok(None),
            given => {
                let or_none = self.0.suggests_none();
                self.0.parse(given).map(Some).map_err(|refused| Refused { or_none, ..refused })
            }
        }
    }
}

/// One of a few words: each with what it means, and what it stands for.
pub struct OneOf<T: 'static>(pub &'static [(&'static str, &'static str, T)]);

impl<T> OneOf<T> {
    fn words(&self) -> String {
        self.0.iter().map(|(word, ..)| format!("{word:?}")).collect::<Vec<_>>().join(", ")
    }
}

impl<T: Sync> Form for OneOf<T> {
    fn annotation(&self) -> String {
        format!("Literal[{}]", self.words())
    }

    fn choices(&self) -> Vec<(&'static str, &'static str)> {
        self.0.iter().map(|&(word, meaning, _)| (word, meaning)).collect()
    }
}

impl<T: Copy + Sync> Kind<T> for OneOf<T> {
    fn parse(&self, given: &Value) -> Result<T, Refused> {
        let found = self.0.iter().find(|(word, ..)| matches!(given, Value::Text(text) if text == word));
        found.map(|&(.., meant)| meant).ok_or_else(|| Refused::new(format!("is not one of {}", self.words()), ""))
    }
}
