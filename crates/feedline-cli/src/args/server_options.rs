//! The flags of `feedline serve`, from the table of a server's options (`feedline_core::options`).

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Command};
use feedline_core::options::{Declared, Name, TABLE, Value};
use feedline_core::{Explanation, Reader};

/// What was given, in the order of the table; what was not is the server's default.
#[derive(Clone, Debug, Default)]
pub struct ServerOptions(pub Vec<(Name, Value)>);

impl clap::Args for ServerOptions {
    fn augment_args(command: Command) -> Command {
        command.args(TABLE.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl clap::FromArgMatches for ServerOptions {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for option in TABLE {
            if let Some(value) = value(option, matches) {
                self.0.retain(|(name, _)| *name != option.name);
                self.0.push((option.name, value));
            }
        }
        Ok(())
    }
}

fn flag(option: &'static Declared) -> Arg {
    let (form, keyword) = (option.form, option.name.keyword());
    let flag = Arg::new(keyword).long(keyword.replace('_', "-")).help(help(option));
    if form.is_switch() {
        return flag.action(ArgAction::SetTrue);
    }
    let placeholder = form.placeholder();
    let flag = flag
        .value_name(if placeholder.is_empty() { keyword.to_uppercase() } else { placeholder.to_owned() })
        .action(if form.repeats() { ArgAction::Append } else { ArgAction::Set })
        .allow_negative_numbers(true);
    let choices = form.choices();
    if choices.is_empty() {
        return flag.value_parser(Typed(option));
    }
    let words = choices.into_iter().map(|(word, meaning)| PossibleValue::new(word).help(meaning));
    flag.value_parser(PossibleValuesParser::new(words).map(Value::Text))
}

/// With the default, as clap shows the defaults that it knows of.
fn help(option: &Declared) -> String {
    match option.default() {
        Value::Nothing | Value::Bool(false) | Value::List(_) => option.help.to_owned(),
        default => format!("{} [default: {}]", option.help, default.typed().trim_end_matches(".0")),
    }
}

/// Takes what is typed for an option, or says what is wrong with it as Python does. A path need not be Unicode.
#[derive(Clone)]
struct Typed(&'static Declared);

impl TypedValueParser for Typed {
    type Value = Value;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, typed: &OsStr) -> Result<Value, clap::Error> {
        self.0.read(typed).map_err(|refused| {
            let given = Value::Text(typed.to_string_lossy().into());
            let explanation = Explanation::refused(self.0.name, given, &refused);
            clap::Error::raw(ErrorKind::ValueValidation, explanation.worded(Reader::CommandLine))
        })
    }
}

fn value(option: &Declared, matches: &ArgMatches) -> Option<Value> {
    let keyword = option.name.keyword();
    if option.form.is_switch() {
        matches.get_flag(keyword).then_some(Value::Bool(true))
    } else if option.form.repeats() {
        Some(Value::List(matches.get_many(keyword)?.cloned().collect()))
    } else {
        matches.get_one(keyword).cloned()
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};
    use std::os::unix::ffi::OsStrExt;

    use clap::{CommandFactory, Parser};
    use feedline_core::options::{Name, TABLE, Value};

    use super::super::{Cli, Command};

    fn typed(flags: &[impl AsRef<OsStr>]) -> Result<Vec<(Name, Value)>, String> {
        let words = ["feedline", "serve", "data.py:make_loader", "--name", "images"].map(OsString::from);
        let words = words.into_iter().chain(flags.iter().map(|flag| flag.as_ref().to_owned()));
        match Cli::try_parse_from(words).map_err(|error| error.to_string())?.command {
            Command::Serve(serve) => Ok(serve.options.0),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn only_what_was_given_is_handed_on() {
        assert_eq!(typed(&[""; 0]).unwrap(), []);
        let flags = ["--epochs=3", "--ring=500", "--history", "2GB", "--replay", "--allow", "alice", "--allow=7"];
        assert_eq!(
            typed(&flags).unwrap(),
            [
                (Name::epochs, 3.into()),
                (Name::ring, 500.into()),
                (Name::history, "2GB".into()),
                (Name::replay, true.into()),
                (Name::allow, Value::List(vec!["alice".into(), 7.into()])),
            ]
        );
        assert_eq!(typed(&["--lag=skip"]).unwrap(), [(Name::lag, "skip".into())]);
        let seed = i128::from(u64::MAX);
        assert_eq!(typed(&["--seed", &seed.to_string()]).unwrap(), [(Name::seed, seed.into())]);
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_to_type() {
        for (flags, said) in [
            (
                ["--epochs-ahead", "62"],
                "--epochs-ahead 62 is too large: it is at most 61\n  give a whole number from 0 to 61",
            ),
            (["--linger-secs", "-1"], "or no --linger-secs"),
            (["--loader-warn-secs", "inf"], "give a number of seconds greater than 0, up to 1e9"),
            (["--ring", "99999999999999999999999"], "is too large: it is at most 18446744073709551615"),
            (["--ring", "-5"], "--ring -5 is too small: it is at least 1"),
            (["--history", "nan"], "--history nan is neither a share of the epoch nor a size"),
            (["--history", "inf"], "--history inf is neither a share of the epoch nor a size"),
            (["--history-dir", "/no/such/folder"], "--history-dir /no/such/folder is not a folder"),
        ] {
            let refused = typed(&flags).unwrap_err();
            assert!(refused.contains(said), "{refused}");
        }
        let refused = typed(&["--loader-warn-secs", "0"]).unwrap_err();
        assert!(!refused.contains("no --loader-warn-secs"), "leaving it out is the default: {refused}");
    }

    #[test]
    fn a_path_need_not_be_unicode() {
        let path = OsStr::from_bytes(b"/data/caf\xe9");
        let given = typed(&[OsStr::new("--state-file"), path]).unwrap();
        assert_eq!(given, [(Name::state_file, Value::Path(path.into()))]);
        let refused = typed(&[OsStr::new("--epochs"), path]).unwrap_err();
        assert!(refused.contains("is not a whole number"), "{refused}");
    }

    #[test]
    fn help_shows_every_default() {
        let command = Cli::command();
        let serve = command.find_subcommand("serve").unwrap();
        let shown: Vec<_> = TABLE
            .iter()
            .filter_map(|option| {
                let flag = serve.get_arguments().find(|flag| flag.get_id() == option.name.keyword()).unwrap();
                let help = flag.get_help().unwrap().to_string();
                let (_, default) = help.split_once(" [default: ")?;
                Some((option.name, default.to_owned()))
            })
            .collect();
        let expected = [
            (Name::wait_for, "1]"),
            (Name::history, "0.02]"),
            (Name::lag, "block]"),
            (Name::epochs_ahead, "2]"),
            (Name::stall_timeout_secs, "60]"),
            (Name::loader_warn_secs, "30]"),
        ];
        assert_eq!(shown, expected.map(|(name, default)| (name, default.to_owned())));
    }
}
