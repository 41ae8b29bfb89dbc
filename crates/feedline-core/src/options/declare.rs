//! What one line of the table becomes: a field, a name, and all that Python and the command line need to know of it.

use std::ffi::OsStr;

use super::kinds::{Form, Refused};
use super::{Name, Options, Value};

/// An option as it is declared.
pub struct Declared {
    /// Which it is.
    pub name: Name,
    /// What it is for: shown by `--help` and in Python.
    pub help: &'static str,
    /// How a value is written.
    pub form: &'static dyn Form,
    pub(super) default: fn() -> Value,
    pub(super) set: fn(&mut Options, &Value) -> Result<(), Refused>,
}

impl Declared {
    /// What counts where nothing was given.
    pub fn default(&self) -> Value {
        (self.default)()
    }

    /// What was typed after the flag, if it can be. One of several is handed on unchecked: users and groups may be named, and names
    /// are looked up elsewhere.
    pub fn read(&self, typed: &OsStr) -> Result<Value, Refused> {
        let given = typed.to_str().map_or_else(|| Value::Path(typed.into()), |text| self.form.read(text));
        if !self.form.repeats() {
            (self.set)(&mut Options::default(), &given)?;
        }
        Ok(given)
    }
}

/// Makes [`Options`], [`Name`] and [`TABLE`](super::TABLE) from the declarations:
///
/// ```text
/// /// What it is for
/// name: the type in Rust = default, the kind of values;
/// ```
macro_rules! declare {
    ($($(#[doc = $help:literal])+ $name:ident: $type:ty = $default:expr, $kind:expr;)+) => {
        /// How to serve: what a user may choose, under the names that users know. A time is a `Duration`, whatever the unit that its
        /// name says users give it in.
        #[derive(Clone, Debug)]
        pub struct Options {
            $($(#[doc = $help])+ pub $name: $type,)+
        }

        impl Default for Options {
            fn default() -> Self {
                Self {
                    $($name: Kind::<$type>::parse(&$kind, &Value::from($default)).expect("the default is possible"),)+
                }
            }
        }

        /// An option's name, spelled as Python's keyword.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[expect(non_camel_case_types, reason = "each is spelled once, as users do")]
        pub enum Name {
            $($(#[doc = $help])+ $name,)+
        }

        impl Name {
            /// In Python.
            pub fn keyword(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)+
                }
            }
        }

        /// Every option, in the order of the help.
        pub static TABLE: &[Declared] = &[
            $(Declared {
                name: Name::$name,
                help: concat!($($help),+).trim_ascii(),
                form: &$kind,
                default: || Value::from($default),
                set: |options, given| {
                    options.$name = Kind::<$type>::parse(&$kind, given)?;
                    Ok(())
                },
            },)+
        ];
    };
}

pub(super) use declare;
