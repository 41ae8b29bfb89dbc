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

    /// What was typed. Whether it can be is left to [`Kind::parse`].
    fn read(&self, typed: &str) -> Value {
        typed.into()
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

    /// The number, as far as it is one that a type up to `fits` can hold.
    fn number(&self, given: &Value, fits: u64) -> Result<u64, Refused> {
        let (least, most) = (self.least, self.most.min(fits));
        let (why, hint) = match given.as_whole() {
            None => ("is not a whole number".into(), self.hint()),
            Some(number) => match u64::try_from(number) {
                Ok(number) if (least..=most).contains(&number) => return Ok(number),
                _ if number < i128::from(least) => (format!("is too small: it is at least {least}"), self.hint()),
                _ => (
                    format!("is too large: it is at most {most}"),
                    format!("give a whole number from {least} to {most}"),
                ),
            },
        };
        Err(self.meaning.map_or_else(|| Refused::new(why, hint), |(why, hint)| Refused::new(why, hint)))
    }
}

impl Form for Count {
    fn annotation(&self) -> String {
        "int".into()
    }

    fn placeholder(&self) -> &'static str {
        if self.most == PORT.most { "PORT" } else { "N" }
    }

    fn read(&self, typed: &str) -> Value {
        Value::whole(typed).unwrap_or_else(|| typed.into())
    }
}

macro_rules! counts_of {
    ($($number:ty),*) => {$(
        impl Kind<$number> for Count {
            fn parse(&self, given: &Value) -> Result<$number, Refused> {
                let number = self.number(given, <$number>::MAX.into())?;
                Ok(number.try_into().expect("it was found to fit"))
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

/// Longer than any job runs, and as easily written in Python as on a command line.
const LONGEST_SECS: f64 = 1e9;

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

    fn read(&self, typed: &str) -> Value {
        typed.parse().map_or_else(|_| typed.into(), Value::Float)
    }
}

impl Kind<Duration> for Secs {
    fn parse(&self, given: &Value) -> Result<Duration, Refused> {
        let is_possible = |secs: &f64| (*secs > 0.0 || (*secs == 0.0 && self.may_be_zero)) && *secs <= LONGEST_SECS;
        given.as_number().filter(is_possible).map(Duration::from_secs_f64).ok_or_else(|| {
            let range = if self.may_be_zero { "from 0 to" } else { "greater than 0, up to" };
            Refused::new("is not a time to wait", format!("give a number of seconds {range} {LONGEST_SECS:e}"))
        })
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

    fn is_switch(&self) -> bool {
        self.0.is_switch()
    }

    fn repeats(&self) -> bool {
        self.0.repeats()
    }

    fn choices(&self) -> Vec<(&'static str, &'static str)> {
        self.0.choices()
    }

    fn read(&self, typed: &str) -> Value {
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
