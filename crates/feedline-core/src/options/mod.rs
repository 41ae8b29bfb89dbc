//! What a user may choose of a server: every option, declared once.
//!
//! A line of the table below is all that makes an option. From it follow the field of [`Options`], the keyword of Python's `Server`,
//! `serve` and `share` with its type and default, the flag of `feedline serve` with its help, the check of what is given, and its name
//! in messages ([`crate::explain`]). Code that uses the value takes it from [`Options`], or, in Python, asks for it by name.
//!
//! `kinds` has the kinds of values, `value` what is given for one, `declare` the macro. `docs/adr/0013-options-and-errors.md` says why.

mod declare;
pub mod kinds;
mod value;

use std::path::PathBuf;
use std::time::Duration;

use feedline_protocol::log::{Lag, MOST_EPOCHS_AHEAD, Policy};
use serde::{Deserialize, Serialize};

pub use self::declare::Declared;
use self::declare::declare;
use self::kinds::{
    DEFAULT_SHARE, File, Folder, Kind, OneOf, OrNone, PORT, Refused, SEED, Secs, ShareOrSize, SizeOrCount, Switch,
    UsersAndGroups, at_least, between,
};
pub use self::kinds::{History, RingSize};
pub use self::value::Value;
use crate::access::Allow;

declare! {
    /// How many epochs; without end if not given
    epochs: Option<u64> = Value::Nothing, OrNone(at_least(1));
    /// The epoch's length in samples, where the loader doesn't know it
    samples: Option<u64> = Value::Nothing, OrNone(at_least(0));
    /// Hand out the first sample once this many consumers have asked for one
    wait_for: u32 = 1, at_least(1);
    /// The ring's size: "512MB", or a number of samples
    ring: Option<RingSize> = Value::Nothing, OrNone(SizeOrCount);
    /// How much to keep for late and slow jobs: a share of the epoch (0.5) or a size ("2GB")
    history: History = DEFAULT_SHARE, ShareOrSize;
    /// A folder for ring and history, where memory isn't enough
    history_dir: Option<PathBuf> = Value::Nothing, Folder;
    /// Load one epoch, and serve it again and again
    replay: bool = false, Switch;
    /// Who waits for whom
    lag: Lag = "block", OneOf(&[
        ("block", "The fastest for the slowest, once the ring is full", Lag::Block),
        ("history", "The fastest for the slowest, once the history is full", Lag::History),
        ("skip", "Nobody: slow jobs lose samples", Lag::Skip),
    ]);
    /// How many epochs the loader may be ahead of the slowest job
    epochs_ahead: u64 = 2, between(0, MOST_EPOCHS_AHEAD);
    /// A file that lets the next server go on in mid-epoch
    state_file: Option<PathBuf> = Value::Nothing, File;
    /// How long a job that stands still may hold up the others
    stall_timeout_secs: Duration = 60.0, Secs { may_be_zero: true };
    /// Warn when the loader has not yielded a batch for this long
    loader_warn_secs: Option<Duration> = 30.0, OrNone(Secs { may_be_zero: false });
    /// Give up when the loader has not yielded a batch for this long
    loader_timeout_secs: Option<Duration> = Value::Nothing, OrNone(Secs { may_be_zero: false });
    /// End this long after the last consumer has left
    linger_secs: Option<Duration> = Value::Nothing, OrNone(Secs { may_be_zero: true });
    /// Make an epoch's order and random draws depend only on this seed and the epoch's number
    seed: Option<u64> = Value::Nothing, OrNone(SEED);
    /// Carry Python objects of other types too, pickled
    allow_pickle: bool = false, Switch;
    /// Hand on the loader's batches as they are, never cut
    whole_batches: bool = false, Switch;
    /// Allow another user, by name or uid, or a group, as @NAME. May be given again
    allow: Allow = Value::List(Vec::new()), UsersAndGroups;
    /// Answer Prometheus on this port of 127.0.0.1
    metrics_port: Option<u16> = Value::Nothing, OrNone(PORT);
    /// Append a line of JSON to this file every few seconds
    metrics_file: Option<PathBuf> = Value::Nothing, File;
}

impl Name {
    /// The option that a keyword is for.
    pub fn of(keyword: &str) -> Option<Self> {
        TABLE.iter().map(|option| option.name).find(|name| name.keyword() == keyword)
    }

    /// On the command line.
    pub fn flag(self) -> String {
        format!("--{}", self.keyword().replace('_', "-"))
    }

    /// How it was declared.
    pub fn declared(self) -> &'static Declared {
        &TABLE[self as usize]
    }
}

impl Options {
    /// Takes what was given for an option.
    pub fn set(&mut self, name: Name, given: &Value) -> Result<(), Refused> {
        (name.declared().set)(self, given)
    }

    /// What happens to samples that some consumers have not read yet.
    pub fn policy(&self) -> Policy {
        Policy { lag: self.lag, replay: self.replay, epochs_ahead: self.epochs_ahead }
    }
}

#[cfg(test)]
mod tests {
    use super::kinds::Form;
    use super::*;

    #[test]
    fn every_option_stands_at_its_name_in_the_table() {
        for (index, option) in TABLE.iter().enumerate() {
            assert_eq!(option.name as usize, index);
            assert_eq!(Name::of(option.name.keyword()), Some(option.name));
            assert!(!option.help.is_empty() && !option.help.ends_with('.'), "{:?}", option.help);
        }
        assert_eq!(Name::of("epochs_behind"), None);
        assert_eq!(Name::epochs_ahead.flag(), "--epochs-ahead");
    }

    #[test]
    fn defaults_can_be_given() {
        let mut options = Options::default();
        for option in TABLE {
            assert_eq!(options.set(option.name, &option.default()), Ok(()), "{:?}", option.name);
        }
    }

    #[test]
    fn what_is_typed_is_what_is_given() {
        for (name, typed, meant) in [
            (Name::epochs, "3", Ok(Value::Int(3))),
            (Name::epochs, "0", Err("give a whole number, 1 or more")),
            (Name::wait_for, "few", Err("give a whole number, 1 or more")),
            (Name::wait_for, "5000000000", Err("give a whole number from 1 to 4294967295")),
            (Name::epochs_ahead, "62", Err("give a whole number from 0 to 61")),
            (Name::ring, "500", Ok(Value::Int(500))),
            (Name::ring, "5x", Err("write \"512MB\", \"2GiB\", or a number of samples")),
            (Name::ring, "99999999999999999999999", Err("write \"512MB\", \"2GiB\", or a number of samples")),
            (Name::history, "0.5", Ok(Value::Float(0.5))),
            (Name::history, "2GB", Ok("2GB".into())),
            (Name::history, "nan", Err("write 0.5 for half of it, 1.0 for all of it, or \"2GB\"")),
            (Name::linger_secs, "-1", Err("give a number of seconds from 0 to 1e9")),
            (Name::linger_secs, "0", Ok(Value::Float(0.0))),
            (Name::linger_secs, "1e9", Ok(Value::Float(1e9))),
            (Name::loader_warn_secs, "0", Err("give a number of seconds greater than 0, up to 1e9")),
            (Name::loader_warn_secs, "inf", Err("give a number of seconds greater than 0, up to 1e9")),
            (Name::metrics_port, "65536", Err("give a number from 0 to 65535; 0 takes any port that is free")),
            (Name::seed, "18446744073709551615", Ok(Value::Int(u64::MAX.into()))),
            (Name::allow, "1001", Ok(Value::Int(1001))),
            (Name::allow, "alice", Ok("alice".into())),
        ] {
            let read = name.declared().read(typed.as_ref()).map_err(|refused| refused.hint);
            assert_eq!(read, meant.map_err(str::to_owned), "{name:?} {typed}");
        }
    }

    #[test]
    fn what_may_be_left_open_is_written_as_its_kind() {
        let lag = OrNone(OneOf(&[("block", "Wait", 1)]));
        assert_eq!(lag.choices(), [("block", "Wait")]);
        assert!(OrNone(Switch).is_switch() && OrNone(UsersAndGroups).repeats());
    }

    #[test]
    fn what_is_given_becomes_an_option_or_is_refused() {
        let mut options = Options::default();
        for (name, given) in [
            (Name::ring, Value::Int(500)),
            (Name::history, "2GB".into()),
            (Name::stall_timeout_secs, Value::Int(3)),
            (Name::loader_warn_secs, Value::Nothing),
            (Name::lag, "skip".into()),
        ] {
            assert_eq!(options.set(name, &given), Ok(()), "{name:?}");
        }
        assert_eq!((options.ring, options.history), (Some(RingSize::Samples(500)), History::Bytes(2_000_000_000)));
        assert_eq!((options.stall_timeout_secs, options.loader_warn_secs), (Duration::from_secs(3), None));
        assert_eq!(options.policy().lag, Lag::Skip);
        for (name, given, why) in [
            (Name::epochs, Value::Int(0), "is too small: it is at least 1"),
            (Name::epochs, Value::Bool(true), "is not a whole number"),
            (Name::epochs, Value::Float(1.0), "is not a whole number"),
            (Name::epochs_ahead, Value::Int(62), "is too large: it is at most 61"),
            (Name::epochs_ahead, Value::Nothing, "is not a whole number"),
            (Name::epochs, Value::Huge("9".repeat(60)), "is too large: it is at most 18446744073709551615"),
            (Name::epochs, Value::Huge(format!("-{}", "9".repeat(60))), "is too small: it is at least 1"),
            (Name::wait_for, Value::Int(5_000_000_000), "is too large: it is at most 4294967295"),
            (Name::seed, Value::Int(1 << 64), "is not a seed"),
            (Name::ring, "512".into(), "has no unit"),
            (Name::history, "512".into(), "is neither a share of the epoch nor a size"),
            (Name::ring, Value::Float(2.5), "is not a whole number"),
            (Name::ring, "0MB".into(), "is not a size"),
            (Name::history, Value::Float(1.5), "is neither a share of the epoch nor a size"),
            (Name::history, Value::Bool(true), "is neither a share of the epoch nor a size"),
            (Name::lag, "wait".into(), "is not one of \"block\", \"history\", \"skip\""),
            (Name::linger_secs, Value::Float(f64::NAN), "is not a time to wait"),
            (Name::history_dir, "/no/such/folder".into(), "is not a folder"),
            (Name::state_file, Value::Int(3), "is not a path"),
            (Name::replay, "yes".into(), "is neither True nor False"),
            (Name::whole_batches, Value::Int(0), "is neither True nor False"),
            (Name::whole_batches, Value::Int(1), "is neither True nor False"),
            (Name::allow_pickle, Value::Nothing, "is neither True nor False"),
        ] {
            assert_eq!(options.set(name, &given).map_err(|refused| refused.why), Err(why.to_owned()), "{name:?}");
        }
    }
}
